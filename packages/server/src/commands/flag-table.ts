import type { Command, Option } from 'commander'

/** The manual's page on flags and variables, from the commands themselves. */
export function flagsPage(commands: readonly Command[]): string {
  return `# Flags and environment variables

Made by \`pnpm docs\` from the commands themselves; \`infera <command> --help\` says the same.

What a flag says wins over its variable, that over the file of \`--config\`, and that over the default. The file is YAML or JSON: the
names of flags without their dashes and their values, a list for a flag that may be repeated. A name that does not exist, or a value
that a flag would not take, ends the start with a sentence that says which.

\`\`\`yaml
port: 8000
router-policy: kv-aware
model:
  - qwen3=/models/Qwen3-8B
\`\`\`
${commands.map(section).join('')}`
}

function section(command: Command): string {
  const rows = command.options.map((option) => [
    `\`${option.flags.replaceAll('|', '\\|')}\``,
    option.envVar === undefined ? '' : `\`${option.envVar}\``,
    defaultOf(option),
    option.description + (option.argChoices ? `: ${option.argChoices.join(', ')}` : ''),
  ])
  return `
## infera ${nameOf(command)}

${command.description()}

${[['flag', 'variable', 'default', 'meaning'], ['---', '---', '---', '---'], ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n')}
`
}

function nameOf(command: Command): string {
  const parent = command.parent
  return parent?.parent ? `${nameOf(parent)} ${command.name()}` : command.name()
}

function defaultOf({ defaultValue }: Option): string {
  if (defaultValue === undefined || defaultValue === false) return ''
  if (Array.isArray(defaultValue)) return defaultValue.length === 0 ? '' : defaultValue.join(', ')
  return String(defaultValue)
}
