// npm test: sets up, then lint, types, unit, integration and packaging checks. Last line: `N passed, N failed, N skipped`.
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { aptInstall } from './lib/apt.mjs'
import { capture, root, run } from './lib/run.mjs'
import { buildStale, installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
const total = { passed: 0, failed: 0, skipped: 0 }
const countsFile = join(root, '.run', 'test-counts.json')
const bin = (name) => join(root, 'node_modules', '.bin', name)

function report() {
  console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`)
  process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0)
}

/** One check that is not a vitest run. */
async function check(name, action) {
  console.log(`\n== ${name}`)
  try {
    const code = await action()
    if (code) throw new Error(`ended with ${code}`)
    total.passed++
    return true
  } catch (error) {
    console.error(`${name} failed: ${error.message}`)
    total.failed++
    return false
  }
}

async function vitest(project) {
  console.log(`\n== ${project} tests`)
  rmSync(countsFile, { force: true })
  const reporter = join(root, 'scripts', 'lib', 'count-reporter.mjs')
  const code = await run(
    bin('vitest'),
    ['run', '--project', project, '--reporter', 'default', '--reporter', reporter],
    {
      env: {
        ...process.env,
        INFERA_TEST_COUNTS: countsFile,
        ...(project === 'integration' && {
          INFERA_TEST_CLI: join(root, 'packages', 'server', 'dist', 'cli.js'),
        }),
      },
    },
  )
  if (!existsSync(countsFile)) {
    console.error(`${project}: vitest ended with ${code} before it could count`)
    total.failed++
    return
  }
  const counts = JSON.parse(readFileSync(countsFile, 'utf8'))
  for (const key of Object.keys(total)) total[key] += counts[key]
  if (code !== 0 && counts.failed === 0) total.failed++
}

/** The addon, which the tests that follow use, and the tests of its core, which need no Node. */
async function native() {
  // Not imported before: it looks for packages that the setup installs.
  const { compileAddon } = await import('../packages/native/scripts/compile-addon.mjs')
  let skipped
  await check('native addon', async () => {
    const { isBuilt, reason } = await compileAddon()
    if (!isBuilt) skipped = reason
  })
  if (skipped) {
    console.log(`skipped: the native core and its tests, because ${skipped}; the TypeScript twins serve`)
    total.skipped++
    return
  }
  const make = (...goals) =>
    run('make', ['-C', join(root, 'packages/native/cpp'), '-s', `-j${availableParallelism()}`, ...goals])
  await check('native core', () => make('test'))
  await check('native core under the address and undefined-behaviour sanitizers', () => make('asan'))
  await check('native core under the thread sanitizer', () => make('tsan'))
  if ((await capture('clang++', ['--version'])).code === 0) {
    await check('native decoder and snapshot reader under a fuzzer', () => make('fuzz'))
  } else {
    console.log('skipped: fuzzing of the native core, because there is no clang++')
    total.skipped++
  }
}

mkdirSync(join(root, '.run'), { recursive: true })
if (!(await check('setup', installDependencies))) report()
// python3-jinja2: the check that the committed prompt vectors are what their script makes; the rest: the native core.
await aptInstall(['etcd-server', 'etcd-client', 'nats-server'])
if ((await capture('kubectl', ['version', '--client'])).code !== 0) await aptInstall(['kubernetes-client'])
await aptInstall(['python3-jinja2', 'g++', 'make', 'libxxhash-dev', 'clang', 'libclang-rt-14-dev'])
await check('lint', () => run(bin('biome'), ['ci', '.']))
await check('types', () => run(bin('tsc'), ['-p', 'tsconfig.json']))
await native()
await vitest('unit')
if (await check('build', buildStale)) {
  await vitest('integration')
  // Where no binary fits a machine the twins serve; faults, and invariants that see a wrong cache, must find nothing there, too.
  await check('a seed of chaos on the TypeScript twins', () =>
    run(bin('vitest'), ['run', '--project', 'integration', 'packages/sim/test/chaos.test.ts'], {
      env: { ...process.env, INFERA_NATIVE: 'off', INFERA_CHAOS_SEED: '7' },
    }),
  )
  await vitest('packaging')
}
report()
