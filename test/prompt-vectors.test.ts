import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { canRender, renderAll, router } from '../scripts/vectors/render.mjs'

interface Rendered {
  readonly name: string
  readonly body?: unknown
  readonly rendered?: string
  readonly error?: boolean
}

const committed = (file: string) => JSON.parse(readFileSync(join(router, 'test/vectors', file), 'utf8'))
const withoutIds = ({ name, body, rendered }: Rendered) => ({ name, body, rendered })

describe('the committed prompt vectors', () => {
  test('are what Python renders of their cases', ({ skip }) => {
    if (!canRender()) skip('/usr/bin/python3 has no jinja2 (Debian: python3-jinja2)')
    const made = renderAll()
    expect(committed('qwen3-chat.json').chat.map(withoutIds)).toEqual(made.chat.map(withoutIds))
    expect(committed('jinja.json').cases).toEqual(made.jinja)
  })
})
