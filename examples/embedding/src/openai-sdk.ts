// The official OpenAI client against a router, streaming.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)
const server = createServer((req, res) => router.handle(req, res))
server.listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo

const openai = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'not-needed' })

const stream = await openai.chat.completions.create({
  model,
  messages: [{ role: 'user', content: 'Tell me about the river behind the old stone bridge.' }],
  max_tokens: 24,
  stream: true,
  stream_options: { include_usage: true },
})
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? '')
  if (chunk.usage) console.log('\ntokens of the answer:', chunk.usage.completion_tokens)
}

// Errors arrive as the client's own classes.
try {
  await openai.chat.completions.create({ model: 'nobody', messages: [{ role: 'user', content: 'Hello' }] })
} catch (error) {
  if (!(error instanceof OpenAI.NotFoundError)) throw error
  console.log(`no such model: ${error.code}`)
}

server.close()
server.closeAllConnections()
await close()
