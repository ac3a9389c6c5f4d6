// The files of a model folder, read one by one.
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'

/** A JSON object as a model folder holds it. */
export type JsonObject = Readonly<Record<string, unknown>>

/**
 * @param bytesMax refuses a larger file
 * @returns undefined for a file that is not there
 */
export async function readOptional(
  folder: string,
  name: string,
  bytesMax?: number,
): Promise<string | undefined> {
  const path = join(folder, name)
  let text: string
  try {
    if (bytesMax !== undefined && (await stat(path)).size > bytesMax)
      throw new ModelFolderError(`'${path}' is larger than ${bytesMax} bytes; it is no file of this kind`)
    text = await readFile(path, 'utf8')
  } catch (cause) {
    if (cause instanceof ModelFolderError) throw cause
    const { code } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw new ModelFolderError(`cannot read '${path}'`, { cause })
  }
  return text
}

/** @returns undefined for a file that is not there */
export async function readObject(folder: string, name: string): Promise<JsonObject | undefined> {
  const text = await readOptional(folder, name)
  if (text === undefined) return undefined
  const path = join(folder, name)
  let parsed: unknown
  try {
    parsed = JSON.parse(text.replace(/^\ufeff/, ''))
  } catch (cause) {
    throw new ModelFolderError(`'${path}' is not JSON; it must hold one JSON object`, { cause })
  }
  if (!isJsonObject(parsed)) throw new ModelFolderError(`'${path}' must hold one JSON object`)
  return parsed
}

/** Whether a parsed JSON value is an object: not null, not a list. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
