/**
 * Changes of a settings text that keep its comments and its order: each function returns the new text.
 * Forms use them, so that a form and the text are two views of one draft.
 */

import { lineEnd, lineStart, parse, resolve, type PathStep, type TomlDocument, type TomlEntry, type TomlPath, type TomlSection } from './toml';

/** A longer list gets a line for each entry. */
const LINE_MAX = 100;

type Table = Record<string, unknown>;

/** Sets the value at `path`; `undefined` removes it. */
export function setValue(text: string, path: TomlPath, value: unknown): string {
  const doc = parse(text);
  if (value === undefined) return removeAt(doc, path);
  const inside = entryOf(doc, path);
  if (inside !== undefined) return replaceInside(doc, inside, path, value);
  if (holds(doc, path)) return setValue(removeAt(doc, path), path, value);
  if (isTables(value)) {
    return value.reduce((changed: string, entry) => appendTable(changed, path, entry as Table), text);
  }
  return insert(doc, path, value);
}

/** Appends an entry to the list of tables at `path`. */
export function appendTable(text: string, path: TomlPath, entry: Table): string {
  const doc = parse(text);
  const inside = entryOf(doc, path);
  if (inside !== undefined) {
    const held = resolve(doc.values, path);
    const list = Array.isArray(held) ? held : [held];
    return replaceInside(doc, inside, path, [...list, entry]);
  }
  const header = `[[${path.filter((step) => typeof step === 'string').map(keyText).join('.')}]]\n`;
  const lines = Object.entries(entry).map(([key, value]) => `${keyText(key)} = ${valueText(value)}\n`);
  return addSection(doc, path, header + lines.join(''));
}

/** Moves the entry `from` of the list at `path` to the place `to`. */
export function moveTable(text: string, path: TomlPath, from: number, to: number): string {
  const doc = parse(text);
  const list = resolve(doc.values, path);
  if (!Array.isArray(list) || from === to || list[from] === undefined || list[to] === undefined) return text;
  const order = list.map((_, index) => index);
  order.splice(to, 0, ...order.splice(from, 1));
  const inside = entryOf(doc, path);
  if (inside !== undefined) return replaceInside(doc, inside, path, order.map((index) => list[index] as unknown));
  const blocks = list.map((_, index) => ranges(doc, [...path, index]));
  const texts = blocks.map((block) => ended(block.map(([start, end]) => text.slice(start, end)).join('')));
  // Each block's text goes where another block began; the blocks' other ranges disappear.
  const changes: Change[] = [];
  blocks.forEach((block, place) =>
    block.forEach(([start, end], index) => changes.push([start, end, index === 0 ? (texts[order[place] ?? 0] ?? '') : ''])),
  );
  return apply(text, changes);
}

/** A value as TOML, in one line if it is short. */
export function valueText(value: unknown, lines = false): string {
  if (typeof value === 'string') return quote(value);
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  if (typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) {
    const items = value.map((item) => valueText(item));
    const line = `[${items.join(', ')}]`;
    return items.length > 0 && (lines || line.length > LINE_MAX) ? `[\n${items.map((item) => `  ${item},\n`).join('')}]` : line;
  }
  const pairs = Object.entries((value ?? {}) as Table).filter(([, each]) => each !== undefined && each !== null);
  return pairs.length === 0 ? '{}' : `{ ${pairs.map(([key, each]) => `${keyText(key)} = ${valueText(each)}`).join(', ')} }`;
}

export function keyText(key: PathStep): string {
  return /^[A-Za-z0-9_-]+$/.test(String(key)) ? String(key) : quote(String(key));
}

function quote(text: string): string {
  // JSON has the escapes of TOML, except for DEL.
  return JSON.stringify(text).replaceAll('\x7f', '\\u007F');
}

type Range = readonly [start: number, end: number];
type Change = readonly [start: number, end: number, text: string];

function apply(text: string, changes: Change[]): string {
  return [...changes].sort((a, b) => b[0] - a[0]).reduce((changed, [start, end, by]) => changed.slice(0, start) + by + changed.slice(end), text);
}

function startsWith(path: TomlPath, head: TomlPath): boolean {
  return head.every((step, index) => path[index] === step);
}

function isTables(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'object' && item !== null && !Array.isArray(item));
}

/** The line whose value holds `path`. */
function entryOf(doc: TomlDocument, path: TomlPath): TomlEntry | undefined {
  return doc.sections.flatMap((section) => section.entries).find((entry) => startsWith(path, entry.path));
}

/** Whether a section or line is at `path` or below it. */
function holds(doc: TomlDocument, path: TomlPath): boolean {
  return doc.sections.some((section) => startsWith(section.path, path) || section.entries.some((entry) => startsWith(entry.path, path)));
}

function replaceInside(doc: TomlDocument, entry: TomlEntry, path: TomlPath, value: unknown): string {
  const rest = path.slice(entry.path.length);
  const whole = rest.length === 0 ? value : changed(entry.value, rest, value);
  const old = doc.text.slice(entry.valueStart, entry.valueEnd);
  return apply(doc.text, [[entry.valueStart, entry.valueEnd, valueText(whole, Array.isArray(whole) && /^\[[^\]]*\n/.test(old))]]);
}

