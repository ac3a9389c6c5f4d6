import { createLogger } from '../logging.js'
import { Fleet } from '../up/fleet.js'
import { type ServerFlags, serverOptions } from './server-flags.js'
import { watchShutdown } from './shutdown.js'

export interface UpFlags extends ServerFlags {
  readonly workers: number
  readonly timeScale: number
  readonly kvBlocks: number
  readonly json: boolean
}

/** `infera up`: a server and its simulated workers, one process tree; ready only once every worker is registered. */
export async function runUp(flags: UpFlags): Promise<void> {
  // Whoever only wants to try the thing should not have to read log lines first.
  const logger = createLogger(flags.logLevel === 'info' ? 'warn' : flags.logLevel)
  const shutdown = watchShutdown()
  const fleet = new Fleet(
    {
      server: serverOptions(flags, logger),
      workers: flags.workers,
      worker: {
        timeScale: flags.timeScale,
        kvBlocks: flags.kvBlocks,
        drainTimeoutMs: flags.shutdownGrace,
        ...(flags.joinTokenFile === undefined ? {} : { joinTokenFile: flags.joinTokenFile }),
      },
    },
    { logger },
  )
  try {
    const started = await Promise.race([fleet.start(), shutdown.requested.then(() => undefined)])
    if (started === undefined) return
    if (flags.json) console.log(JSON.stringify({ event: 'ready', ...started }))
    else console.log(banner(started.url, started.model, started.workers))
    await shutdown.requested
  } finally {
    await Promise.race([fleet.close(), shutdown.insisted.then(() => fleet.destroy())])
  }
}

function banner(url: string, model: string, workers: number): string {
  return `Infera is up: ${workers} simulated workers behind ${url}

Try it:
  curl ${url}/v1/chat/completions${url.startsWith('https:') ? ' --cacert <file>' : ''} -H 'content-type: application/json' \\
    -d '{"model": "${model}", "messages": [{"role": "user", "content": "Hello!"}], "stream": true}'

Look around:
  ${url}/v1/workers   the fleet and what the router knows of each cache
  ${url}/v1/models    what can be asked for
  ${url}/metrics      Prometheus series
  ${url}/health       liveness

Ctrl-C ends it.`
}
