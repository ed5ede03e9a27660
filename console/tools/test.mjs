/** Runs tests/*.test.js. They import plain modules of src/lib from out/, which is built here and not committed. */

import { spawn } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'vite';

const CONSOLE = fileURLToPath(new URL('..', import.meta.url));
/** Modules without a page. */
const MODULES = ['diff', 'form', 'toml', 'toml-edit'];

await build({
  root: CONSOLE,
  configFile: false,
  logLevel: 'warn',
  build: {
    outDir: 'out',
    minify: false,
    reportCompressedSize: false,
    lib: { entry: Object.fromEntries(MODULES.map((name) => [name, join(CONSOLE, `src/lib/${name}.ts`)])), formats: ['es'] },
  },
});
const tests = (await readdir(join(CONSOLE, 'tests'))).filter((name) => name.endsWith('.test.js')).map((name) => join('tests', name));
spawn(process.execPath, ['--test', ...tests], { cwd: CONSOLE, stdio: 'inherit' }).on('exit', (code) => process.exit(code ?? 1));