/** A copy of `held` with another value at `path`; `undefined` removes it. */
function changed(held: unknown, path: TomlPath, value: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  if (typeof step === 'number') {
    // The only item without brackets stays so.
    if (step === 0 && value !== undefined && held !== undefined && !Array.isArray(held)) return changed(held, rest, value);
    const list: unknown[] = Array.isArray(held) ? [...(held as unknown[])] : [held];
    if (rest.length === 0 && value === undefined) list.splice(step, 1);
    else list[step] = changed(list[step], rest, value);
    return list;
  }
  const table: Table = typeof held === 'object' && held !== null && !Array.isArray(held) ? { ...(held as Table) } : {};
  const next = changed(Object.hasOwn(table, step) ? table[step] : undefined, rest, value);
  if (next === undefined) delete table[step];
  else table[step] = next;
  return table;
}

/** The sections and lines at `path` and below it. */
function ranges(doc: TomlDocument, path: TomlPath): Range[] {
  const found: Range[] = [];
  for (const section of doc.sections) {
    if (section.path.length > 0 && startsWith(section.path, path)) {
      found.push([section.start, section.end]);
    } else {
      for (const entry of section.entries) {
        if (startsWith(entry.path, path)) found.push([lineStart(doc.text, entry.keyStart), lineEnd(doc.text, entry.valueEnd)]);
      }
    }
  }
  return found;
}

function removeAt(doc: TomlDocument, path: TomlPath): string {
  const entry = entryOf(doc, path);
  if (entry !== undefined && entry.path.length < path.length) return replaceInside(doc, entry, path, undefined);
  return apply(doc.text, ranges(doc, path).map(([start, end]) => [start, end, '']));
}

/** Adds a line, in the section of its table; a new section if there is none. */
function insert(doc: TomlDocument, path: TomlPath, value: unknown): string {
  const lists = path.findLastIndex((step) => typeof step === 'number');
  let home: TomlSection | undefined;
  for (let length = path.length - 1; length >= 0 && home === undefined; length--) {
    const head = path.slice(0, length);
    // A table of the file's top gets a header of its own, unless lines above all headers begin it.
    if (length === 0 && path.length > 1 && !doc.sections[0]?.entries.some((entry) => entry.path[0] === path[0])) break;
    home = doc.sections.find((section) => section.path.length === length && startsWith(section.path, head));
    if (length <= lists + 1) break;
  }
  const line = (depth: number) => `${path.slice(depth).map(keyText).join('.')} = ${valueText(value)}\n`;
  if (home === undefined) {
    const head = path.slice(0, Math.max(1, lists + 1));
    const depth = head.length;
    return addSection(doc, head, `[${head.filter((step) => typeof step === 'string').map(keyText).join('.')}]\n${line(depth)}`);
  }
  const last = home.entries[home.entries.length - 1];
  const at = placeOfDefault(doc.text, home, path) ?? (last === undefined ? home.body : lineEnd(doc.text, last.valueEnd));
  const lead = at > 0 && doc.text.charAt(at - 1) !== '\n' ? '\n' : '';
  const tail = home.path.length === 0 && last === undefined && doc.text.length > at && !doc.text.startsWith('\n', at) ? '\n' : '';
  return apply(doc.text, [[at, at, lead + line(home.path.length) + tail]]);
}

/** The place below a line `#key = default`, as a file made by `encke schema --toml` has it. */
function placeOfDefault(text: string, section: TomlSection, path: TomlPath): number | undefined {
  const key = path.slice(section.path.length).map(keyText).join('.');
  const body = text.slice(section.body, section.end);
  for (let at = body.indexOf(`#${key} = `); at >= 0; at = body.indexOf(`#${key} = `, at + 1)) {
    const line = body.slice(at, lineEnd(body, at));
    const begins = at === 0 || body.charAt(at - 1) === '\n';
    // Not within a value of several lines, nor above the rest of one.
    const within = section.entries.some((entry) => entry.valueStart < section.body + at && section.body + at < entry.valueEnd);
    if (begins && !within && !/[[{,(]\s*$/.test(line)) return section.body + at + line.length;
  }
  return undefined;
}

/** Adds a section after the last one of the same list or table. Without any, adds it at the end. */
function addSection(doc: TomlDocument, path: TomlPath, section: string): string {
  const lists = path.findLastIndex((step) => typeof step === 'number');
  const near = [path, path.slice(0, lists + 1)].map((head) => (head.length === 0 ? undefined : doc.sections.findLast((each) => each.path.length > 0 && startsWith(each.path, head))));
  const after = near[0] ?? near[1] ?? doc.sections[doc.sections.length - 1];
  const at = after?.end ?? doc.text.length;
  const before = doc.text.slice(0, at);
  const lead = before === '' || before.endsWith('\n\n') ? '' : before.endsWith('\n') ? '\n' : '\n\n';
  const tail = at < doc.text.length && !doc.text.startsWith('\n', at) ? '\n' : '';
  return before + lead + section + tail + doc.text.slice(at);
}

/** A block that ends with a blank line can stand anywhere. */
function ended(block: string): string {
  return `${block.trimEnd()}\n\n`;
}
