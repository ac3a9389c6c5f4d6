import { z } from 'zod'

const ratio = () => z.number().min(0).max(1)

/** What clients ask of a fleet. Times are ms of the run; ratios are of all requests. */
export const WorkloadOptions = z
  .strictObject({
    seed: z.int().default(0),
    /** Requests in all. */
    requests: z.int().min(1).max(1_000_000).default(2_000),
    /** Conversations begin between 0 and this. */
    spanMs: z.number().nonnegative().default(20_000),
    /** Turns of a conversation. */
    turnsMin: z.int().min(1).default(1),
    turnsMax: z.int().min(1).default(6),
    /** Between the answer and the next turn. */
    thinkMsMax: z.number().nonnegative().default(800),
    /** Long system prompts that conversations share, each with this many words. */
    prefixes: z.int().min(1).default(6),
    prefixWords: z.int().min(1).default(60),
    /** Words of one user turn. */
    wordsMin: z.int().min(1).default(4),
    wordsMax: z.int().min(1).default(24),
    /** Tokens of one answer. */
    answerTokensMin: z.int().min(1).default(3),
    answerTokensMax: z.int().min(1).default(8),
    streamRatio: ratio().default(0.7),
    /** Asked through `router.fetch`; the others through `router.dispatch`. */
    fetchRatio: ratio().default(0.5),
    /** Asked as chats; the others as completions of token ids. */
    chatRatio: ratio().default(0.5),
    /** Clients that leave on the way. Their answers would be long. */
    cancelRatio: ratio().default(0.06),
    /** Clients that read slowly. */
    slowRatio: ratio().default(0.06),
    /** How long a slow reader waits after each chunk. */
    slowReadMs: z.number().nonnegative().default(60),
  })
  .refine((options) => options.turnsMin <= options.turnsMax, {
    path: ['turnsMax'],
    error: 'must not be less than turnsMin',
  })
  .refine((options) => options.wordsMin <= options.wordsMax, {
    path: ['wordsMax'],
    error: 'must not be less than wordsMin',
  })
  .refine((options) => options.answerTokensMin <= options.answerTokensMax, {
    path: ['answerTokensMax'],
    error: 'must not be less than answerTokensMin',
  })
export type WorkloadOptions = z.input<typeof WorkloadOptions>
export type ResolvedWorkloadOptions = z.output<typeof WorkloadOptions>
