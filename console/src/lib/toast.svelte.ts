/** Short reports of what an action did, read aloud by screen readers. */

export interface ToastEntry {
  id: number;
  tone: 'good' | 'bad';
  text: string;
  /** A way back, or on. */
  action?: { label: string; run: () => void };
}

/** Enough for a row of quick actions; older ones make room. */
const TOASTS_MAX = 4;
const SHOWN_MS = 6000;
/** Long enough to read and to press a button. */
const ACTION_MS = 30_000;

export const toasts: ToastEntry[] = $state([]);
let next = 0;

export function toast(text: string, tone: ToastEntry['tone'] = 'good', action?: ToastEntry['action']): void {
  const id = next++;
  toasts.push({ id, tone, text, action });
  if (toasts.length > TOASTS_MAX) toasts.shift();
  // Errors stay until they are dismissed.
  if (tone === 'good') setTimeout(() => dismiss(id), action ? ACTION_MS : SHOWN_MS);
}

export function dismiss(id: number): void {
  const at = toasts.findIndex((entry) => entry.id === id);
  if (at >= 0) toasts.splice(at, 1);
}
