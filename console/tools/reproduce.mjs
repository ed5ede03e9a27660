/** Builds the pages in a temporary directory, and compares them byte for byte with those of crates/encke-console/pages/. */

import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { buildPages, PAGES } from './build.mjs';

const out = await mkdtemp(join(tmpdir(), 'encke-console-'));
try {
  await buildPages(out);
  const [built, committed] = await Promise.all([read(out), read(PAGES)]);
  const names = [...new Set([...built.keys(), ...committed.keys()])].sort();
  const differences = names.filter((name) => !(built.get(name) && committed.get(name)?.equals(built.get(name))));
  for (const name of differences) {
    console.error(`${name}: ${built.has(name) ? (committed.has(name) ? 'differs' : 'is not committed') : 'is not built by these sources'}`);
  }
  if (differences.length > 0) {
    console.error('crates/encke-console/pages/ does not match console/: run `npm ci && npm run build` in console/, and commit the result');
    process.exitCode = 1;
  } else {
    console.log(`${names.length} files are reproduced byte for byte`);
  }
} finally {
  await rm(out, { recursive: true, force: true });
}

async function read(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return new Map(await Promise.all(files.map(async (path) => [path.slice(folder.length + 1), await readFile(path)])));
}
