import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ApiCall } from './faults.js'
import type { KubeApi } from './kube-api.js'
import { badRequest, gone, type KubeObject, notFound, StatusError } from './objects.js'
import { jsonPatch, mergePatch, strategicPatch } from './patches.js'
import { fieldMatcher, labelMatcher, type Matcher } from './selectors.js'
import type { KubeStore, ObjectDraft } from './store.js'

/** Where a path leads among the objects. */
export interface Route {
  readonly group: string
  readonly plural: string
  readonly namespace: string | undefined
  readonly name: string | undefined
  readonly subresource: string | undefined
}

const objectPath =
  /^\/(?:api\/v1|apis\/([^/]+)\/[^/]+)(?:\/namespaces\/([^/]+))?\/([^/]+)(?:\/([^/]+))?(?:\/([^/]+))?$/

export function readCall(
  request: IncomingMessage,
  url: URL,
  body: string,
): { call: ApiCall; route: Route | undefined } {
  const match = objectPath.exec(url.pathname)
  const route: Route | undefined = match
    ? {
        group: match[1] ?? '',
        namespace: match[2] === undefined ? undefined : decodeURIComponent(match[2]),
        plural: match[3] ?? '',
        name: match[4] === undefined ? undefined : decodeURIComponent(match[4]),
        subresource: match[5],
      }
    : undefined
  const call: ApiCall = {
    verb: verbOf(request.method ?? 'GET', url, route),
    resource: route?.plural ?? '',
    namespace: route?.namespace,
    name: route?.name,
    subresource: route?.subresource,
    query: url.searchParams,
    authorization: request.headers.authorization,
    contentType: (request.headers['content-type'] ?? '').split(';')[0] ?? '',
    body,
  }
  return { call, route }
}

function verbOf(method: string, url: URL, route: Route | undefined): ApiCall['verb'] {
  if (!route) return 'discover'
  if (method === 'POST') return 'create'
  if (method === 'PUT') return 'update'
  if (method === 'PATCH') return 'patch'
  if (method === 'DELETE') return 'delete'
  if (/^(true|1)$/.test(url.searchParams.get('watch') ?? '')) return 'watch'
  return route.name === undefined ? 'list' : 'get'
}

/** @throws StatusError whatever the API would say no with */
export function answerCall(api: KubeApi, call: ApiCall, route: Route, response: ServerResponse): void {
  if (route.plural === 'namespaces' && route.group === '') {
    send(response, 200, namespaceOf(route))
    return
  }
  const store = api.store(route.group, route.plural)
  if (route.subresource !== undefined && !(route.subresource === 'status' && store.resource.hasStatus)) {
    throw notFound(`${route.plural}/${route.subresource}`, route.name ?? '')
  }
  if (call.verb === 'watch') {
    // Whoever left during a wait would never be missed.
    if (!response.destroyed) watch(api, store, call, response)
  } else send(response, call.verb === 'create' ? 201 : 200, resultOf(api, store, call))
}

function resultOf(api: KubeApi, store: KubeStore, call: ApiCall): object {
  const { namespace = 'default', name = '' } = call
  if (call.verb === 'list') return list(api, store, call)
  if (call.verb === 'create') return create(store, call)
  if (call.verb === 'get') return store.get(namespace, name)
  if (call.verb === 'delete') {
    const graceSeconds = graceOf(call, store.get(namespace, name))
    const result = store.terminate(namespace, name, graceSeconds)
    api.removeAfterGrace(store, namespace, name, graceSeconds)
    return result
  }
  const change = call.verb === 'patch' ? patchOf(call) : () => parse(call.body) as KubeObject
  return store.update(namespace, name, (object) => {
    const changed = change(object)
    // Each of the two paths writes its own half.
    if (call.subresource === 'status') return { ...object, status: changed.status ?? {} }
    if (!store.resource.hasStatus) return changed
    const { status: _ignored, ...rest } = changed
    return object.status === undefined ? rest : { ...rest, status: object.status }
  })
}

function namespaceOf({ name }: Route): object {
  if (name === undefined) throw notFound('namespaces', '')
  return { kind: 'Namespace', apiVersion: 'v1', metadata: { name } }
}

