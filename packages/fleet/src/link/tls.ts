import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { z } from 'zod'

const pem = z.union(
  [z.string().min(1), z.instanceof(Uint8Array).transform((bytes) => Buffer.from(bytes))],
  'must be PEM text, or its bytes',
)

/**
 * How a worker checks the server of a `wss:` URL, and shows who it is. There is no way to turn the check off: whoever can
 * answer in the server's place would get the token.
 */
export const LinkTls = z
  .strictObject({
    /** Certificate authorities to trust, PEM; several in one text or in a list. Default: those that Node trusts. */
    ca: z.union([pem, z.array(pem).min(1)]).optional(),
    /** Certificate and key, PEM, for servers that want one of their workers. */
    cert: pem.optional(),
    key: pem.optional(),
    /** The name that the server's certificate must have, where that is not the one in the URL. */
    servername: z.string().min(1).max(255).optional(),
  })
  .superRefine((tls, context) => {
    if ((tls.cert === undefined) !== (tls.key === undefined)) {
      const path = [tls.cert === undefined ? 'cert' : 'key']
      context.addIssue({ code: 'custom', path, message: 'cert and key go together: give both or neither' })
      return
    }
    // Found here and not at the first connection. What Node makes of a context does not say which part was wrong.
    const checks = {
      ca: () => [tls.ca ?? []].flat().map((ca) => new X509Certificate(ca)),
      cert: () => tls.cert && new X509Certificate(tls.cert),
      key: () => tls.cert && createSecureContext({ cert: tls.cert, key: tls.key }),
    }
    for (const [name, check] of Object.entries(checks)) {
      try {
        check()
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error)
        context.addIssue({ code: 'custom', path: [name], message: `must be PEM that fits: ${reason}` })
        return
      }
    }
  })
export type LinkTls = z.output<typeof LinkTls>

/** What a wrong set-up meets, by Node's code or, where that is only EPROTO, by what OpenSSL says; and what to change. */
const advice: readonly (readonly [RegExp, string])[] = [
  [
    /SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF|UNABLE_TO_GET_ISSUER|CERT_SIGNATURE_FAILURE/,
    'its certificate is not signed by an authority that this worker trusts; set tls.ca to the one that signed it',
  ],
  [
    /ERR_TLS_CERT_ALTNAME_INVALID/,
    'its certificate is for other names; join it by one of those, or set tls.servername to one',
  ],
  [/CERT_HAS_EXPIRED/, 'its certificate has expired; give it a new one, or set the clock right'],
  [/CERT_NOT_YET_VALID/, 'its certificate is not valid yet; set the clock right'],
  [
    /wrong version number|packet length too long/i,
    'it does not speak TLS on that port; join it with a ws URL',
  ],
  [
    /ALERT_CERTIFICATE_REQUIRED|alert certificate required|alert handshake failure/i,
    'it wants a certificate of its workers; set tls.cert and tls.key',
  ],
  [
    /ALERT_UNKNOWN_CA|alert unknown ca/i,
    'it does not trust the certificate of this worker; set tls.cert and tls.key to ones that it trusts',
  ],
]

/** Why no connection came about, with what to change where TLS was the matter. */
export function explainDialError(error: Error): string {
  const code = 'code' in error ? String(error.code) : ''
  const why = advice.find(([pattern]) => pattern.test(`${code} ${error.message}`))?.[1]
  return why === undefined ? error.message : `no TLS with the server: ${why} (${code})`
}
