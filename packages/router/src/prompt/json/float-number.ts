/**
 * A JSON number that Python reads as a float although its amount is whole: `1.0`, `1e3`. As a JavaScript number it could
 * not be told from an int, which prints otherwise.
 */
export class FloatNumber {
  /** @param value a whole number */
  constructor(readonly value: number) {}

  toJSON(): number {
    return this.value
  }
}
