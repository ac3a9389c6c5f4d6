import { Command, Option } from 'commander'
import { ServerError } from '../errors.js'
import { logLevels } from '../logging.js'
import { version } from '../version.js'
import { fleetOptions } from './fleet-flags.js'
import { joinTokenOptions } from './join-flags.js'
import { collect, collectList, ratio, seconds, wholeNumber } from './option-values.js'
import { applyProfile } from './profile.js'
import { withoutEffect } from './reference-flags.js'
import { runServer } from './server-command.js'
import { SettingsCommand } from './settings-file.js'
import { runUp } from './up-command.js'
import { runWorkerSim } from './worker-sim-command.js'

/** Builds and runs the `infera` command line. Ends the process with 1 and one clear line when a command fails. */
export async function run(argv: readonly string[]): Promise<void> {
  try {
    await program().parseAsync(argv)
  } catch (error) {
    console.error(explain(error))
    process.exitCode ??= 1
  }
}

/** A known mistake is its sentence alone; anything else is our bug and comes with its stack. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = (error as { code?: unknown }).code
  const isOurs = error instanceof ServerError || (typeof code === 'string' && code.startsWith('INFERA_'))
  return isOurs ? `infera: ${error.message} (${String(code)})` : (error.stack ?? error.message)
}

/** The command line, not yet run. */
export function program(): Command {
  const infera = new Command('infera')
    .description('One OpenAI-compatible endpoint in front of many LLM workers, placed by KV-cache locality.')
    .version(version)
    .showHelpAfterError('(add --help for what can be given)')
  infera.addCommand(withServerOptions(upCommand()))
  infera.addCommand(withFleetOptions(withServerOptions(serverCommand())))
  infera.addCommand(workerCommand())
  return infera
}

/** The commands that do something by themselves, in order. */
export function leafCommands(command: Command): readonly Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leafCommands)
}

function upCommand(): Command {
  return new SettingsCommand('up')
    .description(
      'Run a whole fleet on this machine: the server and simulated workers, each a process of its own.',
    )
    .option('--workers <count>', 'simulated workers to start', wholeNumber(1, 256), 4)
    .option('--time-scale <factor>', 'speed of simulated time: 1 real, 0 instant', ratio, 1)
    .option('--kv-blocks <count>', 'KV blocks of each worker', wholeNumber(8, 10_000_000), 8000)
    .option('--json', 'print one line {"event":"ready","url":...} when ready, and nothing else', false)
    .addHelpText(
      'after',
      `
Examples:
  infera up                         4 workers behind http://127.0.0.1:8000
  infera up --port 0 --json         any free port; the ready line says which
  infera up --workers 8 --router-policy round-robin`,
    )
    .action((flags) => runUp(flags))
}

function serverCommand(): Command {
  return new SettingsCommand('server')
    .hook('preAction', (_program, command) => applyProfile(command))
    .description('Run the server alone; workers join it by link, or are named with --worker.')
    .option(
      '--worker <model=url>',
      'an HTTP worker that does not announce itself, as in llama=http://10.0.0.5:8000; repeatable',
      collect,
      [],
    )
    .option('--json', 'print one line {"event":"ready","url":...} when ready, and nothing else', false)
    .addHelpText(
      'after',
      `
Examples:
  infera server --model qwen3=/models/Qwen3-8B
  infera server --worker llama=http://127.0.0.1:9000 --router-policy least-loaded
  infera server --discovery-backend etcd --etcd-endpoint 10.0.0.1:2379 --request-transport nats --kv-event-transport zmq
  infera server --profile infera --k8s-label-selector infera.amd.com/deployment=chat
  infera server --host 0.0.0.0 --join-token-file /run/secrets/join-token --tls-cert server.pem --tls-key server.key

To change the join token: add the new one to the file of every server, put it in those of the workers, then take the old
one away. Workers that still bring that one are cut off and come back with the new one.

Workers on other machines reach the server only if it listens wider, as in --host 0.0.0.0; give a join token then.`,
    )
    .addOption(
      new Option(
        '--profile <name>',
        'defaults of Infera 0.1: its backends, its transports, every interface',
      ).choices(['infera']),
    )
    .action((flags, command) => runServer(flags, command))
}

