/**
 * The messages of a language as a list, in the order of `virtual:message-keys`, so that the pages have the keys once, not once per
 * language: 3 kB less.
 *
 *   src/messages/en/channels.json  {"view":{"list":"Channels"},"all":"…"}
 *   virtual:message-keys           "channels{view{list},all}"
 *   virtual:/messages/ja           ["チャンネル","…"]
 */

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MESSAGES = fileURLToPath(new URL('../src/messages', import.meta.url));
/** The language whose keys the others have. */
const FIRST = 'en';
/** The texts of the server. It sends those of the first language, so the pages have the others only: 1 kB less. */
const SERVER = 'server';
const KEYS = 'virtual:message-keys';
const LIST = 'virtual:/messages/';

export function messageLists() {
  return {
    name: 'message-lists',
    resolveId: (id) => (id === KEYS || id.startsWith(LIST) ? id : null),
    async load(id) {
      if (id !== KEYS && !id.startsWith(LIST)) return null;
      const first = await catalog(FIRST, this);
      const value = id === KEYS ? keysOf(first) : listOf(first, await own(id.slice(LIST.length), first, this));
      return `export default ${JSON.stringify(value)};`;
    },
  };
}

/** The messages that the pages have in a language. */
const own = async (language, first, plugin) => (language === FIRST ? { ...first, [SERVER]: {} } : catalog(language, plugin));

/** The files of a language, by name. */
async function catalog(language, plugin) {
  const folder = join(MESSAGES, language);
  const names = (await readdir(folder)).filter((name) => name.endsWith('.json')).sort();
  const files = names.map(async (name) => {
    const path = join(folder, name);
    plugin.addWatchFile(path);
    return [name.slice(0, -'.json'.length), JSON.parse(await readFile(path, 'utf8'))];
  });
  return Object.fromEntries(await Promise.all(files));
}

const FORMS = new Set(['zero', 'one', 'two', 'few', 'many', 'other']);
/** A message is a text, or an object of its plural forms only: a group may have a message `other`, too. */
export const isMessage = (value) => typeof value === 'string' || Object.keys(value).every((form) => FORMS.has(form));

export function keysOf(part) {
  return Object.entries(part)
    .map(([name, value]) => (isMessage(value) ? name : `${name}{${keysOf(value)}}`))
    .join();
}

/** The messages of `part` in the order of `first`. A missing one is `null`; `npm run check` reports it. */
export function listOf(first, part) {
  return Object.entries(first).flatMap(([name, value]) => (isMessage(value) ? [part?.[name] ?? null] : listOf(value, part?.[name])));
}
