import { hostname } from 'node:os'
import { type Logger, systemClock, systemRandom } from '@infera/fleet'
import { type SimEngine, SimHttpServer, simWorkerRecord, simWorkerSettings } from '@infera/sim'
import { EngineWorker, type EngineWorkerOptions, type WorkerPlane } from '@infera/worker'
import { ServerError } from '../errors.js'
import { openRegistry, type RegistryBackend } from '../fleet/discovery-backend.js'
import { importBackend, natsPackages } from '../fleet/import-backend.js'
import { discoveryOf, natsOf } from './fleet-flags.js'
import type { Shutdown } from './shutdown.js'
import type { WorkerSimFlags } from './worker-sim-command.js'

/** A worker that is announced in a registry, until a signal, or until it must not go on. */
export async function serveByRegistry(
  flags: WorkerSimFlags,
  engine: SimEngine,
  shutdown: Shutdown,
  logger: Logger,
): Promise<void> {
  const backend = discoveryOf(flags) as RegistryBackend
  if (flags.requestTransport === 'link') {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      `--discovery-backend ${flags.discoveryBackend} needs --request-transport http or nats; link is joined with --join`,
    )
  }
  const ports = { logger, clock: systemClock, random: systemRandom }
  const http = new SimHttpServer(engine, { host: flags.host, port: flags.port ?? 0 })
  const url = new URL(await http.start())
  const host = bracketed(advertisedHost(flags))
  const workerId = `${host}:${url.port}`
  const discovery = await openRegistry(backend, ports)
  const options: EngineWorkerOptions = {
    record: simWorkerRecord(engine, { workerId, url: `http://${workerId}` }),
    discovery,
    settings: {
      ...simWorkerSettings(engine),
      ...(flags.enableKvEvents ? { kv_event_transport: flags.kvEventTransport } : {}),
    },
    planes: await planesOf(flags, engine, workerId, host, logger),
    strictFleet: flags.strictFleet,
    drainTimeoutMs: flags.drainTimeout * 1000,
    runningRequests: () => engine.load().runningRequests + engine.load().waitingRequests,
    logger,
  }
  const worker = new EngineWorker(options)
  try {
    const started = worker.start().then(() => {
      if (flags.json)
        console.log(JSON.stringify({ event: 'ready', url: `http://${workerId}`, worker_id: workerId }))
      else console.log(`The simulated engine serves ${url.origin} and is announced as ${workerId}`)
      return new Promise<never>(() => {})
    })
    const reason = await Promise.race([shutdown.requested, started, worker.ended])
    logger.info({ reason, worker_id: workerId }, 'draining')
    // Servers that were not told send on: they find the port closed after that, and what runs ends.
    const left = worker.close().then(() => Promise.all([http.close(), engine.close()]))
    await Promise.race([left, shutdown.insisted])
  } finally {
    await worker.destroy()
    await discovery.close()
    engine.destroy()
    await http.destroy()
  }
}

async function planesOf(
  flags: WorkerSimFlags,
  engine: SimEngine,
  workerId: string,
  host: string,
  logger: Logger,
): Promise<WorkerPlane[]> {
  const planes: WorkerPlane[] = []
  const loadNats = (flag: string) => importBackend(flag, natsPackages, () => import('@infera/worker/nats'))
  if (flags.requestTransport === 'nats') {
    const { natsRequestPlane } = await loadNats('--request-transport nats')
    planes.push(natsRequestPlane({ ...natsOf(flags), workerId, handler: engine.handler, logger }))
  }
  if (!flags.enableKvEvents) return planes
  if (flags.kvEventTransport === 'nats') {
    const { natsKvEventPlane, kvViewCodec } = await loadNats('--kv-event-transport nats')
    const { instanceId, kvEvents: source } = engine
    const viewCodec = kvViewCodec({
      blockSizeTokens: engine.options.blockSizeTokens,
      ranks: source.ranks,
    })
    planes.push(natsKvEventPlane({ url: flags.natsServer, workerId, source, instanceId, viewCodec, logger }))
  } else if (flags.kvEventTransport === 'zmq') {
    const { zmqKvEventPlane } = await importBackend(
      '--kv-event-transport zmq',
      'zeromq',
      () => import('@infera/worker/zmq'),
    )
    const advertised =
      flags.kvEventsAdvertise === undefined ? host : new URL(flags.kvEventsAdvertise).hostname
    planes.push(
      zmqKvEventPlane({
        source: engine.kvEvents,
        bind: flags.kvEventsBind.replace('//0.0.0.0:', '//*:'),
        advertiseHost: advertised,
        logger,
      }),
    )
  }
  return planes
}

/** By which host servers reach it: what was said, else the Pod's address, else the one that it listens on. */
function advertisedHost({ advertiseHost, discoveryBackend, host }: WorkerSimFlags): string {
  if (advertiseHost !== undefined) return advertiseHost
  const podIp = process.env.POD_IP
  if (discoveryBackend === 'kubernetes' && podIp) return podIp
  return host === '0.0.0.0' || host === '::' ? hostname() : host
}

function bracketed(host: string): string {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host
}
