export function faultsOf(folder: string): string[]
