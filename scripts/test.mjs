// npm test: sets up, then lint, types, unit, integration and packaging checks. Last line: `N passed, N failed, N skipped`.
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { aptInstall } from './lib/apt.mjs'
import { root, run } from './lib/run.mjs'
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
      env: { ...process.env, INFERA_TEST_COUNTS: countsFile },
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

mkdirSync(join(root, '.run'), { recursive: true })
if (!(await check('setup', installDependencies))) report()
// The check that the committed prompt vectors are what their script makes needs this; the test says so if it is absent.
await aptInstall(['python3-jinja2'])
await check('lint', () => run(bin('biome'), ['ci', '.']))
await check('types', () => run(bin('tsc'), ['-p', 'tsconfig.json']))
await vitest('unit')
if (await check('build', buildStale)) {
  await vitest('integration')
  await vitest('packaging')
}
report()
