// What a built file says about itself, read from its bytes: the same on every machine, for every target, without objdump.

/** The highest of the versions `<name>_<version>` that a binary was linked against. Undefined when it names none. */
export function highestVersion(bytes, name) {
  // Linked symbol versions are plain text in the table of strings, which stripping leaves alone.
  const found = bytes.toString('latin1').matchAll(new RegExp(`\\b${name}_(\\d+(?:\\.\\d+)+)\\0`, 'g'))
  return [...found]
    .map((match) => match[1])
    .sort(compareVersions)
    .at(-1)
}

/** Negative when the first version is the lower one. */
export function compareVersions(one, other) {
  const others = other.split('.').map(Number)
  for (const [place, number] of one.split('.').map(Number).entries()) {
    const difference = number - (others[place] ?? -1)
    if (difference !== 0) return difference
  }
  return one.split('.').length - others.length
}

const elfMachines = { 62: 'x64', 183: 'arm64' }
const machoCpus = { 16777223: 'x64', 16777228: 'arm64' }

/** `{ platform, arch }` of an ELF or Mach-O file; undefined for anything else. */
export function targetOf(bytes) {
  if (bytes.length < 32) return undefined
  if (bytes.readUInt32BE(0) === 0x7f454c46)
    return { platform: 'linux', arch: elfMachines[bytes.readUInt16LE(18)] }
  if (bytes.readUInt32LE(0) === 0xfeedfacf)
    return { platform: 'darwin', arch: machoCpus[bytes.readUInt32LE(4)] }
  return undefined
}

/** Highest versions a release may need: those of the systems that Node 20 itself supports (glibc 2.28, gcc 8). */
export const releaseFloor = { GLIBC: '2.28', GLIBCXX: '3.4.25' }
/** What a build on Debian 12 reaches, good for tests. */
export const localFloor = { GLIBC: '2.34' }

/** Which versions a binary needs beyond a floor, as sentences; empty when it is fine. */
export function aboveFloor(bytes, floor) {
  return Object.entries(floor).flatMap(([name, max]) => {
    const needed = highestVersion(bytes, name)
    return needed !== undefined && compareVersions(needed, max) > 0
      ? [`needs ${name} ${needed}, above the floor of ${max}`]
      : []
  })
}
