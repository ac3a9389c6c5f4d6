import { parseWorkerRecord } from '@infera/fleet'
import type { FaultKind } from '../fault.js'

export const leaseLost: FaultKind = {
  name: 'leaseLost',
  port: 'discovery',
  meaning: 'the registry drops a worker that lives, and takes it in again later',
  draw: () => ({}),
  begin: ({ discovery, workerId }) => {
    discovery.loseLease(workerId)
    return () => discovery.remember(workerId)
  },
}

export const entryForgotten: FaultKind = {
  name: 'entryForgotten',
  port: 'discovery',
  meaning: 'the registry answers with a snapshot that lacks a worker',
  draw: () => ({}),
  begin: ({ discovery, workerId }) => {
    discovery.forget(workerId)
    return () => discovery.remember(workerId)
  },
}

export const entryStale: FaultKind = {
  name: 'entryStale',
  port: 'discovery',
  meaning: 'the registry holds the entry of a worker that is gone',
  draw: () => ({}),
  begin: ({ discovery, workerId, modelName }) => {
    const ghostId = `${workerId}-ghost`
    discovery.addGhost(
      parseWorkerRecord({
        worker_id: ghostId,
        url: `link://${ghostId}`,
        model_name: modelName,
        engine: 'vllm',
        kv_block_size: 16,
        request_transport: 'link',
        ext: { engine: 'sim', instance_id: ghostId },
      }),
    )
    return () => discovery.removeGhost(ghostId)
  },
}

export const watchStalls: FaultKind = {
  name: 'watchStalls',
  port: 'discovery',
  meaning: 'changes of the registry are not told; then a snapshot tells what is true',
  draw: () => ({}),
  begin: ({ discovery }) => {
    discovery.stall()
    return () => discovery.resume()
  },
}

export const watchBreaks: FaultKind = {
  name: 'watchBreaks',
  port: 'discovery',
  meaning: 'the watch of the registry breaks',
  draw: () => ({}),
  begin: ({ discovery }) => {
    discovery.break()
    return () => {}
  },
}
