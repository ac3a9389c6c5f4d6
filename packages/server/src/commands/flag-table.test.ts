import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { flagsPage } from './flag-table.js'
import { leafCommands, program } from './program.js'

const page = new URL('../../../../docs/environment.md', import.meta.url)

test('docs/environment.md says what the commands say (pnpm docs writes it)', () => {
  expect(readFileSync(page, 'utf8')).toBe(flagsPage(leafCommands(program())))
})

test('every flag has a variable of its own, those of Infera 0.1 under its names', () => {
  const theirs = {
    server: {
      '--k8s-label-selector': 'INFERA_K8S_LABEL_SELECTOR',
      '--router-backend': 'INFERA_ROUTER_BACKEND',
      '--router-mode': 'INFERA_ROUTER_MODE',
      '--nats-server': 'NATS_SERVER',
      '--nats-req-idle-timeout': 'INFERA_NATS_REQ_IDLE_TIMEOUT',
      '--nats-req-max-duration': 'INFERA_NATS_REQ_MAX_DURATION',
      '--nats-req-max-pending': 'INFERA_NATS_REQ_MAX_PENDING',
      '--enable-profiling': 'INFERA_ENABLE_PROFILING',
      '--enable-scaling-api': 'INFERA_ENABLE_SCALING_API',
      '--request-max-retries': 'INFERA_REQUEST_MAX_RETRIES',
      '--migration-limit': 'INFERA_MIGRATION_LIMIT',
      '--breaker-failure-threshold': 'INFERA_BREAKER_FAILURE_THRESHOLD',
      '--breaker-cooldown-s': 'INFERA_BREAKER_COOLDOWN_S',
      '--breaker-max-cooldown-s': 'INFERA_BREAKER_MAX_COOLDOWN_S',
    },
    sim: {
      '--k8s-namespace': 'POD_NAMESPACE',
      '--nats-req-idle-timeout': 'INFERA_NATS_REQ_IDLE_TIMEOUT',
      '--nats-req-max-duration': 'INFERA_NATS_REQ_MAX_DURATION',
      '--nats-req-max-pending': 'INFERA_NATS_REQ_MAX_PENDING',
      '--drain-timeout': 'INFERA_DRAIN_TIMEOUT',
      '--nats-server': 'NATS_SERVER',
      '--infera-kvd-socket': 'INFERA_KVD_SOCKET',
    },
    up: { '--request-max-retries': 'INFERA_REQUEST_MAX_RETRIES' },
  }
  for (const command of leafCommands(program())) {
    const variables = new Map(command.options.map((option) => [option.long, option.envVar]))
    variables.delete('--json')
    expect([...variables.values()]).not.toContain(undefined)
    expect(new Set(variables.values()).size).toBe(variables.size)
    expect(Object.fromEntries(variables)).toMatchObject(theirs[command.name() as keyof typeof theirs])
  }
})

test('every flag of Infera 0.1 is taken under its name', () => {
  const named = (name: string) =>
    leafCommands(program())
      .find((command) => command.name() === name)
      ?.options.map(({ long }) => long)
  expect(named('server')).toEqual(
    expect.arrayContaining([
      ...['--host', '--port', '--discovery-backend', '--etcd-endpoint', '--etcd-prefix'],
      ...[
        '--k8s-label-selector',
        '--k8s-namespace',
        '--request-transport',
        '--router-backend',
        '--router-mode',
      ],
      ...['--router-policy', '--router-tokenizer-path', '--kv-event-transport', '--nats-server'],
      ...['--nats-req-idle-timeout', '--nats-req-max-duration', '--nats-req-max-pending'],
      ...['--kv-overlap-weight', '--kv-prefill-overlap-weight', '--kv-decode-overlap-weight'],
      ...['--kvd-socket-path', '--enable-profiling', '--enable-scaling-api', '--request-max-retries'],
      ...[
        '--migration-limit',
        '--breaker-failure-threshold',
        '--breaker-cooldown-s',
        '--breaker-max-cooldown-s',
      ],
    ]),
  )
  expect(named('sim')).toEqual(
    expect.arrayContaining([
      ...[
        '--discovery-backend',
        '--etcd-endpoint',
        '--etcd-prefix',
        '--k8s-namespace',
        '--request-transport',
      ],
      ...['--nats-req-idle-timeout', '--nats-req-max-duration', '--nats-req-max-pending', '--drain-timeout'],
      ...['--advertise-host', '--no-enable-kv-events', '--disaggregation-allow-tcp', '--kv-events'],
      ...['--index-block-size', '--kv-event-transport', '--nats-server', '--kv-events-bind'],
      ...['--kv-events-advertise', '--kv-snapshot-host', '--kv-snapshot-port', '--kv-snapshot-advertise'],
      '--infera-kvd-socket',
    ]),
  )
})
