// A router inside a Koa app, as a middleware before any body parser.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import Koa from 'koa'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const app = new Koa()
app.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/v1/')) return next()
  ctx.respond = false // the answer is the router's from here on
  await router.handle(ctx.req, ctx.res)
})
app.use((ctx) => {
  ctx.body = { hello: 'Koa' }
})

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

const answer = await fetch(`${url}/v1/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 12 }),
})
console.log('the router:', answer.status, await answer.text())
const own = await fetch(`${url}/hello`)
console.log('the app itself:', own.status, await own.text())

server.close()
server.closeAllConnections()
await close()
