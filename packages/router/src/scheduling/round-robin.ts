import type { PolicyChoice, PolicyQuestion, RoutingPolicy } from './policy.js'

/** Sets of candidates whose turn is remembered; the one that was used longest ago is forgotten first and starts anew. */
const turnsMax = 256

/** One after the other. Each set of candidates has a turn of its own, so that one model does not advance another's. */
export class RoundRobinPolicy implements RoutingPolicy {
  readonly name = 'round-robin'
  readonly usesCache = false
  readonly #turns = new Map<string, number>()

  choose(question: PolicyQuestion): PolicyChoice {
    return { index: (this.#turns.get(keyOf(question)) ?? 0) % question.candidates.length }
  }

  commit(question: PolicyQuestion, choice: PolicyChoice): void {
    const key = keyOf(question)
    this.#turns.delete(key)
    this.#turns.set(key, choice.index + 1)
    if (this.#turns.size > turnsMax) this.#turns.delete(this.#turns.keys().next().value as string)
  }

  forget(routeKey: string): void {
    for (const key of this.#turns.keys()) {
      if (key.split(separator).includes(routeKey)) this.#turns.delete(key)
    }
  }
}

/** Worker ids are host names and numbers; a control character does not occur in them. */
const separator = '\u0000'

function keyOf({ candidates }: PolicyQuestion): string {
  return candidates.map(({ target }) => target.routeKey).join(separator)
}
