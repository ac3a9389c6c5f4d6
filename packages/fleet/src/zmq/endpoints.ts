const pattern = /^tcp:\/\/(\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[A-Za-z0-9._-]+|\*):(\d{1,5})$/
const wildcards: ReadonlySet<string> = new Set(['*', '0.0.0.0', '[::]'])

/** `tcp://<host>:<port>` in its parts; IPv6 hosts keep their brackets. */
export interface ZmqEndpoint {
  readonly host: string
  /** 0..65535 */
  readonly port: number
}

/** @returns undefined for whatever is not `tcp://<host>:<port>` */
export function parseEndpoint(text: unknown): ZmqEndpoint | undefined {
  if (typeof text !== 'string') return undefined
  const match = pattern.exec(text)
  const host = match?.[1]
  const port = Number(match?.[2])
  if (host === undefined || port > 65_535) return undefined
  return { host, port }
}

/** Whether a host means every address of its machine: good for binding, good for nobody else. */
export function isWildcard(host: string): boolean {
  return wildcards.has(host)
}

/** Rank r is at port + r. */
export function formatEndpoint({ host, port }: ZmqEndpoint, rank = 0): string {
  return `tcp://${host}:${port + rank}`
}

/** An endpoint that another machine can connect to, for `rankCount` ranks on as many ports. */
export function parsePeerEndpoint(text: unknown, rankCount: number): ZmqEndpoint | undefined {
  const endpoint = parseEndpoint(text)
  if (!endpoint || isWildcard(endpoint.host) || endpoint.port === 0) return undefined
  return endpoint.port + rankCount - 1 <= 65_535 ? endpoint : undefined
}
