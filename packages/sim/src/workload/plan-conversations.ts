import { seededRandom } from '@infera/fleet'
import { commonWords } from '../content/words.js'
import { FaultDraw as Draw } from '../faults/fault.js'
import { parseOptions } from '../options.js'
import { type ResolvedWorkloadOptions, WorkloadOptions } from './workload-options.js'

/** How a client behaves in one turn. */
export interface PlannedTurn {
  readonly requestId: string
  /** What the client says: words of a chat, or token ids. */
  readonly words: string
  readonly tokens: readonly number[]
  readonly answerTokensMax: number
  readonly isStreamed: boolean
  /** Through `router.fetch` rather than `router.dispatch`. */
  readonly isFetch: boolean
  /** Leaves after so many ms; null: stays. */
  readonly leavesAfterMs: number | null
  /** Waits after each chunk, ms. */
  readonly readPauseMs: number
  /** After the turn before it has ended, ms. */
  readonly thinkMs: number
}

export interface PlannedConversation {
  readonly index: number
  readonly startMs: number
  readonly isChat: boolean
  readonly systemWords: string
  readonly systemTokens: readonly number[]
  readonly turns: readonly PlannedTurn[]
}

/** Longer than any run waits: who leaves such an answer leaves it unfinished. */
const endlessAnswerTokens = 1_500
/** Token ids stay below this; every tokenizer has so many. */
const tokenIdsMax = 256

/**
 * Everything that clients will ask, before anything runs. Pure: equal options give equal plans.
 * @throws InvalidSimOptionsError naming the option and what it must be
 */
export function planConversations(options: WorkloadOptions): PlannedConversation[] {
  const settings = parseOptions(WorkloadOptions, options)
  const random = seededRandom(settings.seed)
  const draw = new Draw(random)
  const systems = Array.from({ length: settings.prefixes }, () => wordsOf(draw, settings.prefixWords))
  const systemIds = systems.map((words) => words.map(() => draw.int(0, tokenIdsMax - 1)))
  const conversations: PlannedConversation[] = []
  for (let planned = 0; planned < settings.requests; ) {
    const turnCount = Math.min(draw.int(settings.turnsMin, settings.turnsMax), settings.requests - planned)
    const prefix = draw.int(0, settings.prefixes - 1)
    const first = planned
    conversations.push({
      index: conversations.length,
      startMs: Math.round(random() * settings.spanMs),
      isChat: draw.chance(settings.chatRatio),
      systemWords: (systems[prefix] ?? []).join(' '),
      systemTokens: systemIds[prefix] ?? [],
      turns: Array.from({ length: turnCount }, (_, turn) => planTurn(draw, settings, `r${first + turn}`)),
    })
    planned += turnCount
  }
  return conversations
}

function planTurn(draw: Draw, settings: ResolvedWorkloadOptions, requestId: string): PlannedTurn {
  const words = wordsOf(draw, draw.int(settings.wordsMin, settings.wordsMax))
  const isLeaving = draw.chance(settings.cancelRatio)
  const isSlow = draw.chance(settings.slowRatio)
  return {
    requestId,
    words: words.join(' '),
    tokens: words.map(() => draw.int(0, tokenIdsMax - 1)),
    answerTokensMax: isLeaving
      ? endlessAnswerTokens
      : draw.int(settings.answerTokensMin, settings.answerTokensMax),
    isStreamed: draw.chance(settings.streamRatio),
    isFetch: draw.chance(settings.fetchRatio),
    leavesAfterMs: isLeaving ? draw.int(0, 400) : null,
    readPauseMs: isSlow ? settings.slowReadMs : 0,
    thinkMs: draw.int(0, Math.round(settings.thinkMsMax)),
  }
}

function wordsOf(draw: Draw, count: number): string[] {
  return Array.from({ length: count }, () => draw.pick(commonWords))
}
