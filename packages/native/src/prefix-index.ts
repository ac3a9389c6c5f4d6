import { UnknownHandleError } from './errors.js'
import { loadAddon } from './load-addon.js'
import { NativePrefixIndex } from './native-index.js'
import { indexSettings } from './options.js'
import type { PrefixIndex, PrefixIndexOptions } from './ports.js'
import { TwinPrefixIndex } from './twin/prefix-index.js'

/** Twins of this thread by handle, so that a handle opens its index whichever implementation serves. */
const twins = new Map<string, WeakRef<TwinPrefixIndex>>()
const forgetTwin = new FinalizationRegistry<string>((handle) => twins.delete(handle))

/**
 * An index without targets: the native one, or its twin where `nativeStatus()` says so.
 * @throws NativeError `INFERA_NATIVE_OPTIONS` naming the option and its range; `INFERA_NATIVE_BOUND` without memory
 */
export function createPrefixIndex(options: PrefixIndexOptions = {}): PrefixIndex {
  const settings = indexSettings(options)
  const { addon } = loadAddon()
  if (addon !== undefined) return NativePrefixIndex.create(addon, settings)
  const twin = new TwinPrefixIndex(settings)
  twins.set(twin.handle, new WeakRef(twin))
  forgetTwin.register(twin, twin.handle)
  return twin
}

/**
 * The index that another part of this process made, in whatever thread; both work on the same blocks. It lives for as long
 * as any thread holds it, or a view of it. Twins are found in their own thread alone.
 * @param handle `PrefixIndex.handle`
 * @throws NativeError `INFERA_NATIVE_UNKNOWN_HANDLE`
 */
export function openPrefixIndex(handle: string): PrefixIndex {
  const { addon } = loadAddon()
  const index = addon === undefined ? twins.get(handle)?.deref() : NativePrefixIndex.open(addon, handle)
  if (index !== undefined) return index
  const where =
    addon === undefined ? 'this thread (without the addon, threads cannot share one)' : 'this process'
  throw new UnknownHandleError(`no index of ${where} has this handle, or nobody holds it any more`)
}
