import { fileURLToPath } from 'node:url'

/**
 * Folder of the small tokenizer and chat template that come with this package. It sits beside `src` and `dist`, so this
 * module has to stay directly inside them.
 */
export const simModelFolder: string = fileURLToPath(new URL('../model', import.meta.url))
