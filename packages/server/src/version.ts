import { createRequire } from 'node:module'

/** Version of this package; read from its manifest so that there is one place that says it. */
export const version: string = (createRequire(import.meta.url)('../package.json') as { version: string })
  .version
