#!/bin/sh
# What the workflow native-release runs on each platform: a binary below the floor of releases, and the tests of the package
# on nothing but that binary.
set -eu
npx --yes pnpm@12.4.2 install --frozen-lockfile
node scripts/native.mjs --prebuilds --release
rm -rf packages/native/cpp/build
PREBUILDS_ONLY=1 npx vitest run --project integration packages/native/test/life-cycle.test.ts packages/native/test/twin-equality.test.ts