function workerCommand(): Command {
  const sim = new SettingsCommand('sim', 'INFERA_WORKER_')
    .description(
      'Run one simulated engine: join it to servers, announce it in a registry, or let it serve HTTP by itself.',
    )
    .option(
      '--join <urls>',
      'servers to join, as in ws://127.0.0.1:8000, with commas between them; repeatable; a host name stands for all its addresses',
      collectList,
      [],
    )
    .option('--join-ca <file>', 'PEM file of the authority that signed the certificates of wss servers')
    .option(
      '--port <number>',
      'serve the OpenAI API here; 0 picks a free port; with a registry it announces itself there',
      wholeNumber(0, 65_535),
    )
    .option('--host <address>', 'with --port: address to listen on', '127.0.0.1')
    .addOption(
      new Option(
        '--advertise-host <host>',
        'with a registry: the address by which servers reach it; default: POD_IP with kubernetes, else --host',
      ),
    )
    .addOption(
      new Option(
        '--no-strict-fleet',
        'go on where settings differ from those of a server, instead of ending with 78',
      ),
    )
    .addOption(new Option('--no-enable-kv-events', 'with a registry: publish no KV events'))
    .option(
      '--kv-events-bind <url>',
      'with zmq: where KV events are published; port 0 picks a free one',
      'tcp://127.0.0.1:0',
    )
    .option(
      '--kv-events-advertise <url>',
      'with zmq: where servers subscribe to them; default: the advertised host and the port of --kv-events-bind',
    )
    .option('--json', 'with --port: print one line {"event":"ready","url":...} when ready', false)
    .option('--model <name>', 'the name it serves', 'infera-sim')
    .option(
      '--model-folder <folder>',
      'folder with tokenizer.json; default: the small model that comes along',
    )
    .option('--kv-blocks <count>', 'KV blocks of its cache', wholeNumber(8, 10_000_000), 8000)
    .option('--block-size <tokens>', 'tokens per KV block', wholeNumber(1, 4096), 16)
    .option('--time-scale <factor>', 'speed of simulated time: 1 real, 0 instant', ratio, 1)
    .addOption(
      new Option('--drain-timeout <s>', 'how long running requests may take after SIGTERM, seconds')
        .env('INFERA_DRAIN_TIMEOUT')
        .argParser(seconds)
        .default(30),
    )
    .addOption(logLevelOption())
    .addHelpText(
      'after',
      `
Examples:
  infera worker sim --join ws://10.0.0.1:8000,ws://10.0.0.2:8000
  infera worker sim --join ws://infera-servers:8000 --join-token-file /run/secrets/join-token
  infera worker sim --join wss://infera.example:8000 --join-ca ca.pem
  infera worker sim --port 0 --host 10.0.0.5 --discovery-backend etcd --etcd-endpoint 10.0.0.1:2379 \\
    --request-transport http --kv-event-transport zmq --kv-events-bind tcp://10.0.0.5:5557`,
    )
    .action((flags, command) => runWorkerSim(flags, command))
  for (const option of [...joinTokenOptions(), ...fleetOptions('worker'), ...withoutEffect('worker')]) {
    sim.addOption(option)
  }
  return new Command('worker').description('Run one worker.').addCommand(sim)
}

function withFleetOptions(command: Command): Command {
  for (const option of [...fleetOptions('server'), ...withoutEffect('server')]) command.addOption(option)
  return command
}

function withServerOptions(command: Command): Command {
  for (const option of joinTokenOptions()) command.addOption(option)
  return command
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <number>', 'port to listen on; 0 picks a free one', wholeNumber(0, 65_535), 8000)
    .addOption(
      new Option('--router-policy <name>', 'how requests are placed')
        .choices(['kv-aware', 'round-robin', 'least-loaded'])
        .default('kv-aware'),
    )
    .option(
      '--kv-overlap-weight <weight>',
      'price of a prompt block the worker does not hold; 0 ignores caches',
      ratio,
      1,
    )
    .option('--kv-prefill-overlap-weight <weight>', 'the same for prefill workers; default: the same', ratio)
    .option('--kv-decode-overlap-weight <weight>', 'the same for decode workers; default: the same', ratio)
    .addOption(
      new Option('--router-mode <mode>', 'direct is not there in this release')
        .choices(['auto', 'direct'])
        .default('auto'),
    )
    .option(
      '--router-tokenizer-path <folder>',
      'folder of the tokenizer of every model that no --model names',
    )
    .option(
      '--kv-block-size <tokens>',
      'tokens per KV block that every worker must have; default: each its own',
      wholeNumber(1, 1_048_576),
    )
    .addOption(
      new Option(
        '--router-default-retention <level>',
        "how long engines are told to keep a prompt's cache where the client asks for nothing; off tells them nothing",
      )
        .choices(['off', 'none', 'short', 'long'])
        .default('off'),
    )
    .option(
      '--adapter <model=adapter>',
      'a LoRA adapter of a --model that clients ask for by its name; repeatable',
      collect,
      [],
    )
    .option(
      '--model <name=folder>',
      'a model and the folder of its tokenizer.json and chat template; repeatable; default: the simulated model',
      collect,
      [],
    )
    .option(
      '--max-body-bytes <bytes>',
      'largest request body',
      wholeNumber(1, Number.MAX_SAFE_INTEGER),
      134_217_728,
    )
    .option(
      '--request-max-retries <count>',
      'further workers tried before the first byte',
      wholeNumber(0, 16),
      2,
    )
    .option(
      '--first-byte-timeout <ms>',
      'how long a worker may take to its first byte before the next one is tried; 0: as long as it likes',
      wholeNumber(0, 2_147_483_647),
      1_800_000,
    )
    .option(
      '--idle-timeout <ms>',
      'how long a worker may be silent within an answer; 0: as long as it likes',
      wholeNumber(0, 2_147_483_647),
      900_000,
    )
    .option(
      '--shutdown-grace <ms>',
      'how long running requests may take after SIGTERM',
      wholeNumber(0, 86_400_000),
      30_000,
    )
    .option('--tls-cert <file>', 'PEM file of a certificate: serve HTTPS to clients and wss to workers')
    .option('--tls-key <file>', 'PEM file of its key')
    .addOption(logLevelOption())
}

function logLevelOption(): Option {
  return new Option('--log-level <level>', 'least level of the lines on stderr')
    .choices([...logLevels])
    .default('info')
}
