/**
 * Settings that a server and its workers must share, by name. A worker states those it was given or knows for a fact;
 * a name that only one side states is no disagreement.
 */
export type FleetSettings = Readonly<Record<string, string | number | boolean | null>>

export interface SettingDifference {
  readonly name: string
  readonly server: string | number | boolean | null
  readonly worker: string | number | boolean | null
}

/** The first setting, in name order, on which both sides speak and differ; undefined when they agree. */
export function firstDifference(server: FleetSettings, worker: FleetSettings): SettingDifference | undefined {
  for (const name of Object.keys(server).sort()) {
    const serverValue = server[name]
    const workerValue = worker[name]
    if (serverValue === undefined || workerValue === undefined || serverValue === workerValue) continue
    return { name, server: serverValue, worker: workerValue }
  }
  return undefined
}
