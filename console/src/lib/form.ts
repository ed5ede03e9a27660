/** Forms from the JSON schema of the settings file: which input a setting gets, and what its text means. */

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  description?: string;
  default?: unknown;
  examples?: string[];
  minimum?: number;
  maximum?: number;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
}

export interface Choice {
  value: string;
  help: string;
}

/** The form of a value. */
export type Shape =
  | { kind: 'flag' }
  | { kind: 'number'; min: number | undefined; max: number | undefined; words: string[] }
  /** `unit` says which quantities a text may have; `integer`: a text of digits means a number. */
  | { kind: 'text'; unit: 'duration' | 'size' | 'rate' | null; words: string[]; examples: string[]; integer: boolean }
  | { kind: 'choice'; choices: Choice[] }
  | { kind: 'secret' }
  | { kind: 'list'; item: Shape }
  | { kind: 'map'; item: Shape }
  | { kind: 'table'; fields: Field[] }
  | { kind: 'tables'; fields: Field[] }
  /** One of several forms, for example a text or a table. */
  | { kind: 'union'; options: Shape[] };

export interface Field {
  name: string;
  /** The description without marks. */
  help: string;
  shape: Shape;
  /** `undefined`: no default is written in the schema. */
  fallback: unknown;
  required: boolean;
  /** A change takes effect at the next start. */
  atStart: boolean;
}

/** A page of the settings: one section, or a table of a list. */
export interface Section {
  name: string;
  help: string;
  shape: Extract<Shape, { kind: 'table' | 'tables' | 'list' | 'text' | 'union' }>;
}

const START = /\s*\*start\*\s*/;

/** The sections of the settings file, in the schema's order. Keys above all sections come as a section without a name. */
export function sections(schema: Schema): Section[] {
  const reader = new SchemaReader(schema);
  const fields = reader.fields(schema);
  const isSection = (field: Field) => field.shape.kind === 'table' || field.shape.kind === 'tables';
  const plain = fields.filter((field) => !isSection(field));
  const found: Section[] = fields.filter(isSection).map(({ name, help, shape }) => ({ name, help, shape: shape as Section['shape'] }));
  if (plain.length > 0) found.push({ name: '', help: '', shape: { kind: 'table', fields: plain } });
  return found;
}

class SchemaReader {
  readonly #defs: Record<string, Schema>;

  constructor(schema: Schema) {
    this.#defs = schema.$defs ?? {};
  }

  fields(schema: Schema): Field[] {
    return Object.entries(schema.properties ?? {}).map(([name, property]) => {
      const help = property.description ?? this.#resolved(property).description ?? '';
      return {
        name,
        help: flow(help.replace(START, ' ')),
        shape: this.shape(property),
        fallback: property.default,
        required: (schema.required ?? []).includes(name),
        atStart: START.test(help),
      };
    });
  }

  shape(property: Schema): Shape {
    const schema = this.#resolved(property);
    const options = (schema.anyOf ?? schema.oneOf)?.flatMap((option) => this.#flat(option));
    if (options !== undefined) return this.#oneOf(options);
    if (schema.enum !== undefined) return { kind: 'choice', choices: schema.enum.map((value) => ({ value: String(value), help: '' })) };
    const types = [schema.type ?? []].flat().filter((type) => type !== 'null');
    if (types.includes('array')) return this.#list(schema.items);
    if (types.includes('object')) {
      if (schema.properties !== undefined) return { kind: 'table', fields: this.fields(schema) };
      const item = typeof schema.additionalProperties === 'object' ? this.shape(schema.additionalProperties) : textShape({});
      return { kind: 'map', item };
    }
    if (types.includes('boolean')) return { kind: 'flag' };
    if (types.length === 1 && types[0] === 'integer') return { kind: 'number', min: schema.minimum, max: schema.maximum, words: [] };
    return textShape(schema);
  }

  #list(items: Schema | undefined): Shape {
    const item = items === undefined ? textShape({}) : this.shape(items);
    return item.kind === 'table' ? { kind: 'tables', fields: item.fields } : { kind: 'list', item };
  }

