// Routes and dispatches one request by the public names alone, and prints what became of it and of @infera/native.
import { createRequire } from 'node:module'
import { EmbeddedDiscovery, parseWorkerRecord, type RequestTransport } from '@infera/fleet'
import { Router } from '@infera/router'
import { chainBlockHashes } from '@infera/router/prompt'

const codeOf = (error: unknown) => (error as { code?: string }).code
// Not a literal, so that the compiler does not look for a package that need not be there.
const native: string = '@infera/native'
const byName = await import(native).catch(codeOf)
let asAddon: unknown = 'loaded'
try {
  createRequire(import.meta.url)(process.argv[2] as string)
} catch (error) {
  asAddon = codeOf(error)
}

const discovery = new EmbeddedDiscovery()
const record = parseWorkerRecord({
  worker_id: 'a',
  url: 'link://a',
  model_name: 'm',
  request_transport: 'link',
})
await discovery.register({ kind: 'worker', record })
const transport: RequestTransport = {
  kind: 'link',
  send: async () => ({
    status: 200,
    headers: {},
    body: (async function* () {
      yield new TextEncoder().encode('ok')
    })(),
  }),
  close: async () => {},
}
const router = new Router({ discovery, transports: [transport] })
await router.start()
const request = {
  path: '/v1/chat/completions',
  body: { model: 'm', messages: [{ role: 'user', content: 'hi' }] },
} as const
const { workerId } = await router.route(request)
const { implementation } = router.stats().index
let answer = ''
for await (const chunk of (await router.dispatch(request)).body) answer += new TextDecoder().decode(chunk)
const blocks = chainBlockHashes(Uint32Array.of(1, 2, 3, 4), 2).length
await router.close()
await discovery.close()
console.log(JSON.stringify({ byName, asAddon, workerId, answer, blocks, implementation }))
