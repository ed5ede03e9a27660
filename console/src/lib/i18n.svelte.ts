/** Messages by catalogue, and numbers, sizes and times in the chosen language. */

import keys from 'virtual:message-keys';

/** A message, or a message by plural form of the parameter `n`. */
type Message = string | { other: string; [form: string]: string };
type Catalog = (Message | null)[];
export type Language = 'en' | 'ja';
type Params = Record<string, string | number>;

/** Each language is one file that is loaded when it is chosen. To add one: a line here, a directory, and a loader. */
export const LANGUAGES: Record<Language, string> = { en: 'English', ja: '日本語' };
const LOADERS: Record<Language, () => Promise<{ default: Catalog }>> = {
  en: () => import('virtual:/messages/en'),
  ja: () => import('virtual:/messages/ja'),
};

/** The places of messages in the lists of all languages, by key. */
const PLACES = new Map<string, number>();
const path: string[] = [];
for (const token of keys.match(/[^{},]+\{?|\}/g) ?? []) {
  if (token === '}') path.pop();
  else if (token.endsWith('{')) path.push(token.slice(0, -1));
  else PLACES.set([...path, token].join('.'), PLACES.size);
}

const STORED = 'encke-language';
const chosen = $state({ language: initial() });
let catalog = $state.raw<Catalog>([]);

function initial(): Language {
  const names = [stored(), ...navigator.languages.map((name) => name.slice(0, 2))];
  return (names.find((name) => name !== null && name in LANGUAGES) as Language | undefined) ?? 'en';
}

function stored(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

/** Loads the messages of the chosen language. */
export async function loadMessages(): Promise<void> {
  const { language } = chosen;
  catalog = (await LOADERS[language]()).default;
  document.documentElement.lang = language;
}

export const language = (): Language => chosen.language;

/** Changes the language, and remembers it in this browser. */
export async function setLanguage(language: Language): Promise<void> {
  catalog = (await LOADERS[language]()).default;
  chosen.language = language;
  document.documentElement.lang = language;
  try {
    localStorage.setItem(STORED, language);
  } catch {
    // Storage may be forbidden. The choice then lasts until the page is left.
  }
}

/**
 * Returns a message: `t('common.retry_after', { n: 2 })`. The first part of the key is the catalogue's file.
 *
 * `{name}` inserts a parameter; numbers are formatted. `n` chooses the plural form.
 */
export function t(key: string, params: Params = {}): string {
  return fill(find(key), params) ?? key;
}

/** Returns a message for a name that the server sent, or `otherwise` if the catalogue does not know it. */
export function known(key: string, otherwise: string, params: Params = {}): string {
  return fill(find(key), params) ?? otherwise;
}

const find = (key: string): Message | null => catalog[PLACES.get(key) ?? -1] ?? null;

function fill(message: Message | null, params: Params): string | undefined {
  if (message === null) return undefined;
  let text: string;
  if (typeof message === 'string') text = message;
  else text = message[plurals().select(Number(params.n ?? 0))] ?? message.other;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = params[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? number(value) : value;
  });
}

/** Formatters are expensive to create; each is created once per language. */
const formatters = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat | Intl.PluralRules>();
function cached<T extends Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat | Intl.PluralRules>(
  kind: string,
  create: (language: Language) => T,
): T {
  const key = `${chosen.language} ${kind}`;
  let formatter = formatters.get(key) as T | undefined;
  if (!formatter) formatters.set(key, (formatter = create(chosen.language)));
  return formatter;
}

const plurals = (): Intl.PluralRules => cached('plural', (l) => new Intl.PluralRules(l));

/** Stands for values that are unknown on this system. */
export const UNKNOWN = '–';
type Maybe = number | null | undefined;
const absent = (value: Maybe): value is null | undefined => value === null || value === undefined || Number.isNaN(value);

