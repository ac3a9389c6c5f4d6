// Preloaded into a process: from then on nothing of a package called @infera/native can be loaded, by name or as an addon.
import { readFileSync } from 'node:fs'
import Module, { register } from 'node:module'
import { dirname, join } from 'node:path'

const hooks = `
export async function resolve(specifier, context, next) {
  if (specifier === '@infera/native' || specifier.startsWith('@infera/native/')) {
    throw Object.assign(new Error('taken away: ' + specifier), { code: 'ERR_TAKEN_AWAY' })
  }
  return next(specifier, context)
}`
register(`data:text/javascript,${encodeURIComponent(hooks)}`)

const resolveFilename = Module._resolveFilename
Module._resolveFilename = (request, ...rest) => {
  if (request === '@infera/native' || request.startsWith('@infera/native/')) {
    throw Object.assign(new Error(`taken away: ${request}`), { code: 'ERR_TAKEN_AWAY' })
  }
  return resolveFilename.call(Module, request, ...rest)
}

const dlopen = process.dlopen
process.dlopen = (module, file, ...rest) => {
  if (packageOf(file) === '@infera/native') {
    throw Object.assign(new Error(`taken away: ${file}`), { code: 'ERR_TAKEN_AWAY' })
  }
  return dlopen.call(process, module, file, ...rest)
}

/** Name of the package that a file belongs to; undefined when it belongs to none. */
function packageOf(file) {
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    try {
      const { name } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
      if (name !== undefined) return name
    } catch {
      // No package.json here, so the one above counts.
    }
  }
  return undefined
}
