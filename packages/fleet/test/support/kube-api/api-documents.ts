import { apiVersionOf, type KubeResource } from './objects.js'

const verbs = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch']

/** What `/version`, `/api`, `/apis` and the lists of a group's resources say; undefined for other paths. */
export function apiDocument(path: string, resources: readonly KubeResource[]): object | undefined {
  if (path === '/version') return { major: '1', minor: '32', gitVersion: 'v1.32.0', platform: 'linux/amd64' }
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] }
  if (path === '/apis') {
    const groups = [...new Set(resources.map((each) => each.group).filter((group) => group !== ''))]
    return {
      kind: 'APIGroupList',
      apiVersion: 'v1',
      groups: groups.map((name) => {
        const versions = resources.filter((each) => each.group === name).map((each) => each.version)
        const listed = [...new Set(versions)].map((version) => ({
          groupVersion: `${name}/${version}`,
          version,
        }))
        return { name, versions: listed, preferredVersion: listed[0] }
      }),
    }
  }
  const match = /^(?:\/api\/(v1)|\/apis\/([^/]+\/[^/]+))$/.exec(path)
  const groupVersion = match?.[1] ?? match?.[2]
  const members = resources.filter((each) => apiVersionOf(each) === groupVersion)
  if (groupVersion === undefined || (members.length === 0 && groupVersion !== 'v1')) return undefined
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion,
    resources: members.flatMap((each) => [
      {
        name: each.plural,
        singularName: each.singular,
        namespaced: true,
        kind: each.kind,
        shortNames: each.shortNames,
        verbs,
      },
      ...(each.hasStatus
        ? [
            {
              name: `${each.plural}/status`,
              singularName: '',
              namespaced: true,
              kind: each.kind,
              verbs: ['get', 'patch', 'update'],
            },
          ]
        : []),
    ]),
  }
}
