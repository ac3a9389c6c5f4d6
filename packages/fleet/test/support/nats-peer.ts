import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { createInbox, type Msg, type NatsConnection, headers as newHeaders } from '@nats-io/transport-node'
import { requestConsumer, requestStream } from '../../src/nats/streams.js'
import { until } from './wait.js'

/** A frame as one reads it off the wire. */
export interface SeenFrame {
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

/** A front end of the reference: literal envelopes, an inbox for each, and whatever comes back. */
export class ReferenceFrontEnd {
  readonly #connection: NatsConnection
  readonly frames: SeenFrame[] = []
  readonly inbox = createInbox()

  constructor(connection: NatsConnection) {
    this.#connection = connection
    connection.subscribe(this.inbox, { callback: (_error, message) => void this.frames.push(seen(message)) })
  }

  ask(token: string, envelope: string): void {
    this.#connection.publish(`infera.req.${token}`, envelope, { reply: this.inbox })
  }

  async askQueued(token: string, envelope: string): Promise<void> {
    const headers = newHeaders()
    headers.set('rs-inbox', this.inbox)
    await jetstream(this.#connection).publish(`infera.req.${token}`, envelope, { headers })
  }

  cancel(token: string): void {
    this.#connection.publish(`infera.cancel.${token}`, this.inbox)
  }

  /** All frames up to a terminal one. */
  async ended(): Promise<readonly SeenFrame[]> {
    await until(() => this.frames.some(({ headers }) => /^(done|error)$/.test(headers['rs-type'] ?? '')))
    return this.frames
  }
}

/** One request as a worker of the reference sees it. */
export interface SeenRequest {
  readonly inbox: string
  readonly text: string
  reply(type: string, body?: string, status?: string): void
  acknowledge(): void
}

/** A worker of the reference, with or without its queue, that answers as the test says. */
export async function referenceWorker(
  connection: NatsConnection,
  token: string,
  options: { isQueued?: boolean; onRequest: (request: SeenRequest) => void },
) {
  const cancels: string[] = []
  const accept = (message: Msg) => {
    const inbox = message.headers?.get('rs-inbox') || message.reply
    if (!inbox) return
    options.onRequest({
      inbox,
      text: message.string(),
      reply(type, body = '', status) {
        const headers = newHeaders()
        headers.set('rs-type', type)
        if (status) headers.set('rs-status', status)
        connection.publish(inbox, body, { headers })
      },
      acknowledge: () => message.respond('+ACK'),
    })
  }
  connection.subscribe(`infera.cancel.${token}`, {
    callback: (_error, message) => void cancels.push(message.string()),
  })
  if (options.isQueued) {
    const manager = await jetstreamManager(connection)
    await manager.streams.add(requestStream)
    const deliver = createInbox()
    connection.subscribe(deliver, { callback: (_error, message) => accept(message) })
    await connection.flush()
    const workerId = Buffer.from(token, 'base64url').toString()
    await manager.consumers.add('INFERA_REQUESTS', requestConsumer(workerId, deliver))
  } else {
    connection.subscribe(`infera.req.${token}`, { callback: (_error, message) => accept(message) })
  }
  await connection.flush()
  return { cancels }
}

function seen(message: Msg): SeenFrame {
  const headers: Record<string, string> = {}
  if (message.headers?.code) headers.code = String(message.headers.code)
  for (const [name, values] of message.headers ?? []) headers[name] = values.join(',')
  return { headers, text: message.string() }
}

/** Asks until the answer is yes; a question that fails was asked too early. Everything else gets its turn in between. */
export async function eventually(question: () => Promise<boolean>): Promise<void> {
  while (true) {
    const isSo = await question().catch(() => false)
    if (isSo) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}
