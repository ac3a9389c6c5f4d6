export { ServerError, type ServerErrorCode } from './errors.js'
export { InferaServer, type InferaServerPorts } from './infera-server.js'
export { InferaServerOptions, ServedModel, StaticWorker } from './options.js'
export { Fleet, type FleetOptions, type FleetPorts, type FleetReady } from './up/fleet.js'
