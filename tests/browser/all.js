/**
 * Runs all tests side by side, in one process with one browser: most of a test is waiting. `node --test chat.test.js` runs those of
 * a file, one after another.
 */

import { readdir } from 'node:fs/promises';
import { describe } from 'node:test';

/** More would keep two cores busy, and pages late. */
const ABREAST = 4;

/** Backwards, because the longest tests are in the last files: they should not be the last to begin. */
const files = (await readdir(import.meta.dirname)).filter((name) => name.endsWith('.test.js')).sort().reverse();

describe('in a browser', { concurrency: ABREAST }, async () => {
  for (const file of files) await import(`./${file}`);
});
