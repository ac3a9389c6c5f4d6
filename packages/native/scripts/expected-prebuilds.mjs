// The one list of binaries that a published package must bring, below `cpp/prebuilds`.
export const expectedPrebuilds = [
  { platform: 'linux', arch: 'x64', libc: 'glibc' },
  { platform: 'linux', arch: 'arm64', libc: 'glibc' },
  { platform: 'linux', arch: 'x64', libc: 'musl' },
  { platform: 'linux', arch: 'arm64', libc: 'musl' },
  { platform: 'darwin', arch: 'x64' },
  { platform: 'darwin', arch: 'arm64' },
]

/** As prebuildify writes it and node-gyp-build looks for it. Linux files always carry their libc, or each would be tried on both. */
export function prebuildPath({ platform, arch, libc }) {
  return `${platform}-${arch}/infera_native${libc ? `.${libc}` : ''}.node`
}
