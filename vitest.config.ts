import { defineConfig } from 'vitest/config'
import { mutate } from './test/mutations/mutate.js'

const conditions = ['@infera/source', 'node', 'module', 'default']

export default defineConfig({
  plugins: mutate(process.env.INFERA_MUTATION),
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    // By default one core is kept free, which on two cores means that every file waits for the one before.
    maxWorkers: '100%',
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'], testTimeout: 30_000 },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['{packages,examples}/*/test/**/*.test.ts', 'test/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'packaging',
          include: ['test/packaging/**/*.test.ts'],
          testTimeout: 300_000,
          hookTimeout: 300_000,
          fileParallelism: false,
        },
      },
    ],
  },
})