  /** The options of nested unions, without `null`: a setting that may be absent is one that may be unset. */
  #flat(option: Schema): Schema[] {
    const schema = this.#resolved(option);
    if (schema.type === 'null' || ('const' in schema && schema.const === null)) return [];
    const inner = schema.anyOf ?? schema.oneOf;
    return inner === undefined ? [schema] : inner.flatMap((each) => this.#flat(each));
  }

  #oneOf(options: Schema[]): Shape {
    const words = options.filter((option) => 'const' in option || option.enum !== undefined);
    const choices = words.flatMap((option) =>
      (option.enum ?? [option.const]).map((value) => ({ value: String(value), help: flow(option.description ?? '') })),
    );
    const others = options.filter((option) => !words.includes(option)).map((option) => this.shape(option));
    // A list of items, or one item alone, is edited as a list.
    const list = others.find((shape) => shape.kind === 'list' || shape.kind === 'tables');
    if (list !== undefined) return list;
    if (isSecret(others)) return { kind: 'secret' };
    const [first, ...more] = others;
    if (first === undefined) return { kind: 'choice', choices };
    if (more.length === 0 && (first.kind === 'text' || first.kind === 'number')) {
      return { ...first, words: [...first.words, ...choices.map((choice) => choice.value)] };
    }
    if (choices.length === 0) return more.length === 0 ? first : { kind: 'union', options: others };
    const plain = others.find((shape) => shape.kind === 'text' || shape.kind === 'number');
    if (plain === undefined) return { kind: 'union', options: [{ kind: 'choice', choices }, ...others] };
    const merged = { ...plain, words: [...plain.words, ...choices.map((choice) => choice.value)] };
    return { kind: 'union', options: others.map((shape) => (shape === plain ? merged : shape)) };
  }

  #resolved(schema: Schema): Schema {
    const name = schema.$ref?.split('/').pop();
    const target = name === undefined ? undefined : this.#defs[name];
    return target === undefined ? schema : this.#resolved(target);
  }
}

/** A text, `{ file = … }` or `{ env = … }`. */
function isSecret(shapes: Shape[]): boolean {
  const keys = shapes.flatMap((shape) => (shape.kind === 'table' && shape.fields.length === 1 ? shape.fields.map((field) => field.name) : []));
  return shapes.some((shape) => shape.kind === 'text') && keys.includes('file') && keys.includes('env');
}

function textShape(schema: Schema): Shape {
  const examples = schema.examples ?? [];
  const unit = examples.includes('1m30s') ? 'duration' : examples.some((each) => /^[0-9.]+[KM]iB$/.test(each)) ? 'size' : examples.some((each) => /B\/s$/.test(each)) ? 'rate' : null;
  const words = examples.filter((each) => /^[a-z_-]+$/.test(each));
  return { kind: 'text', unit, words, examples: examples.filter((each) => !words.includes(each)), integer: [schema.type ?? []].flat().includes('integer') };
}

/** Joins the lines of a paragraph. */
function flow(text: string): string {
  return text.trim().replace(/([^\n])\n(?!\n)/g, '$1 ');
}

/** Whether `value` has the form of `shape`: which option of a union is in use. */
export function fits(shape: Shape, value: unknown): boolean {
  switch (shape.kind) {
    case 'flag':
      return typeof value === 'boolean';
    case 'number':
      return typeof value === 'number' || (typeof value === 'string' && shape.words.includes(value));
    case 'choice':
      return shape.choices.some((choice) => choice.value === value);
    case 'text':
      return typeof value === 'string' || typeof value === 'number';
    case 'secret':
      return typeof value === 'string' || (isTable(value) && ('file' in value || 'env' in value));
    case 'list':
    case 'tables':
      return Array.isArray(value);
    case 'map':
      return isTable(value);
    case 'table':
      return isTable(value) && Object.keys(value).every((key) => shape.fields.some((field) => field.name === key));
    case 'union':
      return shape.options.some((option) => fits(option, value));
  }
}

