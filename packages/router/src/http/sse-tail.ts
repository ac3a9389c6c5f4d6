const tailBytes = 64
const nothing = new Uint8Array(0)

/** The last few bytes of an event stream: whether it stands between two events, and whether it has said that it is done. */
export class SseTail {
  #tail: Uint8Array = nothing

  push(chunk: Uint8Array): void {
    if (chunk.length >= tailBytes) this.#tail = chunk.subarray(-tailBytes)
    else if (chunk.length > 0) this.#tail = Buffer.concat([this.#tail, chunk]).subarray(-tailBytes)
  }

  get isBetweenEvents(): boolean {
    return this.#tail.length === 0 || /(\n\n|\r\r|\r\n\r\n)$/.test(this.#text)
  }

  /** The stream's own end mark was the last thing in it. What breaks after it takes nothing from the client. */
  get isDone(): boolean {
    return /(^|[\r\n])data: ?\[DONE\][\r\n]*$/.test(this.#text)
  }

  get #text(): string {
    return Buffer.from(this.#tail.buffer, this.#tail.byteOffset, this.#tail.length).toString('latin1')
  }
}
