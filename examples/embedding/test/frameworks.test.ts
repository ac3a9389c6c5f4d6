// The router's own contract suite, under the frameworks that the examples are about.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { Router } from '@infera/router'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { type FaceClient, openAiFaceContract } from '../../../packages/router/test/contracts/openai-face.js'

/** A client of a server of node:http, which is closed with it. */
async function clientOf(server: Server): Promise<FaceClient> {
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  return {
    call: (path, init) => fetch(`http://127.0.0.1:${port}${path}`, init),
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

openAiFaceContract('Express', (router) => {
  const app = express()
  app.use('/v1', (req, res) => router.handle(req, res)) // which cuts '/v1' off the path
  app.use((req, res) => router.handle(req, res))
  return clientOf(createServer(app))
})

openAiFaceContract('Koa', (router) => {
  const app = new Koa()
  app.use(async (ctx) => {
    ctx.respond = false
    await router.handle(ctx.req, ctx.res)
  })
  return clientOf(createServer(app.callback()))
})

openAiFaceContract(
  'Fastify',
  async (router) => {
    const app = Fastify()
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('*', (_request, _payload, done) => done(null))
    app.all('/*', async (request, reply) => {
      reply.hijack()
      await router.handle(request.raw, reply.raw)
    })
    await app.listen({ port: 0, host: '127.0.0.1' })
    return clientOf(app.server)
  },
  { checksUrls: true },
)

openAiFaceContract('Hono', (router: Router) => {
  const app = new Hono()
  app.all('*', (c) => router.fetch(c.req.raw))
  return clientOf(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server)
})
