export function highestVersion(bytes: Buffer, name: string): string | undefined
export function compareVersions(one: string, other: string): number
export function targetOf(bytes: Buffer): { platform: string; arch: string | undefined } | undefined
export const releaseFloor: Readonly<Record<string, string>>
export const localFloor: Readonly<Record<string, string>>
export function aboveFloor(bytes: Buffer, floor: Readonly<Record<string, string>>): string[]
