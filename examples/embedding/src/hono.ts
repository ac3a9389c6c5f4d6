// A router inside a Hono app. `router.fetch` takes a Request and gives a Response, so the same line works wherever such
// handlers do: Next route handlers, Bun.serve, Deno.serve.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const app = new Hono()
app.all('/v1/*', (c) => router.fetch(c.req.raw))
app.get('/hello', (c) => c.json({ hello: 'Hono' }))

const question = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 12 }),
}

// Without a socket, as tests of an app do:
const inProcess = await app.request('/v1/chat/completions', question)
console.log('in process:', inProcess.status, await inProcess.text())

// And behind a listener:
const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' })
if (!server.listening) await once(server, 'listening')
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
const answer = await fetch(`${url}/v1/chat/completions`, question)
console.log('over HTTP:', answer.status, await answer.text())
const own = await fetch(`${url}/hello`)
console.log('the app itself:', own.status, await own.text())

server.close()
if ('closeAllConnections' in server) server.closeAllConnections()
await close()
