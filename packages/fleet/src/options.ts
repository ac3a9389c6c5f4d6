import { z } from 'zod'
import { InvalidFleetOptionsError } from './errors.js'
import { type Clock, systemClock } from './ports/clock.js'
import { type Logger, silentLogger } from './ports/logger.js'
import { type Random, systemRandom } from './ports/random.js'

/** An option that is an object or function of the caller's, passed through as it is. */
export function part<T>(what: string) {
  return z.custom<T>(
    (value) => (typeof value === 'object' && value !== null) || typeof value === 'function',
    {
      message: `must be ${what}`,
    },
  )
}

// Defaults are given as functions, so that the parser hands out the very objects and no copies of them.
export const clockOption = part<Clock>('a Clock').default(() => systemClock)
export const loggerOption = part<Logger>('a Logger').default(() => silentLogger)
export const randomOption = part<Random>('a function that returns a number in [0, 1)').default(
  () => systemRandom,
)

/** A number of milliseconds, at least 1; timers of Node end at 2^31 - 1. */
export const durationMs = () => z.number().min(1).max(2_147_483_647)

/** A size or count that bounds something, at least 1. */
export const bound = () => z.int().positive()

/** @throws InvalidFleetOptionsError naming the class, the option and what it must be */
export function parseOptions<S extends z.ZodType>(
  className: string,
  schema: S,
  options: unknown,
): z.output<S> {
  const result = schema.safeParse(options)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  throw new InvalidFleetOptionsError(
    `invalid options of ${className}: ${issue?.path.join('.') || 'options'}: ${issue?.message ?? 'unreadable'}`,
    { cause: result.error },
  )
}