function list(api: KubeApi, store: KubeStore, call: ApiCall): object {
  const limit = Number(call.query.get('limit') ?? 0)
  const token = call.query.get('continue')
  if (token) return api.pages.next(store.resource, token, limit)
  const objects = store.list(call.namespace, matcherOf(call))
  return api.pages.first(store.resource, objects, api.version, limit)
}

function watch(api: KubeApi, store: KubeStore, call: ApiCall, response: ServerResponse): void {
  const asked = call.query.get('resourceVersion') ?? ''
  const matches = matcherOf(call)
  const startsNow = asked === '' || asked === '0'
  if (!startsNow && !/^\d+$/.test(asked)) throw badRequest(`invalid resource version "${asked}"`)
  // Opening comes after the check, so that a refusal can still be a status.
  const open = () =>
    api.openWatch(response, {
      resource: store.resource,
      version: () => api.version,
      wantsBookmarks: call.query.get('allowWatchBookmarks') === 'true',
      bookmarkEveryMs: api.options.bookmarkEveryMs ?? 0,
      timeoutSeconds: Number(call.query.get('timeoutSeconds') ?? 0),
    })
  const scope = { namespace: call.namespace, matches, version: startsNow ? api.version : Number(asked) }
  try {
    // A first pass only asks whether the history reaches back that far.
    store.watch(scope, () => {})()
  } catch (error) {
    if (!(error instanceof StatusError) || api.options.expiredAs === 'status') throw error
    const refused = open()
    refused.send({ type: 'ERROR', object: gone(asked, api.version).toStatus() })
    refused.end()
    return
  }
  const opened = open()
  if (startsNow) {
    for (const object of store.list(call.namespace, matches)) opened.send({ type: 'ADDED', object })
  }
  const stop = store.watch(scope, (event) => opened.send(event))
  response.on('close', stop)
}

function create(store: KubeStore, call: ApiCall): KubeObject {
  const draft = parse(call.body) as ObjectDraft
  if (typeof draft.metadata?.name !== 'string') throw badRequest('name is required')
  const metadata = { ...draft.metadata, ...(call.namespace ? { namespace: call.namespace } : {}) }
  return store.create({
    ...draft,
    metadata,
    ...(store.resource.hasStatus ? { status: { phase: 'Pending' } } : {}),
  })
}

function patchOf(call: ApiCall): (object: KubeObject) => KubeObject {
  const patch = parse(call.body)
  const apply = {
    'application/merge-patch+json': mergePatch,
    'application/strategic-merge-patch+json': strategicPatch,
    'application/json-patch+json': jsonPatch,
  }[call.contentType]
  if (!apply) {
    throw new StatusError(
      415,
      'UnsupportedMediaType',
      `the body of the request was in an unknown format: ${call.contentType}`,
    )
  }
  return (object) => {
    const patched = apply(object, patch) as KubeObject
    const annotations = Object.entries(patched.metadata?.annotations ?? {})
    const sizeBytes = annotations.reduce((sum, pair) => sum + Buffer.byteLength(pair.join('')), 0)
    if (sizeBytes > 262_144) {
      throw new StatusError(422, 'Invalid', 'metadata.annotations: Too long: must have at most 262144 bytes')
    }
    if (annotations.some(([, value]) => typeof value !== 'string')) {
      throw badRequest('annotations must be strings')
    }
    return patched
  }
}

function graceOf(call: ApiCall, object: KubeObject): number {
  const body = call.body === '' ? {} : (parse(call.body) as { gracePeriodSeconds?: number })
  const fromSpec = object.spec?.terminationGracePeriodSeconds
  const asked = body.gracePeriodSeconds ?? call.query.get('gracePeriodSeconds') ?? fromSpec ?? 30
  return Number(asked)
}

function matcherOf(call: ApiCall): Matcher {
  const labels = labelMatcher(call.query.get('labelSelector') ?? '')
  const fields = fieldMatcher(call.query.get('fieldSelector') ?? '')
  return (object) => labels(object) && fields(object)
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch (error) {
    throw badRequest(`the body is not JSON: ${String(error)}`)
  }
}

function send(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}
