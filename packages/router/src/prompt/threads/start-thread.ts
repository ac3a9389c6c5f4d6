import { Worker } from 'node:worker_threads'
import type { ThreadData } from './thread-messages.js'

const name = 'infera-prompts'

/** Starts a thread that tokenizes. */
export function startThread(workerData: ThreadData): Worker {
  // As built, this module is part of a file in dist/, and so is the entry.
  if (!import.meta.url.endsWith('.ts'))
    return new Worker(new URL('./prompt-thread.js', import.meta.url), { name, workerData })
  // From source: Node 20 gives threads no loader by itself, whatever the process was started with.
  const api = import.meta.resolve('tsx/esm/api')
  const entry = new URL('./prompt-thread.ts', import.meta.url).href
  const source = `import(${JSON.stringify(api)}).then(({ register }) => { register(); return import(${JSON.stringify(entry)}) })`
  return new Worker(source, { eval: true, name, workerData, execArgv: ['-C', '@infera/source'] })
}