/** `12,345`; at most `digits` decimals. */
export function number(value: Maybe, digits = 0): string {
  if (absent(value)) return UNKNOWN;
  return cached(`n${digits}`, (l) => new Intl.NumberFormat(l, { maximumFractionDigits: digits })).format(value);
}

/** Three significant digits at most: `0.25`, `3.4`, `120`, `12.3K`. For figures and axes. */
export function short(value: Maybe): string {
  if (absent(value)) return UNKNOWN;
  if (Math.abs(value) < 10_000) {
    const digits = Math.abs(value) < 1 ? 2 : Math.abs(value) < 100 ? 1 : 0;
    return number(value, digits);
  }
  return cached('short', () => new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })).format(value);
}

/** `12.5/s`. */
export function rate(value: Maybe): string {
  return absent(value) ? UNKNOWN : t('common.per_second', { value: short(value) });
}

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `64 KiB`: binary units, three significant digits. */
export function bytes(value: Maybe): string {
  if (absent(value)) return UNKNOWN;
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1000 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(size) >= 100 ? 0 : Math.abs(size) >= 10 ? 1 : 2;
  return `${number(size, digits)} ${SIZES[unit]}`;
}

/** `1.5 MiB/s`. */
export function byteRate(value: Maybe): string {
  return absent(value) ? UNKNOWN : t('common.per_second', { value: bytes(value) });
}

/** `1.5 Mbit/s`: decimal units, three significant digits. */
export const bitRate = (value: Maybe): string => (absent(value) ? UNKNOWN : `${short(value / (value < 1e6 ? 1e3 : 1e6))} ${value < 1e6 ? 'k' : 'M'}bit/s`);

/** `12.5 %`, of a ratio. */
export function percent(ratio: Maybe, digits = 0): string {
  if (absent(ratio)) return UNKNOWN;
  return cached(`%${digits}`, (l) => new Intl.NumberFormat(l, { style: 'percent', maximumFractionDigits: digits })).format(ratio);
}

/** A latency, from nanoseconds to seconds: `1.25 ms`. */
export function latency(seconds: Maybe): string {
  if (absent(seconds)) return UNKNOWN;
  const [value, unit] =
    seconds >= 1 ? [seconds, 's'] : seconds >= 1e-3 ? [seconds * 1e3, 'ms'] : seconds > 0 ? [seconds * 1e6, 'µs'] : [0, 'ms'];
  return `${number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
}

/** A duration in two units at most: `3 d 4 h`, `12 min 5 s`, `0.3 s`. */
export function duration(seconds: Maybe): string {
  if (absent(seconds)) return UNKNOWN;
  if (seconds < 10) return t('common.duration.s', { n: number(seconds, seconds < 1 ? 2 : 1) });
  const whole = Math.floor(seconds);
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => t(`common.duration.${unit}`, { n: number(value) }))
    .join(' ');
}

/** `14:03:05`. */
export function time(ms: Maybe): string {
  if (absent(ms)) return UNKNOWN;
  return cached('time', (l) => new Intl.DateTimeFormat(l, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })).format(ms);
}

/** Date and time: `28 Nov 2025, 14:03:05`. */
export function dateTime(ms: Maybe): string {
  if (absent(ms)) return UNKNOWN;
  return cached('date', (l) => new Intl.DateTimeFormat(l === 'en' ? 'en-GB' : l, { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' })).format(ms);
}

/** The time from `now` to `ms`: `5 minutes ago`, `in 3 days`. */
export function relative(ms: Maybe, now = Date.now()): string {
  if (absent(ms)) return UNKNOWN;
  const seconds = (ms - now) / 1000;
  const units: [Intl.RelativeTimeFormatUnit, number][] = [
    ['day', 86_400],
    ['hour', 3600],
    ['minute', 60],
    ['second', 1],
  ];
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1];
  return cached('relative', (l) => new Intl.RelativeTimeFormat(l, { numeric: 'auto' })).format(Math.trunc(seconds / size), unit);
}
