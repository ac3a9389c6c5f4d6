import type { Logger } from '@infera/fleet'
import { anyModel } from '@infera/router'
import { ServerError } from '../errors.js'
import type { LogLevel } from '../logging.js'
import type { InferaServerOptions } from '../options.js'
import { discoveryOf, type FleetFlags, natsOf } from './fleet-flags.js'
import { type JoinTokenFlags, readPem, tokenFileOf } from './join-flags.js'

/** What `infera server` and `infera up` have in common, as commander gives it. */
export interface ServerFlags extends JoinTokenFlags {
  readonly host: string
  readonly port: number
  readonly routerPolicy: 'kv-aware' | 'round-robin' | 'least-loaded'
  readonly routerMode: 'auto' | 'direct'
  readonly routerTokenizerPath?: string
  readonly kvOverlapWeight: number
  readonly kvPrefillOverlapWeight?: number
  readonly kvDecodeOverlapWeight?: number
  readonly kvBlockSize?: number
  readonly routerDefaultRetention: 'off' | 'none' | 'short' | 'long'
  readonly model: readonly string[]
  readonly adapter: readonly string[]
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

/** What `infera server` has beyond that: a fleet that is found through a registry. @throws as `serverOptions` */
export function fleetServerOptions(flags: ServerFlags & FleetFlags, logger: Logger): InferaServerOptions {
  return {
    ...serverOptions(flags, logger),
    discovery: discoveryOf(flags),
    requestTransport: flags.requestTransport,
    kvEventTransport: flags.kvEventTransport,
    nats: natsOf(flags),
  }
}

/** @throws ServerError `INFERA_SERVER_OPTIONS` naming the flag and what it wants */
export function serverOptions(flags: ServerFlags, logger: Logger): InferaServerOptions {
  const joinToken = tokenFileOf(flags, logger)?.all ?? flags.joinToken
  const tls = tlsOf(flags)
  if (flags.routerMode === 'direct') {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      '--router-mode direct is not there in this release; leave it away, or give auto',
    )
  }
  return {
    host: flags.host,
    port: flags.port,
    policy: flags.routerPolicy,
    overlapWeight: flags.kvOverlapWeight,
    prefillOverlapWeight: flags.kvPrefillOverlapWeight ?? null,
    decodeOverlapWeight: flags.kvDecodeOverlapWeight ?? null,
    ...(flags.kvBlockSize === undefined ? {} : { kvBlockSize: flags.kvBlockSize }),
    retentionHints: flags.routerDefaultRetention,
    requestRetriesMax: flags.requestMaxRetries,
    firstByteTimeoutMs: flags.firstByteTimeout === 0 ? null : flags.firstByteTimeout,
    idleTimeoutMs: flags.idleTimeout === 0 ? null : flags.idleTimeout,
    bodyBytesMax: flags.maxBodyBytes,
    shutdownGraceMs: flags.shutdownGrace,
    models: modelsOf(flags),
    workers: (flags.worker ?? []).map((text) => {
      const [model, url] = pair('--worker', text, 'model=url')
      return { model, url }
    }),
    ...(joinToken === undefined ? {} : { joinToken }),
    ...(tls === undefined ? {} : { tls }),
  }
}

function modelsOf({
  model,
  adapter,
  routerTokenizerPath,
}: ServerFlags): NonNullable<InferaServerOptions['models']> {
  const adapters = adapter.map((text) => {
    const [base, name] = pair('--adapter', text, 'model=adapter')
    return { base, name }
  })
  const named = model.map((text) => {
    const [name, folder] = pair('--model', text, 'name=folder')
    return { name, folder, adapters: adapters.filter(({ base }) => base === name).map((one) => one.name) }
  })
  const stray = adapters.find(({ base }) => !named.some(({ name }) => name === base))
  if (stray)
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      `--adapter names the model '${stray.base}', which no --model names; add --model ${stray.base}=<folder>`,
    )
  return routerTokenizerPath === undefined
    ? named
    : [...named, { name: anyModel, folder: routerTokenizerPath }]
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
