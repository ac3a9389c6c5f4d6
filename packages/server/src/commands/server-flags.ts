import type { Logger } from '@infera/fleet'
import { ServerError } from '../errors.js'
import type { LogLevel } from '../logging.js'
import type { InferaServerOptions } from '../options.js'
import { type JoinTokenFlags, readPem, tokenFileOf } from './join-flags.js'

/** What `infera server` and `infera up` have in common, as commander gives it. */
export interface ServerFlags extends JoinTokenFlags {
  readonly host: string
  readonly port: number
  readonly policy: 'kv-aware' | 'round-robin' | 'least-loaded'
  readonly overlapWeight: number
  readonly model: readonly string[]
  readonly worker?: readonly string[]
  readonly maxBodyBytes: number
  readonly requestMaxRetries: number
  /** 0: none. */
  readonly firstByteTimeout: number
  /** 0: none. */
  readonly idleTimeout: number
  readonly shutdownGrace: number
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly logLevel: LogLevel
}

/** @throws ServerError `INFERA_SERVER_OPTIONS` naming the flag and what it wants */
export function serverOptions(flags: ServerFlags, logger: Logger): InferaServerOptions {
  const joinToken = tokenFileOf(flags, logger)?.all ?? flags.joinToken
  const tls = tlsOf(flags)
  return {
    host: flags.host,
    port: flags.port,
    policy: flags.policy,
    overlapWeight: flags.overlapWeight,
    requestRetriesMax: flags.requestMaxRetries,
    firstByteTimeoutMs: flags.firstByteTimeout === 0 ? null : flags.firstByteTimeout,
    idleTimeoutMs: flags.idleTimeout === 0 ? null : flags.idleTimeout,
    bodyBytesMax: flags.maxBodyBytes,
    shutdownGraceMs: flags.shutdownGrace,
    models: flags.model.map((text) => {
      const [name, folder] = pair('--model', text, 'name=folder')
      return { name, folder }
    }),
    workers: (flags.worker ?? []).map((text) => {
      const [model, url] = pair('--worker', text, 'model=url')
      return { model, url }
    }),
    ...(joinToken === undefined ? {} : { joinToken }),
    ...(tls === undefined ? {} : { tls }),
  }
}

function tlsOf({ tlsCert, tlsKey }: ServerFlags): InferaServerOptions['tls'] {
  if (tlsCert === undefined && tlsKey === undefined) return undefined
  if (tlsCert === undefined || tlsKey === undefined) {
    throw new ServerError('INFERA_SERVER_OPTIONS', 'give --tls-cert and --tls-key together, or neither')
  }
  return { cert: readPem('--tls-cert', tlsCert), key: readPem('--tls-key', tlsKey) }
}

function pair(flag: string, text: string, form: string): [string, string] {
  const at = text.indexOf('=')
  if (at > 0 && at < text.length - 1) return [text.slice(0, at), text.slice(at + 1)]
  throw new ServerError('INFERA_SERVER_OPTIONS', `${flag} '${text}' is not of the form ${form}`)
}
