/** The licences of all packages of which code is in the bundle. */

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Licences that permit this use with their text alone. */
const ALLOWED = new Set(['MIT', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD', 'Apache-2.0']);

/** Returns the text of LICENSES.txt for the modules of a bundle. */
export async function licences(root, modules) {
  const names = new Set();
  for (const id of modules) {
    const name = /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(id.replaceAll('\\', '/'))?.[1];
    if (name) names.add(name);
    // Helpers that the bundler adds are its code.
    else if (id.startsWith('\0vite/')) names.add('vite');
    else if (id.startsWith('\0rolldown')) names.add('rolldown');
  }
  const parts = [];
  for (const name of [...names].sort()) {
    const folder = join(root, 'node_modules', name);
    const about = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    if (!ALLOWED.has(about.license)) throw new Error(`${name}: the licence ${about.license} is not in ALLOWED of tools/licences.mjs`);
    const file = (await readdir(folder)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name}: its package has no licence text`);
    // The file of a bundler holds the licences of its own parts, too. Only its own code is in the bundle.
    const text = (await readFile(join(folder, file), 'utf8')).replaceAll('\r\n', '\n').split(/^#+ (?:Licenses of bundled|Bundled)/m)[0].trim();
    parts.push(`${name} ${about.version} (${about.license})\n\n${text}\n`);
  }
  return `The pages of Encke's console contain code of these packages.\n\n${parts.join(`\n${'-'.repeat(80)}\n\n`)}`;
}
