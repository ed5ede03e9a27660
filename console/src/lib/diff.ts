/** Differences between texts, by line. */

import type { DiffLine } from './types';

/** Above this product of lines the middle of a difference is not searched for common lines: it would block the page. */
const CELLS_MAX = 4_000_000;

/** The difference from `before` to `after`. */
export function difference(before: string, after: string): DiffLine[] {
  const a = lines(before);
  const b = lines(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (text: string): DiffLine => ({ kind: 'same', text });
  return [
    ...a.slice(0, head).map(same),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(same),
  ];
}

function lines(text: string): string[] {
  const all = text.split('\n');
  if (all[all.length - 1] === '') all.pop();
  return all;
}

/** The longest common subsequence, by dynamic programming. */
function middle(a: string[], b: string[]): DiffLine[] {
  const found: DiffLine[] = [];
  const removed = (text: string | undefined) => found.push({ kind: 'removed', text: text ?? '' });
  const added = (text: string | undefined) => found.push({ kind: 'added', text: text ?? '' });
  if (a.length * b.length > CELLS_MAX) {
    a.forEach(removed);
    b.forEach(added);
    return found;
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ kind: 'same', text: a[i] ?? '' });
      i++;
      j++;
    } else if (i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1))) {
      removed(a[i++]);
    } else {
      added(b[j++]);
    }
  }
  return found;
}

/** Changed lines with `context` lines around them; `skipped` stands for unchanged lines between them. */
export type DiffPart = { skipped: number } | { before: number | null; after: number | null; line: DiffLine };

export function parts(diff: DiffLine[], context = 3): DiffPart[] {
  const near = diff.map(() => false);
  diff.forEach((line, index) => {
    if (line.kind === 'same') return;
    for (let i = Math.max(0, index - context); i <= Math.min(diff.length - 1, index + context); i++) near[i] = true;
  });
  const found: DiffPart[] = [];
  let before = 0;
  let after = 0;
  let skipped = 0;
  diff.forEach((line, index) => {
    if (line.kind !== 'added') before++;
    if (line.kind !== 'removed') after++;
    if (near[index] !== true) {
      skipped++;
      return;
    }
    if (skipped > 0) found.push({ skipped });
    skipped = 0;
    found.push({ before: line.kind === 'added' ? null : before, after: line.kind === 'removed' ? null : after, line });
  });
  if (skipped > 0) found.push({ skipped });
  return found;
}

export function changedLines(diff: DiffLine[]): number {
  return diff.filter((line) => line.kind !== 'same').length;
}

interface Hunk {
  /** Replaced lines of the base: from `start`, up to `end`. */
  start: number;
  end: number;
  by: string[];
}

function hunks(base: string, changed: string): Hunk[] {
  const found: Hunk[] = [];
  let at = 0;
  let open: Hunk | undefined;
  for (const line of difference(base, changed)) {
    if (line.kind === 'same') {
      open = undefined;
      at++;
      continue;
    }
    if (open === undefined) {
      open = { start: at, end: at, by: [] };
      found.push(open);
    }
    if (line.kind === 'added') open.by.push(line.text);
    else open.end = ++at;
  }
  return found;
}

/** Both changes of `base` in one text, or `null` if they touch the same or neighbouring lines. */
export function merge(base: string, mine: string, theirs: string): string | null {
  const [a, b] = [hunks(base, mine), hunks(base, theirs)];
  const all = [...a];
  for (const hunk of b) {
    const equal = a.some((each) => each.start === hunk.start && each.end === hunk.end && each.by.join('\n') === hunk.by.join('\n'));
    if (equal) continue;
    if (a.some((each) => each.start <= hunk.end && hunk.start <= each.end)) return null;
    all.push(hunk);
  }
  const merged = lines(base);
  all.sort((x, y) => y.start - x.start).forEach((hunk) => merged.splice(hunk.start, hunk.end - hunk.start, ...hunk.by));
  return merged.map((line) => `${line}\n`).join('');
}
