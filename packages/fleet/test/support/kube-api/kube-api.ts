import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { apiDocument } from './api-documents.js'
import { type ApiCall, type Fault, Faults } from './faults.js'
import { ListPages } from './list-pages.js'
import { gone, type KubeResource, podResource, StatusError } from './objects.js'
import { answerCall, readCall } from './routes.js'
import { KubeStore } from './store.js'
import { WatchResponse } from './watch-response.js'

export interface KubeApiOptions {
  /** Kinds besides Pods. */
  readonly resources?: readonly KubeResource[]
  readonly port?: number
  /** Changes remembered per resource, for watches that begin in the past. */
  readonly historyMax?: number
  readonly bookmarkEveryMs?: number
  /** How a watch from too long ago is refused; real servers do both. */
  readonly expiredAs?: 'status' | 'event'
  /** Bearer tokens that are let in; without it everybody is. May change at any time. */
  readonly tokens?: Set<string>
  /** PEM; with it the server speaks HTTPS. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** What stands in for a second of a Pod's grace, ms; 0: terminating Pods stay until they are removed. */
  readonly graceSecondMs?: number
}

/**
 * The part of a Kubernetes API server that discovery and controllers meet, in this process: objects in memory, list, watch
 * and patch over HTTP, and the ways in which they go wrong.
 */
export class KubeApi {
  readonly faults = new Faults()
  readonly pods: KubeStore
  /** The latest calls, oldest first; at most 10,000. */
  readonly calls: ApiCall[] = []
  readonly pages = new ListPages(64)
  readonly options: KubeApiOptions
  readonly #server: Server
  readonly #stores = new Map<string, KubeStore>()
  readonly #watches = new Set<WatchResponse>()
  readonly #sockets = new Set<Socket>()
  readonly #graceTimers = new Set<NodeJS.Timeout>()
  #version = 100
  #url = ''

  private constructor(options: KubeApiOptions) {
    this.options = options
    const storeOptions = {
      historyMax: options.historyMax ?? 1000,
      nextVersion: () => ++this.#version,
      version: () => this.#version,
    }
    for (const resource of [podResource, ...(options.resources ?? [])]) {
      this.#stores.set(`${resource.group}/${resource.plural}`, new KubeStore(resource, storeOptions))
    }
    this.pods = this.#stores.get('/pods') as KubeStore
    const listener = (request: IncomingMessage, response: ServerResponse) => {
      this.#handle(request, response).catch((error: unknown) => {
        const status =
          error instanceof StatusError ? error : new StatusError(500, 'InternalError', String(error))
        refuse(response, status)
      })
    }
    this.#server = options.tls ? createTlsServer(options.tls, listener) : createServer(listener)
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
  }

  /** Listens on loopback, a free port unless told. */
  static async start(options: KubeApiOptions = {}): Promise<KubeApi> {
    const api = new KubeApi(options)
    api.#server.listen(options.port ?? 0, '127.0.0.1')
    await once(api.#server, 'listening')
    const { port } = api.#server.address() as AddressInfo
    api.#url = `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`
    return api
  }

  /** Base URL. */
  get url(): string {
    return this.#url
  }

  get port(): number {
    return Number(new URL(this.#url).port)
  }

  get version(): number {
    return this.#version
  }

  get resources(): readonly KubeResource[] {
    return [...this.#stores.values()].map((store) => store.resource)
  }

  /** Watches open now. */
  get watches(): readonly WatchResponse[] {
    return [...this.#watches]
  }

  /** The objects of one kind. @throws StatusError 404 where the server does not know it */
  store(group: string, plural: string): KubeStore {
    const store = this.#stores.get(`${group}/${plural}`)
    if (!store) throw new StatusError(404, 'NotFound', 'the server could not find the requested resource')
    return store
  }

  /** Every open watch hears that its version is too old, and ends. */
  expireWatches(): void {
    for (const watch of this.watches) {
      watch.send({ type: 'ERROR', object: gone('0', this.#version).toStatus() })
      watch.end()
    }
  }

  /** Forgets the past: later watches from before now, and pages of lists begun before now, get 410. */
  expireHistory(): void {
    for (const store of this.#stores.values()) store.expireHistory()
    this.pages.expire()
  }

  /** Adds an open watch, until its response closes. */
  openWatch(
    response: ServerResponse,
    options: ConstructorParameters<typeof WatchResponse>[1],
  ): WatchResponse {
    const watch = new WatchResponse(response, options)
    this.#watches.add(watch)
    response.on('close', () => this.#watches.delete(watch))
    return watch
  }

  /** Plays the kubelet for a terminating object, where `graceSecondMs` says so. */
  removeAfterGrace(store: KubeStore, namespace: string, name: string, graceSeconds: number): void {
    const secondMs = this.options.graceSecondMs ?? 0
    if (secondMs === 0 || graceSeconds === 0) return
    const { uid } = store.get(namespace, name).metadata
    const timer = setTimeout(() => {
      this.#graceTimers.delete(timer)
      if (store.find(namespace, name)?.metadata.uid === uid) store.remove(namespace, name)
    }, graceSeconds * secondMs)
    this.#graceTimers.add(timer)
  }

  /** Cuts every connection and listens no more, but keeps everything it holds. */
  async goAway(): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve())
    })
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  /** Listens again, where it did before. */
  async comeBack(): Promise<void> {
    this.#server.listen(this.port, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  /** `goAway`, for good. */
  async stop(): Promise<void> {
    for (const timer of this.#graceTimers) clearTimeout(timer)
    await this.goAway()
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.#url)
    const body = await readBody(request)
    const { call, route } = readCall(request, url, body)
    this.calls.push(call)
    if (this.calls.length > 10_000) this.calls.shift()
    const fault = this.faults.take(call)
    if (fault && (await play(fault, response))) return
    const token = /^Bearer (.+)$/.exec(call.authorization ?? '')?.[1]
    if (this.options.tokens && !this.options.tokens.has(token ?? '')) {
      throw new StatusError(401, 'Unauthorized', 'Unauthorized')
    }
    if (route) return answerCall(this, call, route, response)
    const document = apiDocument(url.pathname, this.resources)
    if (!document) throw new StatusError(404, 'NotFound', 'the server could not find the requested resource')
    sendJson(response, 200, document)
  }
}

/** @returns whether the fault was the answer. A call whose client left during a wait is done all the same, as a server does. */
async function play(fault: Fault, response: ServerResponse): Promise<boolean> {
  await fault.waitFor
  if (fault.cut) response.destroy()
  else if (fault.status !== undefined) {
    const message = fault.message ?? 'asked for by the test'
    refuse(response, new StatusError(fault.status, 'Injected', message, fault.retryAfterSeconds))
  } else if (fault.body !== undefined) {
    response.writeHead(200, { 'content-type': 'application/json' }).end(fault.body)
  } else return false
  return true
}

function refuse(response: ServerResponse, error: StatusError): void {
  if (response.headersSent) {
    response.destroy()
    return
  }
  if (error.retryAfterSeconds !== undefined)
    response.setHeader('retry-after', String(error.retryAfterSeconds))
  sendJson(response, error.status, error.toStatus())
}

function sendJson(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

async function readBody(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts).toString('utf8')
}
