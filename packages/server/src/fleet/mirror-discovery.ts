import type { Discovery, FleetEntry, Registration } from '@infera/fleet'

/** Copies the workers of one registry into another for as long as the signal allows; takes them away at the end. */
export async function mirrorDiscovery(
  source: Discovery,
  target: Discovery,
  { signal }: { signal: AbortSignal },
): Promise<void> {
  const copies = new Map<string, Registration>()
  const put = async (entry: FleetEntry) => {
    if (entry.kind !== 'worker') return
    const copy = copies.get(entry.record.worker_id)
    if (copy) await copy.update(entry.record)
    else copies.set(entry.record.worker_id, await target.register(entry))
  }
  const remove = async (id: string) => {
    await copies.get(id)?.deregister()
    copies.delete(id)
  }
  try {
    for await (const change of source.watch({ signal })) {
      if (change.type === 'entryPut') await put(change.entry)
      else if (change.type === 'entryRemoved') await remove(change.id)
      else {
        const named = new Set(change.entries.map((entry) => idOf(entry)))
        for (const id of [...copies.keys()]) if (!named.has(id)) await remove(id)
        for (const entry of change.entries) await put(entry)
      }
    }
  } finally {
    for (const id of [...copies.keys()]) await remove(id)
    await source.close()
  }
}

function idOf(entry: FleetEntry): string {
  return entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
}
