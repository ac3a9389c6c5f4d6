// A router behind node:http: one listener, and everything an OpenAI client needs is there.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const server = createServer((req, res) => router.handle(req, res))
server.listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo

const models = await fetch(`http://127.0.0.1:${port}/v1/models`)
console.log('models:', await models.text())

const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
  method: 'POST',
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 12 }),
})
console.log(answer.status, await answer.text())

server.close()
server.closeAllConnections() // fetch keeps idle connections open for a while
await close()
