import { execFileSync } from 'node:child_process'
import { cpus } from 'node:os'

/** One measured thing. `run` does the work once and returns the value in `unit`. */
export interface Case {
  readonly name: string
  readonly metric: string
  readonly unit: string
  readonly run: () => number | Promise<number>
  /** Name of the case of the same suite that the ratio is taken to. */
  readonly baseline?: string
  /** The floor or ceiling it approaches, in `unit`, and what that is. */
  readonly limit?: { readonly value: number; readonly what: string }
}

const runsDefault = 7
const runsQuick = 5

/**
 * Runs every case in turn, several rounds, so that a drifting machine drifts for all; prints a table, then one JSON line
 * for each case. Flags: `--quick` fewer rounds, `--json` only the JSON lines.
 */
export async function runSuite(suite: string, cases: readonly Case[]): Promise<void> {
  const runs = process.argv.includes('--quick') ? runsQuick : runsDefault
  const values = new Map<string, number[]>(cases.map((one) => [one.name, []]))
  for (const one of cases) await one.run() // warm-up
  for (let round = 0; round < runs; round++) {
    for (const one of cases) values.get(one.name)?.push(await one.run())
  }
  const medians = new Map([...values].map(([name, list]) => [name, median(list)]))
  const rows = cases.map((one) => {
    const value = medians.get(one.name) as number
    const base = one.baseline === undefined ? undefined : medians.get(one.baseline)
    return {
      suite,
      case: one.name,
      metric: one.metric,
      unit: one.unit,
      value: round(value),
      min: round(Math.min(...(values.get(one.name) as number[]))),
      runs,
      baseline: one.baseline ?? null,
      ratio: base === undefined ? null : round(value / base),
      limit: one.limit?.value ?? null,
    }
  })
  if (!process.argv.includes('--json')) printTable(cases, rows)
  for (const row of rows) console.log(JSON.stringify({ ...row, ...machine() }))
}

type Row = {
  case: string
  metric: string
  unit: string
  value: number
  min: number
  baseline: string | null
  ratio: number | null
}

function printTable(cases: readonly Case[], rows: readonly Row[]): void {
  console.table(
    Object.fromEntries(
      rows.map((row, index) => [
        row.case,
        {
          median: row.value,
          min: row.min,
          unit: `${row.unit} (${row.metric})`,
          'ratio to': row.baseline === null ? '' : `${row.ratio} x ${row.baseline}`,
          limit: cases[index]?.limit ? `${cases[index].limit.value}: ${cases[index].limit.what}` : '',
        },
      ]),
    ),
  )
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] as number
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}

function machine(): { machine: string; cores: number; node: string; commit: string } {
  const list = cpus()
  return { machine: list[0]?.model ?? 'unknown', cores: list.length, node: process.version, commit: commit() }
}

let known: string | undefined
function commit(): string {
  try {
    known ??= execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim()
  } catch {
    known = 'unknown' // not a checkout, as in an unpacked archive
  }
  return known
}
