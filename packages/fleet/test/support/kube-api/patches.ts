import { isDeepStrictEqual } from 'node:util'
import { badRequest, StatusError } from './objects.js'

type Json = unknown
type JsonObject = Record<string, Json>

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** RFC 7396: null removes, objects merge, anything else replaces. */
export function mergePatch(target: Json, patch: Json): Json {
  if (!isObject(patch)) return patch
  const result: JsonObject = isObject(target) ? { ...target } : {}
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key]
    else result[key] = mergePatch(result[key], value)
  }
  return result
}

/** Lists that a strategic patch merges by a key; all others are replaced as a whole. */
const mergeKeys: Readonly<Record<string, string>> = {
  containers: 'name',
  initContainers: 'name',
  env: 'name',
  volumes: 'name',
  volumeMounts: 'mountPath',
  ports: 'containerPort',
  conditions: 'type',
  ownerReferences: 'uid',
  imagePullSecrets: 'name',
  podIPs: 'ip',
  hostAliases: 'ip',
}

/** The strategic merge of the lists above, with `$patch: delete` and `$patch: replace`. Order lists are left out. */
export function strategicPatch(target: Json, patch: Json): Json {
  if (!isObject(patch)) return patch
  const { $patch: directive, ...fields } = patch
  if (directive === 'replace') return fields
  const result: JsonObject = isObject(target) ? { ...target } : {}
  for (const [key, value] of Object.entries(fields)) {
    if (key.startsWith('$setElementOrder/') || key.startsWith('$retainKeys')) continue
    const mergeKey = mergeKeys[key]
    if (value === null) delete result[key]
    else if (Array.isArray(value) && mergeKey) result[key] = mergeList(result[key], value, mergeKey)
    else result[key] = strategicPatch(result[key], value)
  }
  return result
}

function mergeList(target: Json, patch: readonly Json[], mergeKey: string): Json[] {
  const result: Json[] = Array.isArray(target) ? [...target] : []
  for (const item of patch) {
    if (!isObject(item)) throw badRequest(`list items must be objects with '${mergeKey}'`)
    const at = result.findIndex((known) => isObject(known) && known[mergeKey] === item[mergeKey])
    if (item.$patch === 'delete') {
      if (at >= 0) result.splice(at, 1)
    } else if (at >= 0) result[at] = strategicPatch(result[at], item)
    else result.push(strategicPatch({}, item))
  }
  return result
}

/**
 * RFC 6902, all or nothing.
 * @throws StatusError 422 where an operation does not apply, `test` included
 */
export function jsonPatch(target: Json, operations: Json): Json {
  if (!Array.isArray(operations)) throw badRequest('a JSON patch is a list of operations')
  let document = structuredClone(target)
  for (const operation of operations) {
    if (!isObject(operation)) throw badRequest('an operation of a JSON patch is an object')
    const path = pointer(operation.path)
    if (operation.op === 'add') document = write(document, path, operation.value, 'add')
    else if (operation.op === 'replace') document = write(document, path, operation.value, 'replace')
    else if (operation.op === 'remove') document = write(document, path, undefined, 'remove')
    else if (operation.op === 'copy' || operation.op === 'move') {
      const from = pointer(operation.from)
      const value = structuredClone(read(document, from))
      if (operation.op === 'move') document = write(document, from, undefined, 'remove')
      document = write(document, path, value, 'add')
    } else if (operation.op === 'test') {
      if (!isDeepStrictEqual(read(document, path), operation.value)) throw unusable('testing value failed')
    } else throw badRequest(`unknown operation ${String(operation.op)}`)
  }
  return document
}

const unusable = (message: string) =>
  new StatusError(422, 'Invalid', `the server rejected our request: ${message}`)

function pointer(path: Json): string[] {
  if (typeof path !== 'string' || (path !== '' && !path.startsWith('/'))) throw badRequest('bad JSON pointer')
  const parts = path.split('/').slice(1)
  return parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function read(document: Json, path: readonly string[]): Json {
  let value = document
  for (const part of path) {
    if (Array.isArray(value)) value = value[indexIn(value, part, value.length - 1)]
    else if (isObject(value) && Object.hasOwn(value, part)) value = value[part]
    else throw unusable(`nothing at '${part}'`)
  }
  return value
}

function write(
  document: Json,
  path: readonly string[],
  value: Json,
  how: 'add' | 'replace' | 'remove',
): Json {
  const last = path.at(-1)
  if (last === undefined) return value
  const parent = read(document, path.slice(0, -1))
  if (how !== 'add') read(parent, [last])
  if (Array.isArray(parent)) {
    const at = last === '-' ? parent.length : indexIn(parent, last, parent.length)
    parent.splice(at, how === 'add' ? 0 : 1, ...(how === 'remove' ? [] : [value]))
  } else if (isObject(parent)) {
    if (how === 'remove') delete parent[last]
    else parent[last] = value
  } else throw unusable(`nothing at '${last}'`)
  return document
}

function indexIn(list: readonly Json[], part: string, max: number): number {
  const index = /^(0|[1-9]\d*)$/.test(part) ? Number(part) : -1
  if (index < 0 || index > max) throw unusable(`no index '${part}' in a list of ${list.length}`)
  return index
}
