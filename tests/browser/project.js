/** A project of a user of the npm package. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const CLIENT = join(HERE, '../../client');
const NAMES = ['react', 'react-dom', 'vue', 'vite', '@types/react'];

/** The path of a file in the libraries of the tests. */
export const installed = (path) => join(HERE, 'node_modules', path);

/** Runs a program to its end. Returns its output. */
export function ran(words, cwd, env = process.env) {
  try {
    return execFileSync(words[0], words.slice(1), { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (error) {
    throw new Error(`${words.join(' ')}: ${error.message}\n${error.stdout}${error.stderr}`);
  }
}

/** A project with the package, from a tarball or as a link to the directory, and the libraries of the tests. */
export async function project(stack, from = 'tarball') {
  const folder = await stack.folder();
  await writeFile(join(folder, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
  let source = CLIENT;
  if (from === 'tarball') {
    const [{ filename, files }] = JSON.parse(ran(['npm', 'pack', '--json', '--pack-destination', folder, CLIENT], folder));
    assert.ok(files.some(({ path }) => path === 'dist/types/encke.d.ts'), filename);
    source = join(folder, filename);
  }
  ran(['npm', 'install', '--offline', '--no-audit', '--no-fund', source], folder);
  for (const name of NAMES) {
    await mkdir(dirname(join(folder, 'node_modules', name)), { recursive: true });
    await symlink(installed(name), join(folder, 'node_modules', name));
  }
  return folder;
}
