import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { fileURLToPath } from 'node:url'

/** Certificates that nothing but tests may trust; see the README beside them. */
export function tlsFile(name: 'ca.pem' | 'other-ca.pem' | 'server.pem' | 'server.key'): string {
  return fileURLToPath(new URL(`../../../fleet/test/vectors/tls/test-only-${name}`, import.meta.url))
}

export const tlsText = (name: Parameters<typeof tlsFile>[0]) => readFileSync(tlsFile(name), 'utf8')

/** Asks over HTTPS, trusting the test authority. `body`: POST. */
export function askTls(url: string, body?: unknown): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const options = { ca: tlsText('ca.pem'), method: body === undefined ? 'GET' : 'POST' }
    const asked = request(url, options, async (response) => {
      let text = ''
      for await (const chunk of response.setEncoding('utf8')) text += chunk
      resolve({ status: response.statusCode ?? 0, text })
    })
    asked.on('error', reject)
    asked.end(body === undefined ? undefined : JSON.stringify(body))
  })
}
