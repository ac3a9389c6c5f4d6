import type { Etcd3, ITxnRequest } from 'etcd3'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { RecordKey } from './record-key.js'

interface Stored {
  readonly value: Buffer
  readonly lease: string
  readonly mod_revision: string
}

/** One key of etcd, with a wire on which requests and answers may be lost, and requests arrive late. */
class FakeEtcd {
  stored: Stored | undefined
  #revision = 10
  /** What becomes of the next transactions; then all goes well. */
  readonly fates: ('lostRequest' | 'lostAnswer' | 'late')[] = []
  readonly #late: ITxnRequest[] = []

  get kv() {
    return {
      range: async () => ({ kvs: this.stored ? [this.stored] : [] }),
      txn: async (request: ITxnRequest) => {
        const fate = this.fates.shift()
        if (fate === 'late') this.#late.push(request)
        if (fate === 'late' || fate === 'lostRequest') throw new Error('no answer')
        const answer = this.#apply(request)
        if (fate === 'lostAnswer') throw new Error('no answer')
        return answer
      },
    }
  }

  get text(): string | undefined {
    return this.stored?.value.toString()
  }

  remove(): void {
    this.#revision += 1
    this.stored = undefined
  }

  arriveLate(): void {
    for (const request of this.#late.splice(0)) this.#apply(request)
  }

  #apply({ compare, success }: ITxnRequest) {
    const succeeded = (this.stored?.mod_revision ?? '0') === String(compare?.[0]?.mod_revision)
    const put = success?.[0]?.request_put
    if (succeeded && put) {
      this.#revision += 1
      const { value, lease } = put as { value: Buffer; lease: string }
      this.stored = { value, lease, mod_revision: String(this.#revision) }
    }
    const kvs = this.stored ? [this.stored] : []
    return {
      header: { revision: String(this.#revision) },
      succeeded,
      responses: [{ response_range: { kvs } }],
    }
  }
}

function start() {
  const etcd = new FakeEtcd()
  const owner = () => new RecordKey({ client: () => etcd as unknown as Etcd3, key: Buffer.from('/w/a:1') })
  return { etcd, owner }
}
const text = (value: string) => Buffer.from(value)

test('the first write takes the key over, and the earlier owner gives way', async () => {
  const { etcd, owner } = start()
  const [first, second] = [owner(), owner()]
  expect(await first.put(text('one'), '1')).toBe(true)
  expect(await second.put(text('two'), '2')).toBe(true)
  expect(await first.holds(text('one'), '1')).toBe(false)
  expect(await first.put(text('more'), '1')).toBe(false)
  expect(etcd.text).toBe('two')
  expect(await second.holds(text('two'), '2')).toBe(true)
})

test('a key that is gone is put again', async () => {
  const { etcd, owner } = start()
  const key = owner()
  await key.put(text('one'), '1')
  etcd.remove()
  expect(await key.holds(text('one'), '1')).toBe(false)
  expect(await key.put(text('one'), '2')).toBe(true)
  expect(etcd.stored?.lease).toBe('2')
})

test('a key that still stands under our lost lease is ours, however often the next write failed', async () => {
  const { etcd, owner } = start()
  const key = owner()
  await key.put(text('one'), '1')
  etcd.fates.push('lostRequest', 'lostAnswer')
  await expect(key.put(text('one'), '2')).rejects.toThrow('no answer')
  await expect(key.put(text('one'), '3')).rejects.toThrow('no answer')
  expect(await key.put(text('one'), '4')).toBe(true)
  expect(etcd.stored?.lease).toBe('4')
})

test('a write that was given up and arrives late changes nothing', async () => {
  const { etcd, owner } = start()
  const key = owner()
  await key.put(text('one'), '1')
  etcd.fates.push('late')
  await expect(key.put(text('draining'), '1')).rejects.toThrow('no answer')
  expect(await key.put(text('two'), '1')).toBe(true)
  etcd.arriveLate()
  expect(etcd.text).toBe('two')
})

test('nor does one of an owner whose key was taken over meanwhile', async () => {
  const { etcd, owner } = start()
  const [first, second] = [owner(), owner()]
  etcd.fates.push('late')
  await expect(first.put(text('one'), '1')).rejects.toThrow('no answer')
  expect(await second.put(text('two'), '2')).toBe(true)
  etcd.arriveLate()
  expect(etcd.text).toBe('two')
})

test('whatever is lost or late, an owner that was told yes has its last record there, until another one came', async () => {
  const fate = fc.constantFrom('lostRequest' as const, 'lostAnswer' as const, 'late' as const)
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.record({ put: fc.nat(2), newLease: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ fate }) },
    { weight: 1, arbitrary: fc.constant({ late: true }) },
    { weight: 1, arbitrary: fc.constant({ gone: true }) },
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const { etcd, owner } = start()
      const owners = [owner(), owner(), owner()]
      const isOut = [false, false, false]
      const leases = ['0.0', '1.0', '2.0']
      let holder: { index: number; value: string } | undefined
      for (const [at, each] of steps.entries()) {
        if ('fate' in each) etcd.fates.push(each.fate)
        else if ('gone' in each) {
          etcd.remove()
          holder = undefined
        } else if ('late' in each) {
          const before = etcd.text
          etcd.arriveLate()
          // A late one may come where nothing else has since; then it is the present one's own, or the first.
          if (holder && holder.value === before && etcd.text !== before) holder = undefined
        } else {
          const { put: index } = each
          if (isOut[index]) continue
          if (each.newLease) leases[index] = `${index}.${at}`
          const value = `${index} ${at}`
          try {
            const isHeld = await owners[index]?.put(text(value), leases[index] as string)
            if (isHeld) holder = { index, value }
            else {
              isOut[index] = true
              // Only somebody else's key makes an owner give way.
              expect(etcd.stored?.lease.startsWith(`${index}.`)).toBe(false)
            }
          } catch {
            // Not answered: it may stand, or not.
            holder = undefined
          }
        }
        if (holder) expect(etcd.text).toBe(holder.value)
      }
    }),
  )
})
