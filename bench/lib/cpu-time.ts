import { readFileSync } from 'node:fs'

/** CPU time of this thread so far, in microseconds; wall clock where the kernel does not tell. */
export function threadTimeUs(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1000
  } catch {
    return performance.now() * 1000 // not Linux
  }
}

/**
 * CPU time of `count` calls, in microseconds for each. Some kernels count in steps of 4 ms: choose `count` so that all calls
 * together take 100 ms or more.
 */
export function perCallUs(count: number, action: (index: number) => void): number {
  const startedUs = threadTimeUs()
  for (let index = 0; index < count; index++) action(index)
  return (threadTimeUs() - startedUs) / count
}
