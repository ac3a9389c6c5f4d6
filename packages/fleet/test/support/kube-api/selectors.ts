import { badRequest, type KubeObject } from './objects.js'

export type Matcher = (object: KubeObject) => boolean

/**
 * A label selector: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, joined by commas.
 * @throws StatusError 400
 */
export function labelMatcher(selector: string): Matcher {
  const terms = splitTerms(selector).map(labelTerm)
  return (object) => terms.every((matches) => matches(object.metadata.labels ?? {}))
}

/**
 * A field selector over the fields that Kubernetes indexes for Pods.
 * @throws StatusError 400
 */
export function fieldMatcher(selector: string): Matcher {
  const terms = splitTerms(selector).map((term) => {
    const match = /^([\w.]+)(!=|==|=)(.*)$/.exec(term)
    const path = match?.[1] ?? ''
    if (!match || !/^(metadata\.(name|namespace)|status\.(phase|podIP)|spec\.nodeName)$/.test(path)) {
      throw badRequest(`field label not supported: ${term}`)
    }
    const isWanted = match[2] !== '!='
    return (object: KubeObject) => (fieldOf(object, path) === match[3]) === isWanted
  })
  return (object) => terms.every((matches) => matches(object))
}

function fieldOf(object: KubeObject, path: string): string {
  let value: unknown = object
  for (const name of path.split('.')) value = (value as Record<string, unknown> | undefined)?.[name]
  return typeof value === 'string' ? value : ''
}

/** Splits at commas outside of parentheses. */
function splitTerms(selector: string): string[] {
  return selector
    .split(/,(?![^(]*\))/)
    .map((term) => term.trim())
    .filter((term) => term !== '')
}

function labelTerm(term: string): (labels: Readonly<Record<string, string>>) => boolean {
  const among = /^(\S+)\s+(in|notin)\s*\(([^()]*)\)$/.exec(term)
  if (among) {
    const key = among[1] ?? ''
    const values = (among[3] ?? '').split(',').map((value) => value.trim())
    const isWanted = among[2] === 'in'
    // `notin` also takes objects without the label.
    return (labels) => values.includes(labels[key] ?? '\0') === isWanted
  }
  const equal = /^([^\s!=]+)\s*(!=|==|=)\s*([^\s!=]*)$/.exec(term)
  if (equal) {
    const isWanted = equal[2] !== '!='
    return (labels) => (labels[equal[1] ?? ''] === equal[3]) === isWanted
  }
  const present = /^(!?)\s*([^\s!=()]+)$/.exec(term)
  if (!present) throw badRequest(`unable to parse requirement: ${term}`)
  return (labels) => (labels[present[2] ?? ''] !== undefined) === (present[1] === '')
}
