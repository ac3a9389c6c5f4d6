export const router: string
export function canRender(): boolean
export function renderAll(): {
  versions: Record<string, string>
  now: number[]
  chat: { name: string; body: unknown; rendered: string }[]
  jinja: { name: string; rendered?: string; error?: boolean }[]
}
