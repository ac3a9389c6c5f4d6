import { ConstantBackoff, ExponentialBackoff, handleWhen, noop, retry } from 'cockatiel'
import { Etcd3, type IKeyValue, type IOptions, isRecoverableError } from 'etcd3'

export interface EtcdClientOptions {
  readonly endpoints: readonly string[]
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** PEM. */
  readonly tls?:
    | {
        readonly ca?: string | undefined
        readonly cert?: string | undefined
        readonly key?: string | undefined
      }
    | undefined
  readonly requestTimeoutMs: number
}

export type KeyValue = IKeyValue

/**
 * The library's client with our limits. Its own circuit breaker is left out, since it adds seconds to every outage; its watch and
 * lease objects serve, its retries of them do not: what was missed must be listed again.
 */
export function createEtcdClient(options: EtcdClientOptions): Etcd3 {
  const { endpoints, username, password, tls, requestTimeoutMs } = options
  const pem = (text: string | undefined) => (text === undefined ? undefined : Buffer.from(text))
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
  if (tls || endpoints.some((endpoint) => endpoint.startsWith('https:'))) {
    // Without an authority of its own the library's type wants one; Node's stand in for it.
    const [ca, key, cert] = [pem(tls?.ca), pem(tls?.key), pem(tls?.cert)]
    if (ca || key || cert) {
      rest.credentials = {
        rootCertificate: ca as Buffer,
        ...(key ? { privateKey: key } : {}),
        ...(cert ? { certChain: cert } : {}),
      }
    }
  }
  return new Etcd3(rest)
}

/** Texts of the library, without those of its own that say where to report bugs; they hold no credentials. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.message || error.name
}
