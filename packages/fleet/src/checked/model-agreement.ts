import type { WorkerRecord } from '../records/worker-record.js'
import { describeDifference, type SettingDifference } from '../settings.js'
import type { WorkerProblem } from './worker-problem.js'

interface ModelFacts {
  readonly members: Set<string>
  canary: readonly number[] | undefined
  /** The protocol of the first prefill or decode worker. */
  pdProtocol: string | undefined
}

/** Ids of a canary that a message repeats: it stays short, whatever a worker says. */
const shownIdsMax = 16

/**
 * What the workers of one model have to agree on among themselves: the first that says something sets it, and it holds until the
 * last worker of the model is gone.
 */
export class ModelAgreement {
  readonly #models = new Map<string, ModelFacts>()

  /** Why that worker may not come in beside those that are there; undefined when it may. */
  objection(record: WorkerRecord): string | undefined {
    const known = this.#models.get(record.model_name)?.canary
    const canary = record.kv?.tokenizer_canary ?? []
    if (known === undefined || canary.length === 0) return undefined
    const at = known.findIndex((id, index) => id !== canary[index])
    if (at < 0 && canary.length === known.length) return undefined
    const shown = (ids: readonly number[]) =>
      `[${ids.slice(0, shownIdsMax).join(', ')}${ids.length > shownIdsMax ? ', ...' : ''}]`
    return (
      `its tokenizer is not that of the other workers of model '${record.model_name}': it makes ${shown(canary)} of the canary ` +
      `text, they ${shown(known)}; give all of them the same tokenizer, or this one another model name`
    )
  }

  add(record: WorkerRecord): void {
    const facts = this.#models.get(record.model_name) ?? {
      members: new Set(),
      canary: undefined,
      pdProtocol: undefined,
    }
    this.#models.set(record.model_name, facts)
    facts.members.add(record.worker_id)
    const canary = record.kv?.tokenizer_canary ?? []
    if (canary.length > 0) facts.canary ??= canary
    facts.pdProtocol ??= pdProtocolOf(record)
  }

  /** @returns whether its model is forgotten with it, so that those who were turned away may come in */
  remove(record: WorkerRecord): boolean {
    const facts = this.#models.get(record.model_name)
    if (!facts?.members.delete(record.worker_id) || facts.members.size > 0) return false
    return this.#models.delete(record.model_name)
  }

  /** What its peers see of a worker that is in. */
  problems(record: WorkerRecord): WorkerProblem[] {
    const known = this.#models.get(record.model_name)?.pdProtocol
    const protocol = pdProtocolOf(record)
    if (known === undefined || protocol === undefined || known === protocol) return []
    const difference: SettingDifference = {
      ...{ name: 'pd_protocol', server: known, worker: protocol },
      effect: 'degraded',
    }
    const message = `among the workers of model '${record.model_name}' ${describeDifference(difference).replace('the server has', 'the first has').replace('the worker', 'this one')}`
    return [{ code: 'pd_protocol', message, effect: 'degraded' }]
  }
}

function pdProtocolOf(record: WorkerRecord): string | undefined {
  const { protocol } = record.disagg_meta
  return record.disagg_mode !== 'mixed' && typeof protocol === 'string' ? protocol : undefined
}
