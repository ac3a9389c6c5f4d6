import { Worker } from 'node:worker_threads'

/** Starts a TypeScript module in a worker thread, with `step` as its last argument. Node 20 gives workers no loader by itself. */
export function startWorker(moduleUrl: string, step: string, workerData: unknown): Worker {
  const api = import.meta.resolve('tsx/esm/api')
  const source = `import(${JSON.stringify(api)}).then(({ register }) => { register(); return import(${JSON.stringify(moduleUrl)}) })`
  return new Worker(source, { eval: true, argv: [step], workerData })
}
