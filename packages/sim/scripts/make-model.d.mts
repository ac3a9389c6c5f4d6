/** The files of the shipped model folder: name to content. */
export function makeModel(): Map<string, string>
