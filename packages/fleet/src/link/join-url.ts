import { InvalidFleetOptionsError } from '../errors.js'
import { LINK_PATH } from './frames.js'

const schemes: Readonly<Record<string, string>> = {
  'ws:': 'ws:',
  'wss:': 'wss:',
  'http:': 'ws:',
  'https:': 'wss:',
}

/**
 * The WebSocket URL of a server, from what a person writes: `ws://host:8000`, `http://host:8000/`, or with a path.
 * @throws InvalidFleetOptionsError
 */
export function joinUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const scheme = url && schemes[url.protocol]
  if (!url || !scheme) {
    throw new InvalidFleetOptionsError(
      `join url '${text}' must be a ws, wss, http or https URL, as in ws://server:8000`,
    )
  }
  if (url.username || url.password) {
    throw new InvalidFleetOptionsError(
      `join url for '${url.host}' must not carry credentials; use the option 'token'`,
    )
  }
  const path = url.pathname === '/' ? LINK_PATH : url.pathname
  return `${scheme}//${url.host}${path}${url.search}`
}
