/** What is stored: any object of Kubernetes, as the JSON says it. */
export interface KubeObject {
  readonly apiVersion?: string
  readonly kind?: string
  readonly metadata: ObjectMeta
  readonly spec?: Readonly<Record<string, unknown>>
  readonly status?: Readonly<Record<string, unknown>>
  readonly [field: string]: unknown
}

export interface ObjectMeta {
  readonly name: string
  readonly namespace?: string
  readonly uid?: string
  readonly resourceVersion?: string
  readonly generation?: number
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
  readonly deletionGracePeriodSeconds?: number
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  readonly [field: string]: unknown
}

/** A kind of object that the server knows. */
export interface KubeResource {
  /** Empty for the core group. */
  readonly group: string
  readonly version: string
  readonly plural: string
  readonly singular: string
  readonly kind: string
  readonly shortNames: readonly string[]
  /** Whether `status` is written through its own path only. */
  readonly hasStatus: boolean
}

export const podResource: KubeResource = {
  group: '',
  version: 'v1',
  plural: 'pods',
  singular: 'pod',
  kind: 'Pod',
  shortNames: ['po'],
  hasStatus: true,
}

export function apiVersionOf(resource: KubeResource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`
}

/** An answer that is not a success, as the API words it. */
export class StatusError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly retryAfterSeconds?: number,
  ) {
    super(message)
  }

  toStatus(): Record<string, unknown> {
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: this.message,
      reason: this.reason,
      ...(this.retryAfterSeconds === undefined
        ? {}
        : { details: { retryAfterSeconds: this.retryAfterSeconds } }),
      code: this.status,
    }
  }
}

export const gone = (version: string, oldest: number) =>
  new StatusError(410, 'Expired', `too old resource version: ${version} (${oldest})`)

export const notFound = (plural: string, name: string) =>
  new StatusError(404, 'NotFound', `${plural} "${name}" not found`)

export const badRequest = (message: string) => new StatusError(400, 'BadRequest', message)
