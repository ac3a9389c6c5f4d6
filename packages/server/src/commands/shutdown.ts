/** Signals that ask a command to end. */
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** One Ctrl-C can arrive twice at once: from the terminal, and passed on by the program that started us. */
const sameSignalMs = 500

export interface Shutdown {
  /** Resolves with the first signal, or with the reason given to `request`. */
  readonly requested: Promise<string>
  /** Resolves when asked a second time, after a moment: the user does not want to wait. */
  readonly insisted: Promise<string>
  /** Asks from inside the program. */
  request(reason: string): void
  /** Insists from inside the program. */
  insist(): void
}

/** Watches for the signals that end a command. @param ignored signals that somebody else acts on for us */
export function watchShutdown(options: { ignored?: readonly NodeJS.Signals[] } = {}): Shutdown {
  let firstAtMs: number | undefined
  let onRequested: (reason: string) => void = () => {}
  let onInsisted: (reason: string) => void = () => {}
  const requested = new Promise<string>((resolve) => {
    onRequested = resolve
  })
  const insisted = new Promise<string>((resolve) => {
    onInsisted = resolve
  })
  const request = (reason: string) => {
    const nowMs = performance.now()
    if (firstAtMs === undefined) {
      firstAtMs = nowMs
      onRequested(reason)
    } else if (nowMs - firstAtMs > sameSignalMs) onInsisted(reason)
  }
  for (const signal of signals) {
    process.on(signal, () => {
      if (!options.ignored?.includes(signal)) request(signal)
    })
  }
  return { requested, insisted, request, insist: () => onInsisted('a time limit') }
}
