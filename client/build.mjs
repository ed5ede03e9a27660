/**
 * Builds dist/, which is committed: Encke builds without Node, and the package installs from a checkout without a build.
 *
 *   node build.mjs           writes dist/ (scripts, and types in dist/types), and the modules that tests import to out/
 *   node build.mjs --check   writes out/ only, and fails if dist/ differs from the result, or if encke.js is too large
 */

import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
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
const bundle = { ...common, bundle: true, banner: { js: BANNER }, write: false };
/** The hooks import the client, so that a page has it once. */
const apart = {
  name: 'apart',
  setup: ({ onResolve }) => void onResolve({ filter: /^\.\/encke\.js$|^react$|^vue$/ }, ({ path }) => ({ path, external: true })),
};

const modules = ['encke', 'hook', 'line', 'pool', 'publish', 'tabs', 'transports', 'wire'].map((name) => `src/${name}.ts`);
await rm(here('out'), { recursive: true, force: true });
await build({ ...common, entryPoints: modules, outdir: 'out' });

/** The files of dist/, by path. */
const built = new Map();
const [script] = (await build({ ...bundle, ...short, entryPoints: ['src/encke.ts'] })).outputFiles;
built.set('encke.js', script.text);
for (const name of ['react', 'vue']) {
  const [hook] = (await build({ ...bundle, entryPoints: [`src/${name}.ts`], plugins: [apart] })).outputFiles;
  built.set(`${name}.js`, hook.text);
}
execFileSync(process.execPath, [here('node_modules/typescript/bin/tsc'), '--declaration', '--emitDeclarationOnly', '--outDir', 'out/types'], {
  cwd: here('.'),
  stdio: 'inherit',
});
for (const name of await readdir(here('out/types'))) built.set(join('types', name), await readFile(here(`out/types/${name}`), 'utf8'));

const size = gzipSync(script.contents, { level: 9 }).length;
if (size > COMPRESSED_BYTES_MAX) fail(`encke.js has ${size} bytes compressed; ${COMPRESSED_BYTES_MAX} are allowed`);

if (process.argv.includes('--check')) {
  const kept = (await readdir(here('dist'), { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const names = kept.map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(here('dist/').length));
  for (const name of new Set([...names, ...built.keys()])) {
    const text = await readFile(here(`dist/${name}`), 'utf8').catch(() => undefined);
    if (text !== built.get(name)) fail(`dist/${name} is not what src gives: run \`npm run build\` in client/`);
  }
} else {
  await rm(here('dist'), { recursive: true, force: true });
  for (const [name, text] of built) {
    await mkdir(dirname(here(`dist/${name}`)), { recursive: true });
    await writeFile(here(`dist/${name}`), text);
  }
}
console.log(`encke.js: ${script.contents.length} bytes, ${size} compressed`);

function fail(text) {
  console.error(`build: ${text}`);
  process.exit(1);
}
