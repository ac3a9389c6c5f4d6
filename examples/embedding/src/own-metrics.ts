// Metrics of your own from the router's diagnostics channels, in prom-client. Nothing of the router has to be wrapped.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { PickMessage, RequestMessage } from '@infera/router'
import { Counter, Histogram, Registry } from 'prom-client'
import { model, startFleet } from './fleet.js'

const { router, close } = await startFleet(2)

const registry = new Registry()
const registers = [registry]
const picks = new Counter({ name: 'app_picks_total', help: 'Placements', labelNames: ['worker'], registers })
const blocks = new Counter({
  name: 'app_prompt_blocks_total',
  help: 'KV blocks of prompts, by whether the chosen worker held them',
  labelNames: ['cached'],
  registers,
})
const requests = new Counter({
  name: 'app_requests_total',
  help: 'Ended',
  labelNames: ['outcome'],
  registers,
})
const seconds = new Histogram({ name: 'app_request_seconds', help: 'Whole duration', registers })

// All routers of a process speak on the same channels, so each message says whose it is.
const onPick = (message: unknown) => {
  const { router: speaker, placement } = message as PickMessage
  if (speaker !== router) return
  picks.inc({ worker: placement.workerId })
  blocks.inc({ cached: 'yes' }, placement.overlapBlocks)
  blocks.inc({ cached: 'no' }, placement.requestBlocks - placement.overlapBlocks)
}
const onRequest = (message: unknown) => {
  const { router: speaker, outcome, totalMs } = message as RequestMessage
  if (speaker !== router) return
  requests.inc({ outcome })
  seconds.observe(totalMs / 1000)
}
subscribe('infera:router:pick', onPick)
subscribe('infera:router:request', onRequest)

const content =
  'Tell me about the river behind the old stone bridge, and about those who fish in it. '.repeat(4)
for (let round = 1; round <= 3; round++) {
  const body = { model, messages: [{ role: 'user', content }], max_tokens: 8 }
  const answer = await router.dispatch({ path: '/v1/chat/completions', body })
  for await (const _piece of answer.body); // the request runs until its answer has been read
}
for (const name of ['app_picks_total', 'app_prompt_blocks_total', 'app_requests_total']) {
  console.log(await registry.getSingleMetricAsString(name))
}

unsubscribe('infera:router:pick', onPick)
unsubscribe('infera:router:request', onRequest)
await close()
