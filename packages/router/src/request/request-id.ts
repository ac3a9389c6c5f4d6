import { randomUUID } from 'node:crypto'

/** Ids that may be taken over into headers and logs as they are. */
const usable = /^[A-Za-z0-9._:/+=@-]{1,128}$/

/** The id that a client gave, if it is one that can be passed on, else a new one of 32 hex digits. */
export function requestIdFrom(given: string | undefined): string {
  return given !== undefined && usable.test(given) ? given : randomUUID().replaceAll('-', '')
}
