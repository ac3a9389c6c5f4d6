import { LinkRefusedError, type Logger } from '@infera/fleet'
import { loadPromptModel } from '@infera/router/prompt'
import { SimEngine, type SimEngineOptions, SimHttpServer, simModelFolder, startSimWorker } from '@infera/sim'
import { FleetDisagreementError } from '@infera/worker'
import type { Command } from 'commander'
import { ServerError } from '../errors.js'
import { createLogger, type LogLevel } from '../logging.js'
import type { FleetFlags } from './fleet-flags.js'
import { type JoinTokenFlags, readPem, tokenFileOf } from './join-flags.js'
import { warnWithoutEffect } from './reference-flags.js'
import { type Shutdown, watchShutdown } from './shutdown.js'
import { serveByRegistry } from './worker-registry.js'

export interface WorkerSimFlags extends JoinTokenFlags, FleetFlags {
  readonly advertiseHost?: string
  readonly strictFleet: boolean
  readonly enableKvEvents: boolean
  readonly kvEventsBind: string
  readonly kvEventsAdvertise?: string
  readonly join: readonly string[]
  readonly port?: number
  readonly host: string
  readonly json: boolean
  readonly model: string
  readonly modelFolder?: string
  readonly kvBlocks: number
  readonly blockSize: number
  readonly timeScale: number
  /** Seconds. */
  readonly drainTimeout: number
  readonly joinCa?: string
  readonly logLevel: LogLevel
}

/** Exit code of a worker that disagrees with a server of its fleet: EX_CONFIG. */
const disagreesCode = 78

/**
 * `infera worker sim`: serves until a signal, until a server refuses it, or until the process that started it is gone.
 * @throws ServerError `INFERA_SERVER_OPTIONS` unless it is told whom to join, or else where to listen
 */
export async function runWorkerSim(flags: WorkerSimFlags, command: Command): Promise<void> {
  const isAnnounced = flags.discoveryBackend !== 'embedded'
  if (isAnnounced ? flags.join.length > 0 : flags.join.length > 0 === (flags.port !== undefined)) {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      'give --join <url> to join a server, --port <number> to serve HTTP, or --discovery-backend to be found through a registry',
    )
  }
  const logger = createLogger(flags.logLevel)
  warnWithoutEffect(command, 'worker', logger)
  // A worker of `infera up` is told by its parent when to stop; the terminal's Ctrl-C reaches it as well and must not overtake that.
  const isSupervised = process.send !== undefined
  const shutdown = watchShutdown({ ignored: isSupervised ? ['SIGINT', 'SIGHUP'] : [] })
  if (isSupervised)
    process.once('disconnect', () => shutdown.request('the process that started this worker is gone'))
  try {
    if (isAnnounced) await serveByRegistry(flags, await engineOf(flags, logger), shutdown, logger)
    else if (flags.port === undefined) await serveByLink(flags, shutdown, logger)
    else await serveByHttp(flags, flags.port, shutdown, logger)
  } catch (error) {
    if (isDisagreement(error)) process.exitCode = disagreesCode
    throw error
  } finally {
    if (isSupervised && process.connected) process.disconnect()
  }
}

async function serveByLink(flags: WorkerSimFlags, shutdown: Shutdown, logger: Logger): Promise<void> {
  const token = tokenFileOf(flags, logger)?.first ?? flags.joinToken
  const tls = flags.joinCa === undefined ? undefined : { ca: readPem('--join-ca', flags.joinCa) }
  const worker = await startSimWorker({
    join: [...flags.join],
    model: flags.model,
    modelFolder: flags.modelFolder ?? simModelFolder,
    engine: engineOptions(flags),
    drainTimeoutMs: flags.drainTimeout * 1000,
    ...(token === undefined ? {} : { token }),
    ...(tls === undefined ? {} : { tls }),
    // Who does not insist on agreement waits until the server changes its mind.
    link: { retriesRefusal: !flags.strictFleet },
    logger,
  })
  // Once every server let it in there is nothing more to learn from `joined`.
  const refused = worker.joined.then(() => new Promise<never>(() => {}))
  try {
    const reason = await Promise.race([shutdown.requested, refused])
    logger.info({ reason, worker_id: worker.record.worker_id }, 'draining')
    await Promise.race([worker.close(), shutdown.insisted])
  } finally {
    worker.destroy()
  }
}

async function serveByHttp(
  flags: WorkerSimFlags,
  port: number,
  shutdown: Shutdown,
  logger: Logger,
): Promise<void> {
  const engine = await engineOf(flags, logger)
  const http = new SimHttpServer(engine, { host: flags.host, port })
  const url = await http.start()
  console.log(flags.json ? JSON.stringify({ event: 'ready', url }) : `The simulated engine serves ${url}`)
  const reason = await shutdown.requested
  logger.info({ reason, url }, 'draining')
  const timeout = setTimeout(() => shutdown.insist(), flags.drainTimeout * 1000)
  await Promise.race([Promise.all([http.close(), engine.close()]), shutdown.insisted])
  clearTimeout(timeout)
  engine.destroy()
  await http.destroy()
}

async function engineOf(flags: WorkerSimFlags, logger: Logger): Promise<SimEngine> {
  const prompt = await loadPromptModel(flags.modelFolder ?? simModelFolder)
  return new SimEngine({ ...engineOptions(flags), model: flags.model, prompt, logger })
}

/** Settings that differ do not mend themselves: supervisors should not start it again and again. */
function isDisagreement(error: unknown): boolean {
  if (error instanceof FleetDisagreementError) return true
  return error instanceof LinkRefusedError && error.setting !== undefined
}

function engineOptions(flags: WorkerSimFlags): Omit<SimEngineOptions, 'model'> {
  return { blocks: flags.kvBlocks, blockSizeTokens: flags.blockSize, timeScale: flags.timeScale }
}
