export function requireNode(): void
export function pnpmCommand(): Promise<string[]>
export function pnpm(...args: string[]): Promise<void>
export function installDependencies(): Promise<void>
export function workspacePackages(): { name: string; folder: string; uses: string[] }[]
export function buildStale(): Promise<void>
