// Prompt to tokens to block hashes: what a router and a simulated engine must agree on.
export { chainBlockHashes } from '@infera/native'
export { ModelFolderError, PromptError } from './errors.js'
export { type LoadPromptModelOptions, loadPromptModel } from './prompt/load-prompt-model.js'
export type { InferenceBody, InferencePath, PromptModel } from './prompt/prompt-model.js'
