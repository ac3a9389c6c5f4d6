import { defineConfig } from 'tsup'

export default defineConfig({
  entry: ['src/index.ts', 'src/prompt.ts'],
  format: ['esm'],
  target: 'node20',
  sourcemap: true,
  clean: true,
  // The face and the twins of @infera/native come along, so that the router works where that optional package, which then only
  // adds the binary, is not installed.
  noExternal: [/^@infera\/native/],
  dts: { resolve: [/^@infera\/native/] },
  tsconfig: 'tsconfig.build.json',
})
