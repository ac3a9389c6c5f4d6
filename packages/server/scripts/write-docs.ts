// Run by `pnpm docs`: writes the pages of docs/ that are made from the code.
import { writeFileSync } from 'node:fs'
import { flagsPage } from '../src/commands/flag-table.js'
import { leafCommands, program } from '../src/commands/program.js'

writeFileSync(new URL('../../../docs/environment.md', import.meta.url), flagsPage(leafCommands(program())))
