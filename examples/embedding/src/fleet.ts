// What the examples stand on: a router over simulated workers, all in this process and without a socket between them.
// A real service has a LinkServer or an HttpTransport of @infera/fleet where this file has lines of its own.
import { type Discovery, EmbeddedDiscovery, type RequestTransport, type WorkerRecord } from '@infera/fleet'
import { Router, type RouterOptions } from '@infera/router'
import { loadPromptModel } from '@infera/router/prompt'
import { SimEngine, simModelFolder, simWorkerRecord } from '@infera/sim'
import { InProcessKvEvents } from './fleet/in-process-kv-events.js'

export const model = 'infera-sim'

export interface ExampleOptions extends Pick<RouterOptions, 'policy'> {
  /** Makes a discovery of these workers; by default all of them are registered from the start. */
  readonly discover?: (records: readonly WorkerRecord[]) => Discovery
}

/** Starts a router over workers `worker-1`, `worker-2`, ... Who starts it closes it. */
export async function startFleet(workerCount: number, { discover, ...options }: ExampleOptions = {}) {
  const engines = new Map<string, SimEngine>()
  const records: WorkerRecord[] = []
  const prompt = await loadPromptModel(simModelFolder)
  for (let number = 1; number <= workerCount; number++) {
    const workerId = `worker-${number}`
    const engine = new SimEngine({ model, prompt, timeScale: 0 }) // answers at once
    engines.set(workerId, engine)
    records.push(simWorkerRecord(engine, { workerId }))
  }
  const registry = new EmbeddedDiscovery()
  if (!discover) for (const record of records) await registry.register({ kind: 'worker', record })
  const discovery = discover?.(records) ?? registry

  const transport: RequestTransport = {
    kind: 'link', // the `request_transport` of the workers' records
    async send(worker, request, { signal = new AbortController().signal } = {}) {
      const engine = engines.get(worker.worker_id)
      if (!engine) throw new Error(`no engine is called '${worker.worker_id}'`)
      return engine.handler(request, { signal })
    },
    async close() {},
  }

  const router = new Router({
    ...options,
    discovery,
    transports: [transport],
    kvEvents: [new InProcessKvEvents((worker) => engines.get(worker.worker_id)?.kvEvents)],
    models: [{ name: model, folder: simModelFolder }],
  })
  await router.start()

  const close = async () => {
    await router.close()
    for (const engine of engines.values()) await engine.close()
    await discovery.close()
  }
  return { router, close }
}
