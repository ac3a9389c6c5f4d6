// pnpm mutations [name ...]: puts one fault after the other into shipped code and shows that the chaos seeds find each of them.
// Ends with 1 when one lives, or when the seeds do not pass without any. The faults are in test/mutations/mutations.json;
// they are put in as the code is loaded, and change no file.
import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { capture, root } from './lib/run.mjs'

const mutations = JSON.parse(readFileSync(join(root, 'test', 'mutations', 'mutations.json'), 'utf8'))
const asked = process.argv.slice(2)
const known = mutations.map(({ name }) => name)
const unknown = asked.filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`no mutation is named ${unknown.join(', ')}; known are ${known.join(', ')}`)
  process.exit(1)
}

const seeds = readdirSync(join(root, 'packages', 'sim', 'test'))
  .filter((file) => /^chaos(-\d+)?\.test\.ts$/.test(file))
  .map((file) => `packages/sim/test/${file}`)

/** @returns {Promise<{ passes: boolean, violation: string | undefined, output: string }>} */
async function runSeeds(mutation) {
  const { code, output } = await capture(
    join(root, 'node_modules', '.bin', 'vitest'),
    ['run', '--project', 'integration', '--bail', '1', '--maxWorkers', '1', ...seeds],
    { env: { ...process.env, INFERA_MUTATION: mutation?.name ?? '', NO_COLOR: '1' } },
  )
  // What an invariant says stands in a line of its own; a mutant that does not even load is not found but broken.
  const [, violation] = /(seed \d+ breaks \d+ invariants:\n.*)/.exec(output) ?? []
  return { passes: code === 0, violation, output }
}

let living = 0
async function examine(mutation) {
  const { passes, violation, output } = await runSeeds(mutation)
  if (!passes && violation) console.log(`found   ${mutation.name}: ${violation}`)
  else {
    living++
    const why = passes ? 'no seed finds it' : `the seeds did not run:\n${output.slice(-2000)}`
    console.log(`LIVES   ${mutation.name} (${mutation.breaks}): ${why}`)
  }
}

const healthy = asked.length > 0 ? { passes: true } : await runSeeds()
if (!healthy.passes) {
  console.log(healthy.output)
  console.log('the seeds do not pass without a mutation')
  process.exit(1)
}
const queue = mutations.filter(({ name }) => asked.length === 0 || asked.includes(name))
const total = queue.length
await Promise.all(
  Array.from({ length: Math.max(1, availableParallelism()) }, async () => {
    for (let next = queue.shift(); next; next = queue.shift()) await examine(next)
  }),
)
console.log(`${total - living} of ${total} mutations found`)
process.exit(living === 0 ? 0 : 1)
