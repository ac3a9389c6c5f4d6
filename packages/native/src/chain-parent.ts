import { translated } from './errors.js'
import { loadAddon } from './load-addon.js'
import { chainParentOf } from './twin/chain-identity.js'

export interface ChainIdentity {
  /** Name of the LoRA adapter that computes the prompt. */
  readonly lora?: string | undefined
  /** The request's cache salt. */
  readonly salt?: string | undefined
}

const encoder = new TextEncoder()

/**
 * The parent from which the blocks of a prompt start, so that prompts of different adapters and salts share no hash. Views
 * start the chains of engines' events from the same number.
 * @returns 0n, the parent of plain prompts, where both are absent or empty
 */
export function chainParent({ lora = '', salt = '' }: ChainIdentity): bigint {
  if (lora === '' && salt === '') return 0n
  const { addon } = loadAddon()
  const [adapter, salted] = [encoder.encode(lora), encoder.encode(salt)]
  if (addon === undefined) return chainParentOf(adapter, salted)
  try {
    return addon.chainParent(adapter, salted)
  } catch (error) {
    throw translated(error)
  }
}
