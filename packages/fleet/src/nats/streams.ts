import {
  AckPolicy,
  type ConsumerConfig,
  type ConsumerInfo,
  DeliverPolicy,
  DiscardPolicy,
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from '@nats-io/jetstream'
import { errors, type NatsConnection, nanos } from '@nats-io/transport-node'
import { kvStreamName, natsToken, requestStreamName, requestSubject } from './names.js'

type NamedStream = Partial<StreamConfig> & { name: string }

/** As the reference configures it; either side makes it. */
export const requestStream: NamedStream = {
  name: requestStreamName,
  subjects: ['infera.req.>'],
  retention: RetentionPolicy.Workqueue,
  storage: StorageType.Memory,
  discard: DiscardPolicy.Old,
  max_msgs: 1_000_000,
}

/** As the reference configures it; either side makes it. */
export const kvStream: NamedStream = {
  name: kvStreamName,
  subjects: ['infera.kv.events.>'],
  retention: RetentionPolicy.Limits,
  storage: StorageType.File,
  discard: DiscardPolicy.Old,
  max_bytes: 268_435_456,
  max_msgs: 1_000_000,
}

/** The consumer of one throttled worker. Its name and filter are what admission is read from. */
export function requestConsumer(workerId: string, deliverSubject: string): Partial<ConsumerConfig> {
  return {
    durable_name: natsToken(workerId),
    deliver_subject: deliverSubject,
    filter_subject: requestSubject(workerId),
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(3_600_000),
    max_deliver: 1,
    deliver_policy: DeliverPolicy.All,
  }
}

/** A manager that asks nothing on its own. */
export function managerOf(connection: NatsConnection, timeoutMs: number): Promise<JetStreamManager> {
  return jetstreamManager(connection, { checkAPI: false, timeout: timeoutMs })
}

/**
 * Makes a stream, or sees that it is there. One that exists is brought to this configuration where the broker allows that;
 * where it does not (another retention, say), it is used as it is.
 * @throws what the broker says when there is no such stream afterwards
 */
export async function ensureStream(manager: JetStreamManager, stream: NamedStream): Promise<void> {
  try {
    await manager.streams.add(stream)
  } catch (addError) {
    if (!(addError instanceof JetStreamApiError)) throw addError
    try {
      await manager.streams.update(stream.name, stream)
    } catch (updateError) {
      if (!(updateError instanceof JetStreamApiError)) throw updateError
      await manager.streams.info(stream.name)
    }
  }
}

/**
 * A consumer's state.
 * @returns undefined where the stream or the consumer does not exist, or the broker has no JetStream
 * @throws for anything that leaves the question open
 */
export async function readConsumer(
  manager: JetStreamManager,
  stream: string,
  consumer: string,
): Promise<ConsumerInfo | undefined> {
  try {
    return await manager.consumers.info(stream, consumer)
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
}

export function isAbsent(error: unknown): boolean {
  if (error instanceof JetStreamApiError) {
    return (
      error.code === JetStreamApiCodes.ConsumerNotFound ||
      error.code === JetStreamApiCodes.StreamNotFound ||
      error.code === JetStreamApiCodes.JetStreamNotEnabledForAccount
    )
  }
  if (!(error instanceof Error)) return false
  return (
    error instanceof errors.NoRespondersError ||
    (error instanceof errors.RequestError && error.isNoResponders()) ||
    error.cause instanceof errors.NoRespondersError ||
    (error.cause instanceof errors.RequestError && error.cause.isNoResponders())
  )
}
