import { capture } from './run.mjs'

/**
 * Installs Debian packages that tests use, where we may. Without root, or without apt, nothing happens but a printed
 * reason; the tests that need them skip themselves with the same reason.
 */
export async function aptInstall(packages) {
  const missing = []
  for (const name of packages) {
    const { code, output } = await capture('dpkg-query', ['--status', name])
    if (code !== 0 || !output.includes('install ok installed')) missing.push(name)
  }
  if (missing.length === 0) return
  if (process.getuid?.() !== 0) {
    console.log(`skipping what needs ${missing.join(', ')}: not root, so apt-get install is not possible`)
    return
  }
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const install = () => capture('apt-get', ['install', '-y', '--no-install-recommends', ...missing], { env })
  let result = await install()
  if (result.code !== 0) {
    await capture('apt-get', ['update'], { env })
    result = await install()
  }
  if (result.code !== 0)
    console.log(`skipping what needs ${missing.join(', ')}: apt-get install failed\n${result.output}`)
}
