/** @param message the belief that would be false; a failure is our fault, or that of a part that was plugged in */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(`invariant broken: ${message}`)
}
