import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { KubeObject } from '../support/kube-api/index.js'
import { jsonPatch, mergePatch, strategicPatch } from '../support/kube-api/patches.js'
import { fieldMatcher, labelMatcher } from '../support/kube-api/selectors.js'

const podWith = (labels: Record<string, string>): KubeObject => ({
  metadata: { name: 'p', namespace: 'ns', labels },
  status: { phase: 'Running' },
})

test.each([
  ['', {}, true],
  ['a=b', { a: 'b' }, true],
  ['a==b', { a: 'c' }, false],
  ['a=b,c=d', { a: 'b', c: 'd' }, true],
  ['a=b,c=d', { a: 'b' }, false],
  ['a!=b', {}, true],
  ['a!=b', { a: 'b' }, false],
  ['a', { a: '' }, true],
  ['a', {}, false],
  ['!a', {}, true],
  ['!a', { a: 'b' }, false],
  ['a in (b,c),d', { a: 'c', d: 'e' }, true],
  ['a in (b, c)', { a: 'd' }, false],
  ['a in (b)', {}, false],
  ['a notin (b)', {}, true],
  ['a notin (b,c)', { a: 'c' }, false],
  ['infera.amd.com/deployment=x-1', { 'infera.amd.com/deployment': 'x-1' }, true],
])('the label selector "%s" on %j is %s', (selector, labels, expected) => {
  expect(labelMatcher(selector)(podWith(labels as Record<string, string>))).toBe(expected)
})

test.each([
  ['metadata.name=p', true],
  ['metadata.name!=p', false],
  ['metadata.namespace=ns,status.phase=Running', true],
  ['spec.nodeName=', true],
])('the field selector "%s" is %s', (selector, expected) => {
  expect(fieldMatcher(selector)(podWith({}))).toBe(expected)
})

test('selectors that are none are refused', () => {
  for (const selector of ['a in b', '=b', 'a b'])
    expect(() => labelMatcher(selector)).toThrow(/unable to parse/)
  expect(() => fieldMatcher('spec.image=x')).toThrow(/not supported/)
})

// The examples of RFC 7396, appendix A, that tell cases apart.
test.each([
  [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
  [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
  [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
  [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
  [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
  [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [[1, 2], { a: 'b', c: null }, { a: 'b' }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
])('merging into %j the patch %j gives %j', (target, patch, expected) => {
  expect(mergePatch(target, patch)).toEqual(expected)
})

test.each([
  [{ a: [1, 2] }, [{ op: 'add', path: '/a/1', value: 3 }], { a: [1, 3, 2] }],
  [{ a: [1] }, [{ op: 'add', path: '/a/-', value: 2 }], { a: [1, 2] }],
  [{ a: 1, b: 2 }, [{ op: 'remove', path: '/a' }], { b: 2 }],
  [{ a: 1 }, [{ op: 'replace', path: '/a', value: 2 }], { a: 2 }],
  [{ a: { b: 1 } }, [{ op: 'move', from: '/a/b', path: '/c' }], { a: {}, c: 1 }],
  [{ a: [1] }, [{ op: 'copy', from: '/a', path: '/b' }], { a: [1], b: [1] }],
  [{ 'x/y~': 1 }, [{ op: 'remove', path: '/x~1y~0' }], {}],
  [{ a: 1 }, [{ op: 'test', path: '/a', value: 1 }], { a: 1 }],
])('operations on %j: %j give %j', (target, operations, expected) => {
  expect(jsonPatch(target, operations)).toEqual(expected)
})

test('an operation that does not apply refuses the whole patch and changes nothing', () => {
  const target = { a: [1], b: 2 }
  for (const last of [
    { op: 'remove', path: '/none' },
    { op: 'replace', path: '/a/5', value: 1 },
    { op: 'test', path: '/b', value: 3 },
    { op: 'add', path: '/b/c', value: 3 },
  ]) {
    expect(() => jsonPatch(target, [{ op: 'remove', path: '/a/0' }, last])).toThrow(/rejected/)
  }
  expect(target).toEqual({ a: [1], b: 2 })
})

test('lists with a key are merged by it, others are replaced, and directives are followed', () => {
  const target = { containers: [{ name: 'a', args: ['x'] }, { name: 'b' }], finalizers: ['f'] }
  const patch = {
    containers: [{ name: 'b', $patch: 'delete' }, { name: 'a', args: ['y'] }, { name: 'c' }],
    '$setElementOrder/containers': [{ name: 'a' }],
    finalizers: ['g'],
  }
  expect(strategicPatch(target, patch)).toEqual({
    containers: [{ name: 'a', args: ['y'] }, { name: 'c' }],
    finalizers: ['g'],
  })
  expect(strategicPatch({ m: { a: 1 } }, { m: { $patch: 'replace', b: 2 } })).toEqual({ m: { b: 2 } })
})

test('a patch merged twice is as good as once, and its target is not touched', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.jsonValue(), (target, patch) => {
      const before = JSON.stringify(target)
      const once = mergePatch(target, patch)
      expect(mergePatch(once, patch)).toEqual(once)
      expect(JSON.stringify(target)).toBe(before)
    }),
  )
})
