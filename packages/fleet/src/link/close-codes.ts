/** WebSocket close code for a connection whose worker has opened another one. */
export const takenOverCode = 4001
/** WebSocket close code after a refusal. */
export const refusedCode = 4003
/** WebSocket close code for a connection whose token the server no longer accepts. */
export const tokenRevokedCode = 4004
