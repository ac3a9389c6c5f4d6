/** WebSocket close code for a connection whose worker has opened another one. */
export const takenOverCode = 4001
/** WebSocket close code after a refusal. */
export const refusedCode = 4003
