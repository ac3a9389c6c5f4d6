import type { ServerRecord } from '@infera/fleet'

/** The servers of the registry, as far as it has said. */
export class Servers {
  readonly #records = new Map<string, ServerRecord>()
  #onKnown = () => {}
  /** Resolves with the registry's first word. */
  readonly known = new Promise<void>((resolve) => {
    this.#onKnown = resolve
  })
  onChange = () => {}

  get all(): readonly ServerRecord[] {
    return [...this.#records.values()]
  }

  has(id: string): boolean {
    return this.#records.has(id)
  }

  replace(records: readonly ServerRecord[]): void {
    this.#records.clear()
    for (const record of records) this.#records.set(record.server_id, record)
    this.#onKnown()
    this.onChange()
  }

  put(record: ServerRecord): void {
    this.#records.set(record.server_id, record)
    this.onChange()
  }

  remove(id: string): void {
    this.#records.delete(id)
    this.onChange()
  }
}
