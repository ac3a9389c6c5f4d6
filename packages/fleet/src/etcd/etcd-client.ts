import { ConstantBackoff, ExponentialBackoff, handleWhen, noop, retry } from 'cockatiel'
import { Etcd3, type IKeyValue, type IOptions, isRecoverableError } from 'etcd3'
import type { z } from 'zod'
import { LinkTls } from '../link/tls.js'

/** How etcd is checked, and shown who we are; as for links, but for the name: that is the one of the endpoint. */
export const EtcdTls = LinkTls.refine(({ servername }) => servername === undefined, {
  path: ['servername'],
  message: 'etcd is asked for the name in its endpoint: leave it out',
})

export interface EtcdClientOptions {
  readonly endpoints: readonly string[]
  readonly username?: string | undefined
  readonly password?: string | undefined
  readonly tls?: z.output<typeof EtcdTls> | undefined
  readonly requestTimeoutMs: number
}

export type KeyValue = IKeyValue

/**
 * The library's client with our limits. Its own circuit breaker is left out, since it adds seconds to every outage; its watch and
 * lease objects serve, its retries of them do not: what was missed must be listed again.
 */
export function createEtcdClient(options: EtcdClientOptions): Etcd3 {
  const { endpoints, username, password, tls, requestTimeoutMs } = options
  const rest: IOptions = {
    hosts: [...endpoints],
    defaultCallOptions: ({ isStream }) => (isStream ? {} : { deadline: Date.now() + requestTimeoutMs }),
    dialTimeout: requestTimeoutMs,
    grpcOptions: {
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.min_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 2_000,
      // Half-open connections are found without a request under way.
      'grpc.keepalive_time_ms': 20_000,
      'grpc.keepalive_timeout_ms': 10_000,
      'grpc.max_receive_message_length': 64 * 1024 * 1024,
    },
    faultHandling: {
      host: () => noop,
      // Another endpoint may answer.
      global: retry(handleWhen(isRecoverableError), {
        maxAttempts: endpoints.length,
        backoff: new ExponentialBackoff({ initialDelay: 20, maxDelay: 200 }),
      }),
      watchBackoff: new ConstantBackoff(250).next(),
    },
  }
  if (username !== undefined && password !== undefined) {
    rest.auth = { username, password, callOptions: () => ({ deadline: Date.now() + requestTimeoutMs }) }
  }
  if (tls) {
    const { ca, cert, key } = tls
    rest.credentials = {
      // Without an authority of its own the library's type wants one; Node's stand in for it.
      rootCertificate: (ca === undefined ? undefined : pemOf(ca)) as Buffer,
      ...(key === undefined ? {} : { privateKey: pemOf(key) }),
      ...(cert === undefined ? {} : { certChain: pemOf(cert) }),
    }
  }
  return new Etcd3(rest)
}

type Pem = string | Buffer

/** Several certificates stand in one text, one after the other. */
const pemOf = (pem: Pem | readonly Pem[]) =>
  Buffer.from(
    [pem]
      .flat()
      .map((part) => part.toString())
      .join('\n'),
  )

/** Texts of the library, without those of its own that say where to report bugs; they hold no credentials. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.message || error.name
}
