import { ServerError } from '../errors.js'
import type { LogLevel } from '../logging.js'
import type { InferaServerOptions } from '../options.js'

/** What `infera server` and `infera up` have in common, as commander gives it. */
export interface ServerFlags {
  readonly host: string
  readonly port: number
  readonly policy: 'kv-aware' | 'round-robin' | 'least-loaded'
  readonly overlapWeight: number
  readonly model: readonly string[]
  readonly worker?: readonly string[]
  readonly maxBodyBytes: number
  readonly requestMaxRetries: number
  readonly shutdownGrace: number
  readonly joinToken?: string
  readonly logLevel: LogLevel
}

/** @throws ServerError `INFERA_SERVER_OPTIONS` naming the flag and what it wants */
export function serverOptions(flags: ServerFlags): InferaServerOptions {
  return {
    host: flags.host,
    port: flags.port,
    policy: flags.policy,
    overlapWeight: flags.overlapWeight,
    requestRetriesMax: flags.requestMaxRetries,
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
    ...(flags.joinToken === undefined ? {} : { joinToken: flags.joinToken }),
  }
}

function pair(flag: string, text: string, form: string): [string, string] {
  const at = text.indexOf('=')
  if (at > 0 && at < text.length - 1) return [text.slice(0, at), text.slice(at + 1)]
  throw new ServerError('INFERA_SERVER_OPTIONS', `${flag} '${text}' is not of the form ${form}`)
}
