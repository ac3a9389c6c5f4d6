import { defineConfig } from 'tsup'

export default defineConfig({
  entry: {
    index: 'src/index.ts',
    prompt: 'src/prompt.ts',
    // A thread's entry; `startThread` looks for it beside itself, which is in the root of dist/.
    'prompt-thread': 'src/prompt/threads/prompt-thread.ts',
  },
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
