import { simModelFolder, startSimWorker } from '@infera/sim'
import { createLogger, type LogLevel } from '../logging.js'
import { watchShutdown } from './shutdown.js'

export interface WorkerSimFlags {
  readonly join: readonly string[]
  readonly model: string
  readonly modelFolder?: string
  readonly kvBlocks: number
  readonly blockSize: number
  readonly timeScale: number
  readonly drainTimeout: number
  readonly joinToken?: string
  readonly logLevel: LogLevel
}

/** `infera worker sim`: serves until a signal, until its server refuses it, or until the process that started it is gone. */
export async function runWorkerSim(flags: WorkerSimFlags): Promise<void> {
  const logger = createLogger(flags.logLevel)
  // A worker of `infera up` is told by its parent when to stop; the terminal's Ctrl-C reaches it as well and must not overtake that.
  const isSupervised = process.send !== undefined
  const shutdown = watchShutdown({ ignored: isSupervised ? ['SIGINT', 'SIGHUP'] : [] })
  if (isSupervised)
    process.once('disconnect', () => shutdown.request('the process that started this worker is gone'))
  const worker = await startSimWorker({
    join: [...flags.join],
    model: flags.model,
    modelFolder: flags.modelFolder ?? simModelFolder,
    engine: { blocks: flags.kvBlocks, blockSizeTokens: flags.blockSize, timeScale: flags.timeScale },
    drainTimeoutMs: flags.drainTimeout,
    ...(flags.joinToken === undefined ? {} : { token: flags.joinToken }),
    logger,
  })
  const refused = worker.joined.then(
    () => new Promise<never>(() => {}),
    (error: unknown) => Promise.reject(error),
  )
  try {
    const reason = await Promise.race([shutdown.requested, refused])
    logger.info({ reason, worker_id: worker.record.worker_id }, 'draining')
    await Promise.race([worker.close(), shutdown.insisted])
  } finally {
    worker.destroy()
    if (isSupervised && process.connected) process.disconnect()
  }
}
