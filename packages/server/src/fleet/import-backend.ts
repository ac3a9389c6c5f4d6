import { ServerError } from '../errors.js'

/** What everything over NATS is made with. */
export const natsPackages = '@nats-io/transport-node @nats-io/jetstream @nats-io/kv'

/**
 * A part that not every installation has, loaded when it is first used.
 * @throws ServerError `INFERA_SERVER_OPTIONS` naming the packages to add
 */
export async function importBackend<T>(what: string, packages: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND')) throw error
    throw new ServerError('INFERA_SERVER_OPTIONS', `${what} needs ${packages}: npm install ${packages}`, {
      cause: error,
    })
  }
}
