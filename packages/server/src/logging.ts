import { destination, type Logger as PinoLogger, pino } from 'pino'

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]

/** Lines of JSON on stderr; stdout is kept for what a command answers. */
export function createLogger(level: LogLevel): PinoLogger {
  return pino({ level, base: null, timestamp: () => `,"time":"${new Date().toISOString()}"` }, destination(2))
}
