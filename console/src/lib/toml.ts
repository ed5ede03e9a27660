/**
 * TOML 1.0 as text with positions: tokens for highlighting, and a document that knows where each key and section stands.
 * The server's checker decides what is valid; this reader only finds the places that forms change (toml-edit.ts).
 */

export type TokenKind = 'comment' | 'header' | 'key' | 'string' | 'number' | 'flag' | 'sign' | 'fault';

export interface TomlToken {
  kind: TokenKind;
  start: number;
  end: number;
}

/** The step of a path: a key, or the index of an entry of a list. */
export type PathStep = string | number;
export type TomlPath = readonly PathStep[];

/** A line `key = value`, perhaps of several lines. */
export interface TomlEntry {
  /** From the root, with indices. */
  path: PathStep[];
  keyStart: number;
  valueStart: number;
  valueEnd: number;
  value: unknown;
}

/** A header and the lines up to the next one. The first section has no header. */
export interface TomlSection {
  path: PathStep[];
  /** Begins with the comment lines directly above the header. */
  start: number;
  /** The offset behind the header's line. */
  body: number;
  end: number;
  /** A header `[[…]]`. */
  list: boolean;
  entries: TomlEntry[];
}

export interface TomlDocument {
  text: string;
  sections: TomlSection[];
  values: Record<string, unknown>;
}

/** A text that is no TOML. */
export class TomlFault extends Error {
  constructor(
    message: string,
    readonly offset: number,
  ) {
    super(message);
  }
}

