/** Ids and numbers go in the fields; the message is a fixed sentence. Never prompts, tokens or keys. */
export type LogFields = Readonly<Record<string, unknown>>

/** What libraries report to. pino fits as it is. */
export interface Logger {
  debug(fields: LogFields, message: string): void
  info(fields: LogFields, message: string): void
  warn(fields: LogFields, message: string): void
  error(fields: LogFields, message: string): void
}

const ignore = () => {}

/** The default: says nothing. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore }
