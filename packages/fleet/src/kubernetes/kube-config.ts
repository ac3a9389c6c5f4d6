import { readFile } from 'node:fs/promises'
import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import { KubeConfig } from '@kubernetes/client-node'
import { z } from 'zod'

/** A bearer token, or what gives the present one: it is asked before every connection, since mounted tokens are replaced. */
export type TokenSource = string | (() => string | Promise<string>)

/** How to reach the API server from inside its cluster. */
export const ClusterAccess = z.strictObject({
  /** `KUBERNETES_SERVICE_HOST`; an IPv6 address without brackets is right. */
  host: z.string().min(1).max(253).default('kubernetes.default.svc'),
  /** `KUBERNETES_SERVICE_PORT`. */
  port: z.coerce.number().int().min(1).max(65_535).default(443),
  /** Authorities that may have signed its certificate, PEM, any number in one text. Default: those that Node trusts. */
  ca: z.string().includes('-----BEGIN CERTIFICATE-----').optional(),
  token: z.custom<TokenSource>(
    (value) => (typeof value === 'string' && value !== '') || typeof value === 'function',
    'must be a token, or a function that returns the present one',
  ),
})
export type ClusterAccess = z.input<typeof ClusterAccess>

const authProviderName = 'infera-token'

/** A configuration of the official client that asks for the token again whenever it is applied. */
export function clusterConfig(access: z.output<typeof ClusterAccess>): KubeConfig {
  const host = isIPv6(access.host) ? `[${access.host}]` : access.host
  const config = new KubeConfig()
  config.loadFromClusterAndUser(
    {
      name: 'cluster',
      server: `https://${host}:${access.port}`,
      skipTLSVerify: false,
      ...(access.ca === undefined ? {} : { caData: Buffer.from(access.ca).toString('base64') }),
    },
    { name: 'service-account', authProvider: { name: authProviderName } },
  )
  config.addAuthenticator({
    isAuthProvider: (user) => user.authProvider?.name === authProviderName,
    async applyAuthentication(_user, options) {
      const token = typeof access.token === 'string' ? access.token : await access.token()
      // Files end in a newline, which no header may contain.
      options.headers = { ...options.headers, Authorization: `Bearer ${token.trim()}` }
    },
  })
  return config
}

/** What Kubernetes mounts into a Pod. */
export interface ServiceAccount {
  readonly namespace: string
  /** PEM bundle. */
  readonly ca: string
  /** Reads the token anew: the kubelet replaces it before it expires. */
  readonly token: () => Promise<string>
}

/**
 * Reads the ServiceAccount mounted into this Pod: `namespace`, `ca` and `token` for the options of `KubernetesDiscovery`.
 * @param directory where it is mounted
 * @throws the file system's error where no ServiceAccount is mounted
 */
export async function readServiceAccount(
  directory = '/var/run/secrets/kubernetes.io/serviceaccount',
): Promise<ServiceAccount> {
  const [namespace, ca] = await Promise.all([
    readFile(join(directory, 'namespace'), 'utf8'),
    readFile(join(directory, 'ca.crt'), 'utf8'),
  ])
  return {
    namespace: namespace.trim() || 'default',
    ca,
    token: () => readFile(join(directory, 'token'), 'utf8'),
  }
}
