/** A project of a user of the npm package. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const CLIENT = join(HERE, '../../client');
const NAMES = ['react', 'react-dom', 'vue', 'vite', '@types/react'];

/** The path of a file in the libraries of the tests. */
export const installed = (path) => join(HERE, 'node_modules', path);

/** Runs a program to its end. Returns its output. */
export async function ran(words, cwd, env = process.env) {
  try {
    const running = promisify(execFile)(words[0], words.slice(1), { cwd, env });
    running.child.stdin.end();
    return (await running).stdout;
  } catch (error) {
    throw new Error(`${words.join(' ')}: ${error.message}\n${error.stdout}${error.stderr}`);
  }
}

/** Projects with the package, by its source. Tests share them, because npm takes seconds. */
const projects = new Map();
after(async () => {
  for (const folder of projects.values()) await rm(await folder, { recursive: true, force: true, maxRetries: 5 });
});

/** A folder in a project with the package, from a tarball or as a link to the directory, and the libraries of the tests. */
export async function project(stack, from = 'tarball') {
  if (!projects.has(from)) projects.set(from, installation(from));
  const folder = await mkdtemp(join(await projects.get(from), 'user-'));
  return stack.ended(folder, () => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
}

async function installation(from) {
  const folder = await mkdtemp(join(tmpdir(), 'encke-project-'));
  await writeFile(join(folder, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
  let source = CLIENT;
  if (from === 'tarball') {
    const [{ filename, files }] = JSON.parse(await ran(['npm', 'pack', '--json', '--pack-destination', folder, CLIENT], folder));
    assert.ok(files.some(({ path }) => path === 'dist/types/encke.d.ts'), filename);
    source = join(folder, filename);
  }
  await ran(['npm', 'install', '--offline', '--no-audit', '--no-fund', source], folder);
  for (const name of NAMES) {
    await mkdir(dirname(join(folder, 'node_modules', name)), { recursive: true });
    await symlink(installed(name), join(folder, 'node_modules', name));
  }
  return folder;
}
