import {
  type ServerRecord,
  type SettingDifference,
  settingDifferences,
  settingsOfModel,
  statedSettings,
  type WorkerRecord,
} from '@infera/fleet'

/** In what one server differs. */
export interface Disagreement {
  readonly serverId: string
  readonly differences: readonly SettingDifference[]
}

/** In what a worker and a server differ, by their records. */
export function compareWithServer(worker: WorkerRecord, server: ServerRecord): Disagreement | undefined {
  const settings = settingsOfModel(server.settings, worker.model_name)
  const differences = settingDifferences(settings, statedSettings(worker))
  return differences.length === 0 ? undefined : { serverId: server.server_id, differences }
}