const FLAGS = /^(?:true|false|[+-]?(?:inf|nan))$/;
const NUMBER = /^[+-]?(?:0x[0-9a-f_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*(?:\.[0-9_]+)?(?:e[+-]?[0-9_]+)?)$/i;
const DATE = /^[0-9]{2,4}[-:][0-9]{2}/;

interface Lexed extends TomlToken {
  /** A line break between tokens. */
  line?: boolean;
}

/** Splits `text` into tokens. Every text has tokens: those that are no TOML are of kind `fault`. */
export function tokens(text: string): TomlToken[] {
  return lex(text).filter((token) => token.line !== true);
}

function lex(text: string): Lexed[] {
  const found: Lexed[] = [];
  /** Open brackets of the present value. */
  const open: string[] = [];
  let value = false;
  let header = false;
  let at = 0;
  const push = (kind: TokenKind, end: number) => {
    found.push({ kind, start: at, end });
    at = end;
  };
  while (at < text.length) {
    const c = text.charAt(at);
    const fresh = found.length === 0 || found[found.length - 1]?.line === true;
    if (c === '\n') {
      found.push({ kind: 'sign', start: at, end: ++at, line: true });
      header = false;
      if (open.length === 0) value = false;
    } else if (c === ' ' || c === '\t' || c === '\r') {
      at++;
    } else if (c === '#') {
      const end = text.indexOf('\n', at);
      push('comment', end < 0 ? text.length : end);
    } else if (c === '"' || c === "'") {
      const end = quotedEnd(text, at);
      if (end < 0) {
        const line = text.indexOf('\n', at);
        push('fault', line < 0 ? text.length : line);
      } else {
        push(header ? 'header' : value ? 'string' : 'key', end);
      }
    } else if (!value && c === '[' && fresh) {
      header = true;
      push('header', at + (text.charAt(at + 1) === '[' ? 2 : 1));
    } else if (header && c === ']') {
      push('header', at + (text.charAt(at + 1) === ']' ? 2 : 1));
    } else if ('[]{},=.'.includes(c)) {
      if (c === '[' || c === '{') open.push(c);
      if (c === ']' || c === '}') open.pop();
      if (c === '=') value = true;
      // In an inline table a key follows the bracket and each comma.
      if ((c === ',' || c === '{') && open[open.length - 1] === '{') value = false;
      if ((c === '[' || c === ']' || c === '}') && open.length > 0) value = true;
      push(header ? 'header' : 'sign', at + 1);
    } else {
      const rest = (value ? /[^\s,#[\]{}"'=]+/y : /[A-Za-z0-9_-]+/y);
      rest.lastIndex = at;
      const word = rest.exec(text)?.[0] ?? c;
      if (header) push(/^[A-Za-z0-9_-]+$/.test(word) ? 'header' : 'fault', at + word.length);
      else if (!value) push(/^[A-Za-z0-9_-]+$/.test(word) ? 'key' : 'fault', at + word.length);
      else if (FLAGS.test(word)) push('flag', at + word.length);
      else push(NUMBER.test(word) || DATE.test(word) ? 'number' : 'fault', at + word.length);
    }
  }
  return found;
}

/** The offset behind a quoted text, or -1 if it does not end. */
function quotedEnd(text: string, start: number): number {
  const quote = text.charAt(start);
  const long = quote.repeat(3);
  const escapes = quote === '"';
  if (text.startsWith(long, start)) {
    for (let at = start + 3; at < text.length; at++) {
      if (escapes && text.charAt(at) === '\\') at++;
      else if (text.startsWith(long, at)) {
        // Up to two quotes may stand before the closing three.
        let end = at + 3;
        while (end < at + 5 && text.charAt(end) === quote) end++;
        return end;
      }
    }
    return -1;
  }
  for (let at = start + 1; at < text.length && text.charAt(at) !== '\n'; at++) {
    if (escapes && text.charAt(at) === '\\') at++;
    else if (text.charAt(at) === quote) return at + 1;
  }
  return -1;
}

/** Reads a document. Throws [`TomlFault`]. */
export function parse(text: string): TomlDocument {
  return new TomlReader(text).document();
}

class TomlReader {
  readonly #text: string;
  readonly #tokens: Lexed[];
  #at = 0;

  constructor(text: string) {
    this.#text = text;
    this.#tokens = lex(text);
  }

  document(): TomlDocument {
    const root: Record<string, unknown> = {};
    const defined = new Set<string>();
    let section: TomlSection = { path: [], start: 0, body: 0, end: 0, list: false, entries: [] };
    const sections = [section];
    for (let token = this.#peek(); token !== undefined; token = this.#peek()) {
      if (token.line === true || token.kind === 'comment') {
        this.#at++;
      } else if (token.kind === 'header') {
        section = this.#header(root, defined);
        sections.push(section);
      } else {
        this.#entry(section, root);
      }
    }
    sections.forEach((each, index) => (each.end = sections[index + 1]?.start ?? this.#text.length));
    return { text: this.#text, sections, values: root };
  }

  #header(root: Record<string, unknown>, defined: Set<string>): TomlSection {
    const first = this.#take();
    const list = first.end - first.start === 2;
    const names: string[] = [];
    for (;;) {
      names.push(this.#name(this.#take()));
      const next = this.#take();
      const sign = this.#word(next);
      if (sign === '.') continue;
      if (sign !== (list ? ']]' : ']')) throw new TomlFault('a header ends with ]', next.start);
      break;
    }
    this.#endOfLine();
    const path: PathStep[] = [];
    let table = root;
    names.forEach((name, index) => {
      const last = index === names.length - 1;
      path.push(name);
      const held = Object.hasOwn(table, name) ? table[name] : undefined;
      if (last && list) {
        if (held === undefined) put(table, name, []);
        const entries = table[name];
        if (!Array.isArray(entries)) throw new TomlFault(`${name} is no list of tables`, first.start);
        path.push(entries.push({}) - 1);
        table = entries[entries.length - 1] as Record<string, unknown>;
      } else if (Array.isArray(held) && !last) {
        path.push(held.length - 1);
        table = this.#table(held[held.length - 1], name, first);
      } else {
        if (held === undefined) put(table, name, {});
        table = this.#table(table[name], name, first);
      }
    });
    const id = JSON.stringify(path);
    if (!list && defined.has(id)) throw new TomlFault(`[${names.join('.')}] occurs twice`, first.start);
    defined.add(id);
    const line = lineStart(this.#text, first.start);
    return { path, start: this.#commentsAbove(line), body: lineEnd(this.#text, first.start), end: 0, list, entries: [] };
  }

  /** The start of the comment lines directly above `line`, unless they are the head of the file. */
  #commentsAbove(line: number): number {
    let start = line;
    while (start > 0) {
      const above = lineStart(this.#text, start - 1);
      if (!/^[ \t]*#/.test(this.#text.slice(above, start))) return start;
      start = above;
    }
    return line;
  }

  #entry(section: TomlSection, root: Record<string, unknown>): void {
    const { names, start } = this.#key();
    const valueStart = this.#peek()?.start ?? this.#text.length;
    const value = this.#value();
    const valueEnd = this.#tokens[this.#at - 1]?.end ?? valueStart;
    this.#endOfLine();
    const path = [...section.path, ...names];
    section.entries.push({ path, keyStart: start, valueStart, valueEnd, value });
    this.#store(resolve(root, section.path) as Record<string, unknown>, names, value, start);
  }

  #store(table: Record<string, unknown>, names: string[], value: unknown, at: number): void {
    const last = names.length - 1;
    names.forEach((name, index) => {
      const held = Object.hasOwn(table, name) ? table[name] : undefined;
      if (index === last) {
        if (held !== undefined) throw new TomlFault(`${names.join('.')} occurs twice`, at);
        put(table, name, value);
      } else {
        if (held === undefined) put(table, name, {});
        table = this.#table(table[name], name, { start: at });
      }
    });
  }

  /** The names of a key, and its offset; the `=` is taken, too. */
  #key(): { names: string[]; start: number } {
    const names: string[] = [];
    const start = this.#peek()?.start ?? this.#text.length;
    for (;;) {
      names.push(this.#name(this.#take()));
      const next = this.#take();
      const sign = this.#word(next);
      if (sign === '=') return { names, start };
      if (sign !== '.') throw new TomlFault('a key is followed by =', next.start);
    }
  }

  #name(token: Lexed): string {
    const word = this.#word(token);
    if (token.kind !== 'key' && token.kind !== 'header') throw new TomlFault('a key is expected', token.start);
    if (/^[A-Za-z0-9_-]+$/.test(word)) return word;
    if (!/^["']/.test(word) || word.startsWith('"""') || word.startsWith("'''")) throw new TomlFault('a key is expected', token.start);
    return unquote(word, token.start);
  }

  #value(): unknown {
    const token = this.#take();
    const word = this.#word(token);
    if (token.line === true) throw new TomlFault('a value is expected', token.start);
    if (token.kind === 'string') return unquote(word, token.start);
    if (token.kind === 'number') {
      if (!DATE.test(word) || NUMBER.test(word)) return Number(word.replaceAll('_', '').replace(/^\+/, ''));
      // A date and its time may stand apart.
      const next = this.#peek();
      const apart = next?.kind === 'number' && next.start === token.end + 1 && /^[0-9]{2}:/.test(this.#word(next));
      if (apart) this.#at++;
      return apart ? `${word} ${this.#word(next)}` : word;
    }
    if (token.kind === 'flag') {
      if (word.endsWith('inf')) return word.startsWith('-') ? -Infinity : Infinity;
      return word.endsWith('nan') ? NaN : word === 'true';
    }
    if (word === '[') return this.#list();
    if (word === '{') return this.#inline();
    throw new TomlFault('a value is expected', token.start);
  }

  #list(): unknown[] {
    const items: unknown[] = [];
    for (;;) {
      this.#skipLines();
      if (this.#word(this.#peek()) === ']') break;
      items.push(this.#value());
      this.#skipLines();
      if (this.#word(this.#peek()) !== ',') break;
      this.#at++;
    }
    const end = this.#take();
    if (this.#word(end) !== ']') throw new TomlFault('a list ends with ]', end.start);
    return items;
  }

  #inline(): Record<string, unknown> {
    const table: Record<string, unknown> = {};
    if (this.#word(this.#peek()) === '}') {
      this.#at++;
      return table;
    }
    for (;;) {
      const { names, start } = this.#key();
      this.#store(table, names, this.#value(), start);
      const next = this.#take();
      const sign = this.#word(next);
      if (sign === '}') return table;
      if (sign !== ',') throw new TomlFault('a table ends with }', next.start);
    }
  }

  #table(held: unknown, name: string, at: { start: number }): Record<string, unknown> {
    if (typeof held === 'object' && held !== null && !Array.isArray(held)) return held as Record<string, unknown>;
    throw new TomlFault(`${name} is no table`, at.start);
  }

  #skipLines(): void {
    for (let token = this.#peek(); token?.line === true || token?.kind === 'comment'; token = this.#peek()) this.#at++;
  }

  #endOfLine(): void {
    if (this.#peek()?.kind === 'comment') this.#at++;
    const next = this.#peek();
    if (next !== undefined && next.line !== true) throw new TomlFault('the line should end here', next.start);
  }

  #peek(): Lexed | undefined {
    return this.#tokens[this.#at];
  }

  #take(): Lexed {
    const token = this.#tokens[this.#at++];
    if (token === undefined) throw new TomlFault('the text ends too early', this.#text.length);
    if (token.kind === 'fault') throw new TomlFault('no TOML', token.start);
    return token;
  }

  #word(token: Lexed | undefined): string {
    return token === undefined ? '' : this.#text.slice(token.start, token.end);
  }
}

/** Sets a key, even one named `__proto__`. */
function put(table: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(table, name, { value, writable: true, enumerable: true, configurable: true });
}

/** The value at `path`, or `undefined`. A value where a list is allowed is the list's only item: `listen = "8080"`. */
export function resolve(values: unknown, path: TomlPath): unknown {
  let value = values;
  for (const step of path) {
    if (step === 0 && value !== undefined && value !== null && !Array.isArray(value)) continue;
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<PathStep, unknown>)[step];
  }
  return value;
}

export function lineStart(text: string, at: number): number {
  return text.lastIndexOf('\n', at - 1) + 1;
}

/** The offset behind the line break that follows `at`. */
export function lineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end + 1;
}

const ESCAPES: Record<string, string> = { b: '\b', t: '\t', n: '\n', f: '\f', r: '\r', e: '\x1b', '"': '"', '\\': '\\' };

function unquote(word: string, at: number): string {
  const quote = word.charAt(0);
  const long = word.startsWith(quote.repeat(3)) && word.length >= 6;
  let inner = long ? word.slice(3, -3) : word.slice(1, -1);
  if (long) inner = inner.replace(/^\r?\n/, '');
  if (quote === "'") return inner;
  return inner.replace(/\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[ \t]*\r?\n\s*|([\s\S]))/g, (all, short?: string, wide?: string, sign?: string) => {
    if (sign !== undefined) {
      const plain = ESCAPES[sign];
      if (plain === undefined) throw new TomlFault(`unknown escape \\${sign}`, at);
      return plain;
    }
    const code = short ?? wide;
    if (code === undefined) return all.includes('\n') ? '' : all;
    const point = parseInt(code, 16);
    if (point > 0x10ffff) throw new TomlFault(`unknown escape \\U${code}`, at);
    return String.fromCodePoint(point);
  });
}
