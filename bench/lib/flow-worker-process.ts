import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseWorkerRecord, type WorkerRecord } from '@infera/fleet'

export interface FlowWorkerUsage {
  /** Heap and buffers; after a collection when `held` was asked for. */
  readonly heldBytes: number
  readonly rssBytes: number
  readonly cpuUs: number
}

export type FlowWorkerMessage =
  | { readonly type: 'ready'; readonly url: string }
  | { readonly type: 'usage'; readonly usage: FlowWorkerUsage }

export function flowRecord(transport: 'link' | 'http', url: string): WorkerRecord {
  return parseWorkerRecord({
    worker_id: transport === 'link' ? 'flow:1' : new URL(url).host,
    url,
    model_name: 'bench',
    request_transport: transport,
  })
}

/** The worker process of `flow-worker.ts`, as its parent sees it. */
export class FlowWorkerProcess {
  readonly url: string
  readonly #child: ChildProcess

  private constructor(child: ChildProcess, url: string) {
    this.#child = child
    this.url = url
  }

  /** @param join where its link goes */
  static async start(join: string): Promise<FlowWorkerProcess> {
    const file = fileURLToPath(new URL('./flow-worker.ts', import.meta.url))
    const child = fork(file, [join], {
      execArgv: ['-C', '@infera/source', '--expose-gc', '--import', 'tsx'],
    })
    const [message] = (await once(child, 'message')) as [FlowWorkerMessage]
    if (message.type !== 'ready') throw new Error('the worker process did not start')
    return new FlowWorkerProcess(child, message.url)
  }

  async usage(what: 'cpu' | 'held'): Promise<FlowWorkerUsage> {
    const answered = once(this.#child, 'message') as Promise<[FlowWorkerMessage]>
    this.#child.send(what)
    const [message] = await answered
    if (message.type !== 'usage') throw new Error('the worker process did not tell its usage')
    return message.usage
  }

  async close(): Promise<void> {
    const exited = once(this.#child, 'exit')
    this.#child.disconnect()
    await exited
  }
}
