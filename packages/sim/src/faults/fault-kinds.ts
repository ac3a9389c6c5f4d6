import type { FaultKind } from './fault.js'
import * as answer from './kinds/answer-kinds.js'
import * as discovery from './kinds/discovery-kinds.js'
import * as engine from './kinds/engine-kinds.js'
import * as events from './kinds/event-kinds.js'
import * as line from './kinds/line-kinds.js'
import * as requests from './kinds/request-kinds.js'

/**
 * Every kind of fault there is, those of one port together. A module that exports a kind adds it by being named here. Sorted, because
 * what a seed means must not depend on the order in which a loader lists the exports of a module.
 */
export const faultKinds: readonly FaultKind[] = [engine, answer, line, requests, events, discovery].flatMap(
  (module) => (Object.values(module) as FaultKind[]).sort((a, b) => (a.name < b.name ? -1 : 1)),
)

const byName = new Map(faultKinds.map((kind) => [kind.name, kind]))

export const faultKindNames: readonly string[] = [...byName.keys()]

export function faultKind(name: string): FaultKind | undefined {
  return byName.get(name)
}
