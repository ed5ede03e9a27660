/**
 * Checks what the compiler cannot: the catalogues, literal text in templates, inline styles, licences, and the bundle's size.
 *
 * Exits with 1 and one line per finding.
 */

import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { parse } from 'svelte/compiler';

import { buildPages } from './build.mjs';

const CONSOLE = fileURLToPath(new URL('..', import.meta.url));
/** Issue 29: the pages together, compressed. */
const TOTAL_MAX = 120_000;
const FIRST = 'en';
const PLURALS = new Set(['zero', 'one', 'two', 'few', 'many', 'other']);
/** Attributes whose value a person reads or hears. */
const SPOKEN = new Set(['title', 'label', 'alt', 'placeholder', 'aria-label', 'aria-description', 'aria-valuetext', 'aria-roledescription', 'caption', 'text', 'help', 'what', 'action']);
const findings = [];

const sources = (await readdir(join(CONSOLE, 'src'), { recursive: true })).filter((name) => /\.(svelte|ts)$/.test(name)).map((name) => join(CONSOLE, 'src', name));
const texts = new Map(await Promise.all(sources.map(async (path) => [relative(CONSOLE, path), await readFile(path, 'utf8')])));

/** The messages of a language by key: a text, or an object by plural form. */
async function catalog(language) {
  const messages = new Map();
  const folder = join(CONSOLE, 'src/messages', language);
  for (const file of (await readdir(folder)).filter((name) => name.endsWith('.json'))) {
    flatten(file.slice(0, -'.json'.length), JSON.parse(await readFile(join(folder, file), 'utf8')), messages);
  }
  return messages;
}

function flatten(key, value, messages) {
  if (typeof value === 'string') messages.set(key, [value]);
  else if (typeof value.other === 'string' && Object.keys(value).every((form) => PLURALS.has(form))) messages.set(key, Object.values(value));
  else for (const [name, part] of Object.entries(value)) flatten(`${key}.${name}`, part, messages);
}

/** The names of a message's parameters. Every form must have all of those of `other`, apart from `n`. */
const parameters = (forms) => [...new Set(forms.flatMap((form) => [...form.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)))].sort().join(' ');

const languages = (await readdir(join(CONSOLE, 'src/messages'), { withFileTypes: true })).filter((entry) => entry.isDirectory()).map(({ name }) => name);
const catalogs = new Map(await Promise.all(languages.map(async (language) => [language, await catalog(language)])));
const first = catalogs.get(FIRST);
for (const [language, messages] of catalogs) {
  for (const key of first.keys()) if (!messages.has(key)) findings.push(`src/messages/${language}: ${key} is missing`);
  for (const [key, forms] of messages) {
    if (!first.has(key)) findings.push(`src/messages/${language}: ${key} is not in ${FIRST}`);
    else if (parameters(forms) !== parameters(first.get(key))) findings.push(`src/messages/${language}: ${key} has other parameters than in ${FIRST}: {${parameters(forms)}}`);
  }
}

// Keys in use. `t(`a.${x}.b`)` uses all keys that start with "a." and end with ".b".
const used = new Set();
for (const [path, text] of texts) {
  for (const [, quote, key] of text.matchAll(/\b(?:t|known)\(\s*(['"`])((?:(?!\1)[^\\])*)\1/g)) use(path, key, quote === '`');
  // A key in a table of the source, to be translated later: /* key */ 'overview.x'.
  for (const [, key] of text.matchAll(/\/\* key \*\/ '([^']+)'/g)) use(path, key, false);
  for (const [, call] of text.matchAll(/\b(?:t|known)\(\s*([^'"`\s)][^,)]*)/g)) {
    // t(condition ? 'a' : 'b')
    const [, left, right] = /\?\s*'([^']+)'\s*:\s*'([^']+)'\s*$/.exec(call) ?? [];
    if (left && right) {
      use(path, left, false);
      use(path, right, false);
    } else if (path !== 'src/lib/i18n.svelte.ts' && !/\bkey\b/.test(call)) findings.push(`${path}: the key of t(${call}…) cannot be checked: use a text, a template, or a variable named "key" filled from /* key */ '…'`);
  }
}

function use(path, key, template) {
  if (!template || !key.includes('${')) {
    if (first.has(key)) used.add(key);
    else findings.push(`${path}: the message ${key} does not exist`);
    return;
  }
  const pattern = new RegExp(`^${key.split(/\$\{[^}]*\}/).map((part) => part.replace(/[.*+?^$()|[\]\\{}]/g, '\\$&')).join('[^.]+')}$`);
  const keys = [...first.keys()].filter((name) => pattern.test(name));
  if (keys.length === 0) findings.push(`${path}: no message matches ${key}`);
  for (const name of keys) used.add(name);
}
for (const key of first.keys()) if (!used.has(key)) findings.push(`src/messages/${FIRST}: ${key} is not used`);

// Templates: no text outside of catalogues, no inline style or handler.
for (const [path, text] of texts) {
  if (!path.endsWith('.svelte')) continue;
  const line = (node) => `${path}:${text.slice(0, node.start).split('\n').length}`;
  const walk = (node, quiet) => {
    if (node === null || typeof node !== 'object') return;
    if (Array.isArray(node)) return void node.forEach((part) => walk(part, quiet));
    // Commands, keys and marked names are the same in every language.
    const untranslated = quiet || ['code', 'kbd', 'style', 'script'].includes(node.name) || node.attributes?.some?.((attribute) => attribute.name === 'translate');
    if (node.type === 'Text' && !quiet && /\p{L}{2}/u.test(node.data)) findings.push(`${line(node)}: "${node.data.trim()}" is not in a catalogue`);
    if (node.type === 'Attribute') {
      if (node.name === 'style') findings.push(`${line(node)}: the Content-Security-Policy forbids style attributes; use a class or style:property`);
      for (const part of Array.isArray(node.value) ? node.value : []) {
        if (part.type === 'Text' && SPOKEN.has(node.name) && /\p{L}{2}/u.test(part.data)) findings.push(`${line(node)}: ${node.name}="${part.data}" is not in a catalogue`);
      }
      return walk(node.value, true);
    }
    if (['TransitionDirective', 'AnimateDirective'].includes(node.type)) findings.push(`${line(node)}: the Content-Security-Policy forbids the style sheets of transitions; use CSS`);
    for (const [name, part] of Object.entries(node)) if (!['parent', 'metadata', 'loc'].includes(name)) walk(part, untranslated);
  };
  walk(parse(text, { modern: true }).fragment, false);
}

// The bundle. It is built here, so that licences and size are those of these sources.
const out = await mkdtemp(join(tmpdir(), 'encke-console-'));
try {
  const files = await buildPages(out);
  const total = files.reduce((sum, { gzip }) => sum + gzip.length, 0);
  if (total > TOTAL_MAX) findings.push(`the pages have ${total} bytes compressed; the limit is ${TOTAL_MAX}`);
  console.log(`${first.size} messages in ${languages.length} languages, ${texts.size} sources; the pages have ${total} of at most ${TOTAL_MAX} bytes`);
} finally {
  await rm(out, { recursive: true, force: true });
}

for (const finding of findings) console.error(finding);
if (findings.length > 0) process.exit(1);