export function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of an input's text: a number where the setting is one. `undefined`: nothing was entered. */
export function typed(shape: Shape, text: string): unknown {
  const plain = text.trim();
  if (plain === '') return undefined;
  const number = shape.kind === 'number' || (shape.kind === 'text' && shape.integer && shape.unit !== 'duration');
  return number && /^[0-9]{1,15}$/.test(plain) ? Number(plain) : plain;
}

/** Why a text is no value of `shape`: the key of a message, or `null`. The server's check is stricter. */
export function misfit(shape: Shape, text: string): { key: string; min?: number; max?: number } | null {
  const plain = text.trim();
  if (plain === '') return null;
  if ((shape.kind === 'number' || shape.kind === 'text') && shape.words.includes(plain)) return null;
  if (shape.kind === 'number') {
    if (!/^[0-9]{1,15}$/.test(plain)) return { key: 'number' };
    const value = Number(plain);
    if (shape.min !== undefined && value < shape.min) return { key: 'least', min: shape.min };
    if (shape.max !== undefined && value > shape.max) return { key: 'most', max: shape.max };
  }
  if (shape.kind === 'text') {
    if (shape.unit === 'duration' && !/^([0-9]+(ms|s|m|h|d))+$/.test(plain)) return { key: 'duration' };
    if (shape.unit === 'size' && !/^[0-9]+(\.[0-9]+)? ?([KMGT]iB|[kMGT]?B)?$/.test(plain)) return { key: 'size' };
    if (shape.unit === 'rate' && !/^[0-9]+(\.[0-9]+)? ?([KMGT]iB|[kMGT]?B)\/s$/.test(plain)) return { key: 'rate' };
  }
  return null;
}

/** A short name of an entry of a list of tables: its name, hosts or pattern. */
export function entryTitle(entry: unknown): string {
  if (!isTable(entry)) return typeof entry === 'string' ? entry : '';
  for (const key of ['name', 'host', 'address', 'url', 'pattern', 'from', 'path', 'kid', 'subject', 'cert']) {
    const value = entry[key];
    if (typeof value === 'string' || typeof value === 'number') return String(value);
    if (Array.isArray(value) && value.length > 0) return value.join(', ');
  }
  return '';
}

/** Equality of JSON values. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => Object.hasOwn(right, key) && same(left[key], right[key]));
}

/** A setting for a search: its section, its names below it, and its help. */
export interface IndexEntry {
  section: string;
  names: string[];
  help: string;
}

export function index(all: Section[]): IndexEntry[] {
  const found: IndexEntry[] = [];
  const visit = (section: string, shape: Shape, names: string[]): void => {
    if (shape.kind === 'union') shape.options.forEach((option) => visit(section, option, names));
    else if (shape.kind === 'list') visit(section, shape.item, names);
    else if (shape.kind === 'table' || shape.kind === 'tables') {
      for (const field of shape.fields) {
        found.push({ section, names: [...names, field.name], help: field.help });
        visit(section, field.shape, [...names, field.name]);
      }
    }
  };
  for (const section of all) visit(section.name, section.shape, []);
  return found;
}

/** The entries that contain every word of `text`; names count more than help. */
export function search(entries: IndexEntry[], text: string): IndexEntry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const scored = entries.flatMap((entry) => {
    const name = [entry.section, ...entry.names].join('.').toLowerCase();
    const help = entry.help.toLowerCase();
    if (!words.every((word) => name.includes(word) || help.includes(word))) return [];
    const last = (entry.names[entry.names.length - 1] ?? '').toLowerCase();
    return [{ entry, score: words.reduce((sum, word) => sum + (last === word ? 8 : last.includes(word) ? 4 : name.includes(word) ? 2 : 0), 0) }];
  });
  return scored.sort((a, b) => b.score - a.score).map(({ entry }) => entry);
}
