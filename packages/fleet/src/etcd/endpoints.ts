import { z } from 'zod'

const defaultPort = 2379

/** `host`, `host:port` or a URL, as Infera 0.1 takes them, brought to the URL that the client library wants. */
export function endpointUrl(text: string): string {
  // Before anything else, since what follows repeats the text. No address has these signs otherwise.
  if (text.includes('@')) throw new Error('an endpoint holds credentials: give username and password instead')
  if (/[?#]/.test(text))
    throw new Error('an endpoint has a query or fragment, which etcd has not: leave it out')
  const trimmed = text.trim()
  const hasScheme = /^[a-z]+:\/\//i.test(trimmed)
  const withScheme = (hasScheme ? trimmed : `http://${bracketed(trimmed)}`).replace(/([^/])\/+$/, '$1')
  if (!URL.canParse(withScheme)) throw new Error(`'${text}' is no address: give host, host:port or a URL`)
  const url = new URL(withScheme)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new Error(`'${text}' is neither http nor https`)
  if (url.pathname !== '/' && url.pathname !== '') throw new Error(`'${text}' has a path, which etcd has not`)
  return `${url.protocol}//${url.hostname}:${portOf(withScheme, url)}`
}

/** An IPv6 address that stands alone; with a port it has to come with brackets. */
function bracketed(host: string): string {
  return /^[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*$/i.test(host) ? `[${host}]` : host
}

/** A port that is the scheme's own is left out of a parsed URL, although somebody may have meant it. */
function portOf(text: string, url: URL): string {
  if (url.port !== '') return url.port
  const said = /:(\d+)$/.exec(text.slice(text.indexOf('://') + 3).replace(/^\[[^\]]*\]/, ''))?.[1]
  return said ?? String(defaultPort)
}

export const Endpoint = z
  .string()
  .min(1)
  .max(2048)
  .transform((text, context) => {
    try {
      return endpointUrl(text)
    } catch (error) {
      context.addIssue({ code: 'custom', message: error instanceof Error ? error.message : String(error) })
      return z.NEVER
    }
  })
