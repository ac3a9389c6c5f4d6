/** Where brokers are and how to sign in, taken apart: the client library wants credentials apart from addresses. */
export interface NatsServers {
  readonly servers: string[]
  readonly user?: string
  readonly pass?: string
  readonly token?: string
}

/**
 * Reads `nats://host:port`, also with `user:password@` or `token@`, and several of them separated by commas. The credentials of
 * the first one that has any count for all. Percent-encoding in credentials is undone.
 */
export function readNatsUrl(url: string): NatsServers {
  const servers: string[] = []
  let credentials: string | undefined
  for (const one of splitServers(url)) {
    const { scheme, userInfo, rest } = takeApart(one)
    servers.push(`${scheme}${rest}`)
    credentials ??= userInfo
  }
  if (credentials === undefined) return { servers }
  const colon = credentials.indexOf(':')
  if (colon < 0) return { servers, token: decode(credentials) }
  return { servers, user: decode(credentials.slice(0, colon)), pass: decode(credentials.slice(colon + 1)) }
}

/** The URL for logs: `***` in the place of a user's password, or of a token. Passwords may contain `@` and `:`. */
export function redactNatsUrl(url: string): string {
  return splitServers(url)
    .map((one) => {
      const { scheme, userInfo, rest } = takeApart(one)
      if (userInfo === undefined) return one
      const colon = userInfo.indexOf(':')
      return `${scheme}${colon < 0 ? '***' : `${userInfo.slice(0, colon)}:***`}@${rest}`
    })
    .join(',')
}

/**
 * Passwords may hold commas. One separates servers where a scheme follows, or no `@` up to the next scheme: what stands in
 * front of an `@` may be a password, and must not be taken for a server's name.
 */
function splitServers(url: string): string[] {
  return url
    .split(/,(?=\s*[a-z]+:\/\/|(?:(?!,\s*[a-z]+:\/\/)[^@])*(?:$|,\s*[a-z]+:\/\/))/i)
    .map((one) => one.trim())
    .filter((one) => one !== '')
}

function takeApart(one: string) {
  const scheme = /^[a-z]+:\/\//i.exec(one)?.[0] ?? ''
  const address = one.slice(scheme.length)
  // The last `@`: a password may contain others.
  const at = address.lastIndexOf('@')
  if (at < 0) return { scheme, userInfo: undefined, rest: address }
  return { scheme, userInfo: address.slice(0, at), rest: address.slice(at + 1) }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // A stray percent sign: the text is meant as it is.
    return text
  }
}
