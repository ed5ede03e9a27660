/**
 * Runs tests side by side, in one process with one browser: most of a test is waiting. `node --test chat.test.js` runs those of a
 * file, one after another. `BROWSER=all` adds the files whose verdict needs other programs or seconds of real time.
 */

import { readdir } from 'node:fs/promises';
import { describe } from 'node:test';

/** More would keep two cores busy, and pages late. */
const ABREAST = 4;

/** One pass through what every user meets: the chat, the client, the built-in page, event streams over TLS. */
const FIRST = ['secure.test.js', 'page.test.js', 'client.test.js', 'chat.test.js'];

/** Backwards, because the longest tests are in the last files: they should not be the last to begin. */
const every = (await readdir(import.meta.dirname)).filter((name) => name.endsWith('.test.js')).sort().reverse();
const files = process.env.BROWSER === 'all' ? every : FIRST;
console.log(`# ${files.length} of ${every.length} files; BROWSER=all runs all`);

describe('in a browser', { concurrency: ABREAST }, async () => {
  for (const file of files) await import(`./${file}`);
});
