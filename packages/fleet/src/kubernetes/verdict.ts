import { isIP } from 'node:net'
import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import { fromWireText } from '../records/wire-text.js'
import { annotationOf } from './annotations.js'
import type { Pod } from './pod.js'

/** What is known of one kind of record of one Pod. */
export interface Known {
  /** The annotation that the entry was read from. */
  readonly text: string
  readonly entry: FleetEntry
}

/** What an observation of a Pod means for one kind of record. */
export type Verdict =
  /** The record is gone, or there is none. */
  | { readonly type: 'absent'; readonly reason: 'deregistered' | 'leaseLost' }
  /** What is known stays as it is. */
  | { readonly type: 'keep' }
  /** What is known takes no new work, for good. */
  | { readonly type: 'drain' }
  | { readonly type: 'put'; readonly known: Known }
  /** The annotation is of no use; what is known stays. */
  | { readonly type: 'refuse'; readonly why: string }

/** Whether a record whose URL names an IP address that is not one of its Pod's is taken, taken with a warning, or refused. */
export type ForeignAddress = 'refuse' | 'warn' | 'allow'

/**
 * The decision table for one Pod, in this order: not running, no annotation, or a restarted container; terminating;
 * unchanged; unreadable; else there is a record. An unseen Pod that is terminating is never admitted.
 */
export function judge(
  kind: FleetEntryKind,
  pod: Pod,
  known: Known | undefined,
  foreignAddress: ForeignAddress,
): Verdict {
  if (!pod.isRunning) return { type: 'absent', reason: 'leaseLost' }
  const text = pod.annotations[annotationOf[kind]]
  if (text === undefined) return { type: 'absent', reason: 'deregistered' }
  if (pod.isTerminating) return known ? terminating(pod, known) : { type: 'keep' }
  if (known?.text === text) {
    return isOutlived(pod, known.entry) ? { type: 'absent', reason: 'leaseLost' } : { type: 'keep' }
  }
  let entry: FleetEntry
  try {
    entry = fromWireText(kind, text)
  } catch (error) {
    return { type: 'refuse', why: error instanceof Error ? error.message : String(error) }
  }
  const foreign = foreignAddress === 'refuse' ? foreignAddressOf(pod, entry) : undefined
  if (foreign !== undefined) {
    return {
      type: 'refuse',
      why: `its url names ${foreign}, which is not an address of its Pod (${pod.ips.join(', ')}); set foreignAddress to allow that`,
    }
  }
  if (isOutlived(pod, entry)) return { type: 'absent', reason: 'leaseLost' }
  return { type: 'put', known: { text, entry } }
}

function terminating(pod: Pod, known: Known): Verdict {
  return isOutlived(pod, known.entry) ? { type: 'absent', reason: 'leaseLost' } : { type: 'drain' }
}

/**
 * Whether the container that published the record has stopped or was started again since, as far as the record says when it
 * started (`ext.container_started_at`, RFC 3339) and, where a Pod has several, which it is (`ext.container_name`).
 */
export function isOutlived(pod: Pod, entry: FleetEntry): boolean {
  if (entry.kind !== 'worker') return false
  const { container_started_at: startedAt, container_name: name } = entry.record.ext ?? {}
  const startedAtMs = typeof startedAt === 'string' ? Date.parse(startedAt) : Number.NaN
  const candidates = pod.containers.filter((each) => typeof name !== 'string' || each.name === name)
  if (Number.isNaN(startedAtMs) || candidates.length === 0) return false
  // Kubernetes keeps whole seconds, and the publisher may have looked at its own clock a little later.
  return !candidates.some(({ runningSinceMs = Infinity }) => runningSinceMs < startedAtMs + 1000)
}

/** The IP address in the record's URL where the Pod is known to have others; names are not looked up. */
export function foreignAddressOf(pod: Pod, entry: FleetEntry): string | undefined {
  if (pod.ips.length === 0 || !/^https?:/i.test(entry.record.url) || !URL.canParse(entry.record.url)) return
  const host = new URL(entry.record.url).hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) === 0) return undefined
  return pod.ips.some((ip) => canonicalIp(ip) === host) ? undefined : host
}

/** As URLs write it: `::1` and `0:0:0:0:0:0:0:1` are one address. */
function canonicalIp(ip: string): string {
  const url = isIP(ip) === 6 ? `http://[${ip}]` : `http://${ip}`
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '') : ip
}
