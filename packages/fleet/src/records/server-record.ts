import { z } from 'zod'
import { InvalidRecordError } from '../errors.js'

/** What a server announces of itself, for workers that compare settings and for servers that look for each other. */
export const ServerRecord = z.looseObject({
  server_id: z.string().min(1).max(512),
  /** Base URL of its HTTP listener without a trailing slash. */
  url: z.string().min(1).max(2048),
  version: z.string().max(64),
  /** Settings that workers must share; see `FleetSettings`. */
  settings: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).default({}),
})
export type ServerRecord = z.infer<typeof ServerRecord>

/** @throws InvalidRecordError naming the first wrong field */
export function parseServerRecord(value: unknown): ServerRecord {
  const result = ServerRecord.safeParse(value)
  if (!result.success) throw new InvalidRecordError('server', result.error)
  return result.data
}
