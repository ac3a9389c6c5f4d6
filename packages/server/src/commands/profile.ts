import type { Command } from 'commander'

/** What flags default to under `--profile infera`: what Infera 0.1 does when nothing is said. */
const inferaDefaults: Readonly<Record<string, unknown>> = {
  host: '0.0.0.0',
  discoveryBackend: 'kubernetes',
  requestTransport: 'nats',
  kvEventTransport: 'nats',
  requestMaxRetries: 1,
  routerDefaultRetention: 'long',
}

/** Puts the defaults of the profile in the place of our own; whatever was said, wherever, wins. */
export function applyProfile(command: Command): void {
  if (command.getOptionValue('profile') !== 'infera') return
  for (const [name, value] of Object.entries(inferaDefaults)) {
    if (command.getOptionValueSource(name) === 'default')
      command.setOptionValueWithSource(name, value, 'profile')
  }
}
