import type { Logger } from '@infera/fleet'
import { type Command, Option } from 'commander'
import { seconds, truth, wholeNumber } from './option-values.js'

/**
 * Flags of Infera 0.1 whose features this release does not have. They are taken, so that command lines and manifests of such a fleet
 * work as they are, and whoever sets one is told that it has no effect.
 */
export function withoutEffect(role: 'server' | 'worker'): readonly Option[] {
  return role === 'server' ? serverFlags() : workerFlags()
}

function serverFlags(): readonly Option[] {
  return [
    flag('--router-backend <name>').env('INFERA_ROUTER_BACKEND').choices(['python', 'rust']),
    flag('--kvd-socket-path <path>'),
    flag('--enable-profiling [switch]').env('INFERA_ENABLE_PROFILING').argParser(truth),
    flag('--enable-scaling-api [switch]').env('INFERA_ENABLE_SCALING_API').argParser(truth),
    flag('--migration-limit <count>').env('INFERA_MIGRATION_LIMIT').argParser(wholeNumber(0, 1_000_000)),
    flag('--breaker-failure-threshold <count>')
      .env('INFERA_BREAKER_FAILURE_THRESHOLD')
      .argParser(wholeNumber(0, 1_000_000)),
    flag('--breaker-cooldown-s <s>').env('INFERA_BREAKER_COOLDOWN_S').argParser(seconds),
    flag('--breaker-max-cooldown-s <s>').env('INFERA_BREAKER_MAX_COOLDOWN_S').argParser(seconds),
  ]
}

function workerFlags(): readonly Option[] {
  return [
    flag('--disaggregation-allow-tcp'),
    flag('--kv-events <mode>').choices(['on', 'off', 'auto']),
    flag('--index-block-size <tokens>').argParser(wholeNumber(1, 1_048_576)),
    flag('--kv-snapshot-host <address>'),
    flag('--kv-snapshot-port <number>').argParser(wholeNumber(0, 65_535)),
    flag('--kv-snapshot-advertise <url>'),
    flag('--infera-kvd-socket <path>').env('INFERA_KVD_SOCKET'),
  ]
}

function flag(flags: string): Option {
  return new Option(flags, 'of Infera 0.1; taken, without effect in this release')
}

/** Tells whoever gave one of them. */
export function warnWithoutEffect(command: Command, role: 'server' | 'worker', logger: Logger): void {
  for (const option of withoutEffect(role)) {
    const source = command.getOptionValueSource(option.attributeName())
    if (source !== undefined && source !== 'default') {
      logger.warn(
        { flag: option.long, source },
        'a flag is taken without effect: this release has no such feature',
      )
    }
  }
}
