// A router inside an Express app, beside routes of the app's own.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const app = express()
// Before any body parser: the router reads the body itself and passes it on byte for byte.
// Anywhere else than at /v1 the router is told so: `new Router({ basePath: '/llm/v1' })` for app.use('/llm/v1', ...).
app.use('/v1', (req, res) => router.handle(req, res))
app.use(express.json())
app.post('/hello', (req, res) => {
  res.json({ hello: req.body.name })
})

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
const post = (path: string, body: unknown) =>
  fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

const answer = await post('/v1/chat/completions', {
  model,
  messages: [{ role: 'user', content: 'Hello' }],
  max_tokens: 12,
})
console.log('the router:', answer.status, await answer.text())
const own = await post('/hello', { name: 'Express' })
console.log('the app itself:', own.status, await own.text())

server.close()
server.closeAllConnections()
await close()
