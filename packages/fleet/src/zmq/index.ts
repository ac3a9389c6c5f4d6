export type { ZmqCounts } from './counts.js'
export { ZmqKvEvents, type ZmqKvEventsOptions } from './zmq-kv-events.js'
export { type ZmqKvAnnouncement, ZmqKvPublisher, type ZmqKvPublisherOptions } from './zmq-kv-publisher.js'
