import type { Logger } from '@infera/fleet'
import type { Command } from 'commander'
import { InferaServer } from '../infera-server.js'
import { createLogger } from '../logging.js'
import type { FleetFlags } from './fleet-flags.js'
import { warnWithoutEffect } from './reference-flags.js'
import { fleetServerOptions, type ServerFlags } from './server-flags.js'
import { watchShutdown } from './shutdown.js'

export type ServerCommandFlags = ServerFlags & FleetFlags & { readonly json: boolean }

/** `infera server`: serves until a signal, then lets running requests end. */
export async function runServer(flags: ServerCommandFlags, command: Command): Promise<void> {
  const logger = createLogger(flags.logLevel)
  warnWithoutEffect(command, 'server', logger)
  warnOpenDoor(flags, logger)
  const server = new InferaServer(fleetServerOptions(flags, logger), { logger })
  const shutdown = watchShutdown()
  const url = await server.start()
  if (flags.json) console.log(JSON.stringify({ event: 'ready', url }))
  else console.log(`Infera serves ${url}\nWorkers join with:  ${joinCommand(url)}`)
  const reason = await shutdown.requested
  logger.info({ reason }, 'shutting down')
  await Promise.race([server.close(), shutdown.insisted.then(() => server.destroy())])
}

/** Listening wider than this machine is somebody's decision; without a key it should be a conscious one. */
function warnOpenDoor({ host, joinToken, joinTokenFile }: ServerCommandFlags, logger: Logger): void {
  const isEverywhere = host === '0.0.0.0' || host === '::'
  if (!isEverywhere || joinToken !== undefined || joinTokenFile !== undefined) return
  logger.warn(
    { host },
    'listening on every interface without a key: whoever reaches this port can send requests and join workers; give --join-token-file, and a --host that only the right ones reach',
  )
}

function joinCommand(url: string): string {
  const command = `infera worker sim --join ${url.replace(/^http/, 'ws')}`
  return url.startsWith('https:') ? `${command} --join-ca <file of the authority>` : command
}
