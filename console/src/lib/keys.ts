/** Keyboard shortcuts of the shell: `g` and a letter, `/`, `?`. */

import { go } from './router.svelte';
import { pages } from './routes';

/** The second key must follow within this time. */
const CHORD_MS = 1500;

/** Listens for shortcuts until the returned function is called. `help` opens the list of shortcuts. */
export function listenForShortcuts(help: () => void): () => void {
  let chord = 0;
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (target.closest('input, textarea, select, [contenteditable], dialog')) return;
    const now = performance.now();
    const page = now - chord < CHORD_MS ? pages.find(({ key }) => key === event.key) : undefined;
    chord = event.key === 'g' ? now : 0;
    if (page) go(page.name);
    else if (event.key === '?') help();
    else if (event.key === '/') document.querySelector<HTMLElement>('[data-search]')?.focus();
    else return;
    event.preventDefault();
  };
  document.addEventListener('keydown', onKey);
  return () => document.removeEventListener('keydown', onKey);
}
