import type { PromptModel } from '@infera/router/prompt'
import { commonWords } from '../content/words.js'

/** A prompt model for unit tests: one token for each listed word in its three forms, one for each other character. */
export function wordPrompt(): PromptModel {
  const idOf = new Map<string, number>()
  for (const word of commonWords) {
    const capital = word.charAt(0).toUpperCase() + word.slice(1)
    for (const form of [` ${word}`, capital, ` ${capital}`]) idOf.set(form, idOf.size)
  }
  const textOf = [...idOf.keys()]
  const charBase = 0x10_0000
  const encode = (text: string) => {
    const pieces = text.match(/ ?[A-Za-z]+|./gsu) ?? []
    return Uint32Array.from(
      pieces.flatMap((piece) => {
        const id = idOf.get(piece)
        return id === undefined ? [...piece].map((char) => charBase + (char.codePointAt(0) ?? 0)) : [id]
      }),
    )
  }
  const decode = (ids: ArrayLike<number>) =>
    Array.from(ids, (id) => (id >= charBase ? String.fromCodePoint(id - charBase) : (textOf[id] ?? ''))).join(
      '',
    )
  const renderChat = (body: Readonly<Record<string, unknown>>) =>
    (body.messages as { role: string; content: string }[])
      .map(({ role, content }) => `<${role}>${content}\n`)
      .concat('<assistant>')
      .join('')
  const tokenize: PromptModel['tokenize'] = (path, body) => {
    if (path === '/v1/chat/completions') return encode(renderChat(body))
    return typeof body.prompt === 'string' ? encode(body.prompt) : Uint32Array.from(body.prompt as number[])
  }
  return {
    folder: 'words',
    tokenizerDigest: '0123456789abcdef',
    tokenizerCanary: [1, 2, 3],
    renderChat,
    encode,
    decode,
    tokenize,
    tokenizePrompts: (path, body) => [tokenize(path, body)],
  }
}
