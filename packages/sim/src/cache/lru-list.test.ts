import fc from 'fast-check'
import { expect, test } from 'vitest'
import { LruList } from './lru-list.js'

test('the list behaves like an array that blocks are appended to and removed from', () => {
  const operation = fc.record({ block: fc.nat(7), isAppended: fc.boolean() })
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
      const list = new LruList(8)
      let model: number[] = []
      for (const { block, isAppended } of operations) {
        if (isAppended && !model.includes(block)) {
          list.append(block)
          model.push(block)
        } else {
          list.remove(block)
          model = model.filter((other) => other !== block)
        }
        expect(list.oldest).toBe(model[0])
        expect(list.size).toBe(model.length)
        expect(list.has(block)).toBe(model.includes(block))
      }
    }),
  )
})
