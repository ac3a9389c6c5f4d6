// A router inside a Fastify app, as a plugin with its own body handling.
import Fastify from 'fastify'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const app = Fastify()
await app.register(async (scope) => {
  // Only in this scope: leave the body unread, since the router reads it and passes it on byte for byte.
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, _payload, done) => done(null))
  scope.all('/v1/*', async (request, reply) => {
    reply.hijack() // the answer is the router's from here on
    await router.handle(request.raw, reply.raw)
  })
})
app.post<{ Body: { name: string } }>('/hello', async ({ body }) => ({ hello: body.name }))

const url = await app.listen({ port: 0, host: '127.0.0.1' })
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
const own = await post('/hello', { name: 'Fastify' })
console.log('the app itself:', own.status, await own.text())

await app.close()
await close()
