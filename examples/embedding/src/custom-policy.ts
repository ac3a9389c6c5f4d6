// A routing policy of your own: a conversation stays on one worker, everything else goes where least is running.
import { createHash } from 'node:crypto'
import type { RoutingPolicy } from '@infera/router'
import { model, startFleet } from './fleet.js'

/**
 * Rendezvous hashing: each worker draws a number for the session and the highest wins. Nothing has to be remembered,
 * several routers agree, and a worker that leaves moves only its own sessions.
 */
const draw = (session: string, worker: string) =>
  createHash('sha256').update(`${session}\n${worker}`).digest().readUInt32BE()

const sticky: RoutingPolicy = {
  name: 'sticky-sessions',
  usesCache: false, // prompts need not be tokenized for it
  choose({ candidates, hints: { sessionId } }) {
    const scores = candidates.map(({ target, requestsInFlight }) =>
      sessionId === null ? -requestsInFlight : draw(sessionId, target.routeKey),
    )
    return { index: scores.indexOf(Math.max(...scores)) }
  },
}

const { router, close } = await startFleet(3, { policy: sticky })

/** @returns the worker that answered */
async function ask(content: string, session?: string): Promise<string | undefined> {
  const messages = [{ role: 'user', content }]
  const { body, placements } = await router.dispatch({
    path: '/v1/chat/completions',
    body: { model, messages, max_tokens: 4, ...(session ? { prompt_cache_key: session } : {}) },
  })
  for await (const _piece of body); // the request runs until its answer has been read
  return placements.at(-1)?.workerId
}

for (const session of ['a', 'red', 'green']) {
  const workers = [await ask('Hello', session), await ask('And then?', session), await ask('Thanks', session)]
  console.log(`session ${session}: ${workers.join(' ')}`)
}
const together = await Promise.all(['One', 'Two', 'Three'].map((content) => ask(content)))
console.log(`no session, all at once: ${together.join(' ')}`)

await close()
