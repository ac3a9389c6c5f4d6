export interface PrebuildTarget {
  readonly platform: string
  readonly arch: string
  readonly libc?: string
}
export const expectedPrebuilds: readonly PrebuildTarget[]
export function prebuildPath(target: PrebuildTarget): string
