/**
 * Builds dist/encke.js, which is committed so that Encke builds without Node.
 *
 *   node build.mjs           writes dist/encke.js, and the modules that tests import to out/
 *   node build.mjs --check   writes out/ only, and fails if dist/encke.js differs from the result, or is too large
 */

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';

/** Maximum compressed size: Encke serves the file compressed. */
const COMPRESSED_BYTES_MAX = 12 * 1024;
const BANNER = '// The client of Encke: built from client/src by client/build.mjs. MIT or Apache-2.0.';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const common = { target: 'es2022', format: 'esm', charset: 'utf8', logLevel: 'warning', absWorkingDir: here('.') };
/** Names are kept, for readable stack traces. */
const short = { minifySyntax: true, minifyWhitespace: true, lineLimit: 120 };
const bundle = { ...common, ...short, entryPoints: ['src/encke.ts'], bundle: true, banner: { js: BANNER }, write: false };

const modules = ['encke', 'line', 'pool', 'publish', 'tabs', 'transports', 'wire'].map((name) => `src/${name}.ts`);
await build({ ...common, entryPoints: modules, outdir: 'out' });

const built = (await build(bundle)).outputFiles[0];
const size = gzipSync(built.contents, { level: 9 }).length;
if (size > COMPRESSED_BYTES_MAX) fail(`encke.js has ${size} bytes compressed; ${COMPRESSED_BYTES_MAX} are allowed`);

if (process.argv.includes('--check')) {
  const kept = await readFile(here('dist/encke.js'), 'utf8').catch(() => '');
  if (built.text !== kept) fail('dist/encke.js is not what src gives: run `npm run build` in client/');
} else {
  await mkdir(here('dist'), { recursive: true });
  await writeFile(here('dist/encke.js'), built.contents);
}
console.log(`encke.js: ${built.contents.length} bytes, ${size} compressed`);

function fail(text) {
  console.error(`build: ${text}`);
  process.exit(1);
}
