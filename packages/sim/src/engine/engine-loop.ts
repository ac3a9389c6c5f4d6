import type { Clock, Timer } from '@infera/fleet'
import type { Scheduler } from '../scheduling/scheduler.js'
import type { StepPlan } from '../scheduling/step-rules.js'

export interface EngineLoopOptions {
  readonly scheduler: Scheduler
  readonly clock: Clock
  /** Real time per simulated time; 0: instant. */
  readonly timeScale: number
  readonly stepDurationMs: (plan: StepPlan) => number
  /** Called before control goes back to the event loop. */
  readonly onChanged: () => void
  /** Called once when a step threw; the loop has stopped. */
  readonly onFailed: (error: unknown) => void
}

/**
 * Runs steps one after the other while there is work. Each step's end is an absolute time, counted from the end of the step
 * before it, so that late timers do not add up. However far behind it is, it lets the event loop turn between two steps:
 * aborts and new requests get in.
 */
export class EngineLoop {
  readonly #options: EngineLoopOptions
  #state: 'idle' | 'running' | 'stopped' = 'idle'
  #cancelPending: (() => void) | undefined

  constructor(options: EngineLoopOptions) {
    this.#options = options
  }

  /** There may be work: an idle engine starts a step on the spot, an instant one at the next turn of the event loop. */
  wake(): void {
    if (this.#state !== 'idle') return
    this.#state = 'running'
    if (this.#options.timeScale === 0) this.#nextTurn(() => this.#runInstantStep())
    else this.#guard(() => this.#beginStep(this.#options.clock.now()))
  }

  /** No step begins or ends after this. */
  stop(): void {
    this.#state = 'stopped'
    this.#cancelPending?.()
    this.#cancelPending = undefined
  }

  #runInstantStep(): void {
    const { scheduler, onChanged } = this.#options
    const plan = scheduler.planStep()
    if (plan) scheduler.completeStep(plan)
    onChanged()
    if (!plan) this.#becomeIdle()
    else if (this.#state === 'running') this.#nextTurn(() => this.#runInstantStep())
  }

  #beginStep(startMs: number): void {
    if (this.#state !== 'running') return // Stopped by what a published batch or a token set off.
    const { scheduler, timeScale, stepDurationMs, onChanged } = this.#options
    const plan = scheduler.planStep()
    onChanged()
    if (!plan) {
      this.#becomeIdle()
      return
    }
    const endMs = startMs + stepDurationMs(plan) * timeScale
    this.#at(endMs, () => {
      scheduler.completeStep(plan)
      onChanged()
      this.#beginStep(endMs)
    })
  }

  #becomeIdle(): void {
    if (this.#state === 'running') this.#state = 'idle'
  }

  #at(atMs: number, action: () => void): void {
    const delayMs = atMs - this.#options.clock.now()
    if (delayMs <= 0) {
      this.#nextTurn(action)
      return
    }
    const timer: Timer = this.#options.clock.setTimer(delayMs, () => this.#guard(action))
    this.#cancelPending = () => timer.cancel()
  }

  #nextTurn(action: () => void): void {
    const immediate = setImmediate(() => this.#guard(action))
    this.#cancelPending = () => clearImmediate(immediate)
  }

  /** Steps run from timers, where nobody would catch; a failed engine must not serve on. */
  #guard(action: () => void): void {
    if (this.#state !== 'running') return
    try {
      action()
    } catch (error) {
      this.stop()
      this.#options.onFailed(error)
    }
  }
}
