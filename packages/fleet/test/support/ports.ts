import { createServer, connect as dial } from 'node:net'

/** Below 32768: higher ports may be taken by any outgoing connection at any time. */
export async function freePort(): Promise<number> {
  while (true) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const probe = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false))
      probe.listen(port, '127.0.0.1', () => resolve(true))
    })
    if (!isFree) continue
    await new Promise((resolve) => probe.close(resolve))
    return port
  }
}

/** Whether anybody accepts connections there. */
export function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = dial(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
