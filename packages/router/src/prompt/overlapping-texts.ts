/** Those of the texts that hold, are held by, or can partly cover another of them, or themselves. */
export function overlappingTexts(texts: readonly string[]): ReadonlySet<string> {
  const overlapping = new Set<string>()
  const known = new Set<string>()
  const heads = new Set<string>()
  for (const text of texts) {
    if (known.has(text)) overlapping.add(text)
    known.add(text)
    for (let length = 1; length < text.length; length++) heads.add(text.slice(0, length))
  }
  const joints = new Set<string>() // heads of some text that another, or the same, ends with
  for (const text of known) {
    for (let start = 0; start < text.length; start++) {
      const tail = text.slice(start)
      if (start > 0 && heads.has(tail)) {
        overlapping.add(text)
        joints.add(tail)
      }
      for (let length = 1; length <= tail.length; length++) {
        const inner = tail.slice(0, length)
        if (length === text.length || !known.has(inner)) continue
        overlapping.add(text)
        overlapping.add(inner)
      }
    }
  }
  for (const text of known)
    for (let length = 1; length < text.length; length++)
      if (joints.has(text.slice(0, length))) overlapping.add(text)
  return overlapping
}
