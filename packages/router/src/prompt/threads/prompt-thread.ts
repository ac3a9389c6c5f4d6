// The entry of a thread that tokenizes: `PromptThreads` starts it.
import { parentPort, workerData } from 'node:worker_threads'
import { PromptError } from '../../errors.js'
import { invariant } from '../../invariant.js'
import { loadPromptModel } from '../load-prompt-model.js'
import type { PromptModel } from '../prompt-model.js'
import { notTokenizable } from '../tokenizer.js'
import { tokenizeRawBody } from './raw-prompts.js'
import type { ThreadData, ThreadFault, ThreadJob, ThreadModel, ThreadReply } from './thread-messages.js'

const loaded = new Map<string, Promise<PromptModel>>()
const { models } = workerData as ThreadData

invariant(parentPort !== null, 'this module is the entry of a thread')
const port = parentPort
port.on('message', (job: ThreadJob) => {
  void answer(job).then((reply) => {
    // Nobody else holds these tokens: each list was made for this job.
    const transfer = reply.type === 'tokens' ? reply.prompts.map(({ buffer }) => buffer as ArrayBuffer) : []
    port.postMessage(reply, transfer)
  })
})
port.postMessage({ type: 'ready' } satisfies ThreadReply)

async function answer({ id, model: name, path, rawBody }: ThreadJob): Promise<ThreadReply> {
  try {
    const model = await modelOf(name)
    return { type: 'tokens', id, prompts: tokenizeRawBody(model, path, rawBody) }
  } catch (error) {
    return { type: 'failed', id, fault: faultOf(error) }
  }
}

function modelOf(name: string): Promise<PromptModel> {
  let model = loaded.get(name)
  if (!model) {
    model = load(name)
    loaded.set(name, model)
    model.catch(() => loaded.delete(name)) // whoever asked is told; the next one tries anew
  }
  return model
}

async function load(name: string): Promise<PromptModel> {
  const known = models.find((model) => model.name === name)
  invariant(known !== undefined, 'a thread is asked for models that it was told of')
  const model = await open(known)
  if (known.tokenizerDigest !== undefined && known.tokenizerDigest !== model.tokenizerDigest)
    throw notTokenizable(`the tokenizer in the folder of model '${name}' is another one than at the start`)
  return model
}

async function open({ name, folder, options }: ThreadModel): Promise<PromptModel> {
  try {
    return await loadPromptModel(folder, options)
  } catch (cause) {
    throw notTokenizable(`model '${name}' could be loaded at the start, but cannot be on a thread`, { cause })
  }
}

function faultOf(error: unknown): ThreadFault {
  if (error instanceof PromptError) return { name: error.name, code: error.code, message: error.message }
  if (error instanceof Error) return { name: error.name, code: undefined, message: error.message }
  return { name: 'Error', code: undefined, message: String(error) }
}
