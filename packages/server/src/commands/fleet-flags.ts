import { readFileSync } from 'node:fs'
import { Option } from 'commander'
import { ServerError } from '../errors.js'
import type { DiscoveryBackend } from '../fleet/discovery-backend.js'
import { readPem } from './join-flags.js'
import { collectList, seconds, wholeNumber } from './option-values.js'

/** How a command says where its fleet is found, and how requests and KV events travel; names, variables and units as in Infera 0.1. */
export interface FleetFlags {
  readonly discoveryBackend: 'embedded' | 'etcd' | 'kubernetes'
  readonly etcdEndpoint: readonly string[]
  readonly etcdPrefix: string
  readonly etcdUser?: string
  readonly etcdPasswordFile?: string
  readonly etcdCa?: string
  readonly etcdCert?: string
  readonly etcdKey?: string
  readonly k8sLabelSelector?: string
  readonly k8sNamespace?: string
  readonly requestTransport: 'link' | 'http' | 'nats'
  readonly kvEventTransport: 'link' | 'zmq' | 'nats'
  readonly natsServer: string
  readonly natsReqIdleTimeout: number
  readonly natsReqMaxDuration: number
  readonly natsReqMaxPending: number
}

export function fleetOptions(role: 'server' | 'worker'): readonly Option[] {
  const isServer = role === 'server'
  return [
    new Option(
      '--discovery-backend <name>',
      isServer
        ? 'where workers are found, besides those that join by link'
        : 'where this worker announces itself; embedded: it joins servers by link',
    )
      .choices(['embedded', 'etcd', 'kubernetes'])
      .default('embedded'),
    new Option(
      '--etcd-endpoint <endpoints>',
      'etcd: host, host:port or URL, several with commas between them',
    )
      .argParser(collectList)
      .default([]),
    new Option('--etcd-prefix <prefix>', 'etcd: what the keys of workers begin with').default(
      '/infera/workers/',
    ),
    new Option('--etcd-user <name>', 'etcd: user, where it asks for one'),
    new Option('--etcd-password-file <file>', 'etcd: file that holds the password of that user'),
    new Option('--etcd-ca <file>', 'etcd: PEM file of the authority that signed its certificate'),
    new Option('--etcd-cert <file>', 'etcd: PEM file of our own certificate, where it asks for one'),
    new Option('--etcd-key <file>', 'etcd: PEM file of its key'),
    ...(isServer
      ? [
          new Option(
            '--k8s-label-selector <selector>',
            'kubernetes: which Pods belong to the fleet, as in infera.amd.com/deployment=chat',
          ).env('INFERA_K8S_LABEL_SELECTOR'),
        ]
      : []),
    isServer
      ? new Option('--k8s-namespace <name>', 'kubernetes: namespace of the Pods; default: our own')
      : new Option('--k8s-namespace <name>', 'kubernetes: namespace of our Pod').env('POD_NAMESPACE'),
    new Option(
      '--request-transport <name>',
      isServer
        ? 'how requests reach workers; those behind link and HTTP are reached always'
        : 'how requests reach this worker',
    )
      .choices(['link', 'http', 'nats'])
      .default('link'),
    new Option('--kv-event-transport <name>', 'how KV events come to servers')
      .choices(['link', 'zmq', 'nats'])
      .default('link'),
    new Option(
      '--nats-server <url>',
      'nats: the broker; may hold credentials, better given in the environment',
    )
      .env('NATS_SERVER')
      .default('nats://127.0.0.1:4222'),
    new Option('--nats-req-idle-timeout <s>', 'nats: longest silence of an engine, seconds; 0: none')
      .env('INFERA_NATS_REQ_IDLE_TIMEOUT')
      .argParser(seconds)
      .default(900),
    new Option('--nats-req-max-duration <s>', 'nats: longest life of a request, seconds; 0: none')
      .env('INFERA_NATS_REQ_MAX_DURATION')
      .argParser(seconds)
      .default(0),
    new Option(
      '--nats-req-max-pending <count>',
      'nats: requests waiting at one worker from which on it gets no more; 0: no throttle; must be alike on both sides',
    )
      .env('INFERA_NATS_REQ_MAX_PENDING')
      .argParser(wholeNumber(0, 1_000_000_000))
      .default(0),
  ]
}

/** @throws ServerError `INFERA_SERVER_OPTIONS` naming the flag that is missing or cannot be used */
export function discoveryOf(flags: FleetFlags, env: NodeJS.ProcessEnv = process.env): DiscoveryBackend {
  if (flags.discoveryBackend === 'embedded') return { backend: 'embedded' }
  if (flags.discoveryBackend === 'kubernetes') {
    const podName = env.POD_NAME
    return {
      backend: 'kubernetes',
      ...(flags.k8sLabelSelector ? { labelSelector: flags.k8sLabelSelector } : {}),
      ...(flags.k8sNamespace ? { namespace: flags.k8sNamespace } : {}),
      ...(podName ? { podName } : {}),
      ...(env.KUBERNETES_SERVICE_HOST ? { host: env.KUBERNETES_SERVICE_HOST } : {}),
      ...(env.KUBERNETES_SERVICE_PORT ? { port: env.KUBERNETES_SERVICE_PORT } : {}),
    }
  }
  const { etcdEndpoint, etcdUser, etcdPasswordFile, etcdCa, etcdCert, etcdKey } = flags
  if (etcdEndpoint.length === 0) {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      '--discovery-backend etcd needs --etcd-endpoint, as in --etcd-endpoint http://127.0.0.1:2379',
    )
  }
  if ((etcdUser === undefined) !== (etcdPasswordFile === undefined)) {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      'give --etcd-user and --etcd-password-file together, or neither',
    )
  }
  const tls = {
    ...(etcdCa === undefined ? {} : { ca: readPem('--etcd-ca', etcdCa) }),
    ...(etcdCert === undefined ? {} : { cert: readPem('--etcd-cert', etcdCert) }),
    ...(etcdKey === undefined ? {} : { key: readPem('--etcd-key', etcdKey) }),
  }
  return {
    backend: 'etcd',
    endpoints: [...etcdEndpoint],
    prefix: flags.etcdPrefix,
    ...(etcdUser === undefined ? {} : { username: etcdUser }),
    ...(etcdPasswordFile === undefined ? {} : { password: readSecret(etcdPasswordFile) }),
    ...(Object.keys(tls).length === 0 ? {} : { tls }),
  }
}

/** The broker as libraries take it: milliseconds. */
export function natsOf(flags: FleetFlags) {
  return {
    url: flags.natsServer,
    idleTimeoutMs: flags.natsReqIdleTimeout * 1000,
    totalTimeoutMs: flags.natsReqMaxDuration * 1000,
    maxPending: flags.natsReqMaxPending,
  }
}

function readSecret(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : ''
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      `--etcd-password-file '${path}': it cannot be read${code}`,
      {
        cause: error,
      },
    )
  }
}
