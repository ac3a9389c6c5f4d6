import { InferaServer } from '../infera-server.js'
import { createLogger } from '../logging.js'
import { type ServerFlags, serverOptions } from './server-flags.js'
import { watchShutdown } from './shutdown.js'

/** `infera server`: serves until a signal, then lets running requests end. */
export async function runServer(flags: ServerFlags & { json: boolean }): Promise<void> {
  const logger = createLogger(flags.logLevel)
  const server = new InferaServer(serverOptions(flags, logger), { logger })
  const shutdown = watchShutdown()
  const url = await server.start()
  if (flags.json) console.log(JSON.stringify({ event: 'ready', url }))
  else console.log(`Infera serves ${url}\nWorkers join with:  ${joinCommand(url)}`)
  const reason = await shutdown.requested
  logger.info({ reason }, 'shutting down')
  await Promise.race([server.close(), shutdown.insisted.then(() => server.destroy())])
}

function joinCommand(url: string): string {
  const command = `infera worker sim --join ${url.replace(/^http/, 'ws')}`
  return url.startsWith('https:') ? `${command} --join-ca <file of the authority>` : command
}
