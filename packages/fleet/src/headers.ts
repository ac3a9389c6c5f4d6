// RFC 9110 section 7.6.1, with the older names that are still seen: they speak of one connection, not of the message.
const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

type RawHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

/**
 * Headers without those that belong to one connection, and without `content-length`, since whoever passes a body on
 * frames it anew. `content-encoding` stays: the body is passed on as it is. Names become lower case, repeated values
 * are joined.
 */
export function endToEndHeaders(headers: RawHeaders): Record<string, string> {
  const named = new Set<string>()
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() !== 'connection' || value === undefined) continue
    for (const token of String(value).split(',')) named.add(token.trim().toLowerCase())
  }
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    const key = name.toLowerCase()
    if (value === undefined || key === 'content-length' || hopByHop.has(key) || named.has(key)) continue
    kept[key] = typeof value === 'string' ? value : value.join(', ')
  }
  return kept
}
