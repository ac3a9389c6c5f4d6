// The AI SDK with a router in the same process: requests never touch a socket.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const infera = createOpenAICompatible({
  name: 'infera',
  baseURL: 'http://in-process/v1', // only its path matters: no name is looked up
  fetch: (input, init) => router.fetch(new Request(input, init)),
})

const { text, usage } = await generateText({
  model: infera(model),
  prompt: 'Tell me about the river behind the old stone bridge.',
  maxOutputTokens: 24,
})
console.log(`${usage.outputTokens} tokens at once:`, text)

const { textStream } = streamText({
  model: infera(model),
  prompt: 'And where does it go from there?',
  maxOutputTokens: 24,
})
process.stdout.write('piece by piece: ')
for await (const piece of textStream) process.stdout.write(piece)
console.log()

await close()
