import { defineConfig } from 'tsup'

export default defineConfig({
  entry: {
    index: 'src/index.ts',
    internal: 'src/internal.ts',
    'etcd/index': 'src/etcd/index.ts',
    'kubernetes/index': 'src/kubernetes/index.ts',
    'nats/index': 'src/nats/index.ts',
    'zmq/index': 'src/zmq/index.ts',
  },
  format: ['esm'],
  target: 'node20',
  sourcemap: true,
  clean: true,
  dts: true,
  tsconfig: 'tsconfig.build.json',
})
