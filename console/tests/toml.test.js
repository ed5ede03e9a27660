/** Settings texts: read as Python's tomllib reads them, and changed without the loss of a comment. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { parse, resolve, tokens, TomlFault } from '../out/toml.js';
import { appendTable, moveTable, setValue, valueText } from '../out/toml-edit.js';

const TEMPLATE = readFileSync(new URL('../../dist/encke.toml', import.meta.url), 'utf8');
/** The template with its defaults in force. */
const DEFAULTS = TEMPLATE.split('\n').filter((line) => /^(#[a-z_]+ = [^[{]*$|\[[a-z.]+\]|[a-z_]+ = )/.test(line)).map((line) => line.replace(/^#/, '')).join('\n');
const EXAMPLE = `# Settings of the test.
include = "sites/*.toml" # further files

[server]
# Both addresses.
listen = [
  "127.0.0.1:8080", # v4
  "[::1]:8080",
]
backlog = 4_096

# The site.
[[site]]
host = ["a.example"]
compression.min = "1KiB" # small
'quoted key'.x = 'it''' # no text: two texts would be one
`.replace("'it'''", "'it'");
const SITES = `# head

[[site]]
host = ["a"]
# of a
[site.errors]
404 = "/404.html"

# about b
[[site]]
host = ["b"]

[[site.cache]]
pattern = "/x/**"
cache_control = "no-store"

[[site]]
host = ["c"]

[log]
level = "debug" # loud
`;

function tomllib(texts) {
  const script = `
import json, sys, tomllib
def read(text):
    try: return tomllib.loads(text)
    except tomllib.TOMLDecodeError: return None
print(json.dumps([read(t) for t in json.load(sys.stdin)], default=str))`;
  return JSON.parse(execFileSync('python3', ['-c', script], { input: JSON.stringify(texts), encoding: 'utf8', maxBuffer: 1 << 26 }));
}

function ours(text) {
  try {
    return JSON.parse(JSON.stringify(parse(text).values));
  } catch (error) {
    assert.ok(error instanceof TomlFault, String(error));
    return null;
  }
}

/** A generator of numbers below `n` from a seed. */
function random(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

test('texts are read as tomllib reads them', () => {
  const texts = [
    '', TEMPLATE, DEFAULTS, EXAMPLE, SITES,
    'a = 1\nb = 0x0_f', 'a = "x\\u00e9\\n" # c', "a = '''\nx\ny'''", 'a = """\\\n   x"""', 'a = """x"""""', 'a.b.c = 1\na.b.d = 2', 'a = {b = 1, c.d = [1, {e = 2}]}',
    '[a]\n[a.b]\nx = 1\n[a.c]', '[[a]]\n[[a.b]]\nx = 1\n[[a.b]]\n[[a]]', 'a = [\n# one\n1, # two\n2,\n]', 'a = 1979-05-27', 'a = +5\nb = -0.5e3',
    '[a', 'a = ', 'a = "x', 'a = [1', 'a = {b = 1', 'a = 1 b = 2', '= 1', 'a = 1\na = 2', '[a]\n[a]', 'a = tru', '[a]]', '[[a]\n', 'a = "\\q"', '"" = 1', '"a b" = 1', 'a\n= 1', 'a.b', '[a]\nb = 1\n[a.b]',
  ];
  const expected = tomllib(texts);
  texts.forEach((text, index) => assert.deepEqual(ours(text), expected[index], JSON.stringify(text)));
});

test('every text has tokens that cover it in order', () => {
  const seed = Number(process.env.SEED ?? 1);
  const next = random(seed);
  const signs = ['[', ']', '{', '}', '"', "'", '"""', '=', '.', ',', '#', '\n', ' ', 'a', '1', '\\', 'é', '-'];
  for (let round = 0; round < 2000; round++) {
    const text = Array.from({ length: next(30) }, () => signs[next(signs.length)]).join('');
    let at = 0;
    for (const token of tokens(text)) {
      assert.ok(token.start >= at && token.end > token.start, `seed ${seed}: ${JSON.stringify(text)}`);
      assert.match(text.slice(at, token.start), /^[\s]*$/);
      at = token.end;
    }
    assert.match(text.slice(at), /^\s*$/);
    ours(text);
  }
});

test('a token has the kind of its place', () => {
  const text = '[a.b] # c\nkey = { x = true, y = ["z", 1.5] }\nbad = nope';
  const kinds = tokens(text).filter((token) => token.kind !== 'sign').map((token) => [token.kind, text.slice(token.start, token.end)]);
  assert.deepEqual(kinds, [
    ['header', '['], ['header', 'a'], ['header', '.'], ['header', 'b'], ['header', ']'], ['comment', '# c'],
    ['key', 'key'], ['key', 'x'], ['flag', 'true'], ['key', 'y'], ['string', '"z"'], ['number', '1.5'], ['key', 'bad'], ['fault', 'nope'],
  ]);
});

test('a value is replaced in its place', () => {
  const text = setValue(EXAMPLE, ['server', 'backlog'], 128);
  assert.equal(text, EXAMPLE.replace('4_096', '128'));
});

test('a new key follows the last key of its section', () => {
  assert.equal(setValue(SITES, ['log', 'format'], 'json'), `${SITES}format = "json"\n`);
  assert.match(setValue(SITES, ['site', 1, 'root'], '/b'), /host = \["b"\]\nroot = "\/b"\n\n\[\[site\.cache\]\]/);
});

test('a new key stands below its commented default', () => {
  const text = setValue(TEMPLATE, ['server', 'backlog'], 128);
  assert.equal(text, TEMPLATE.replace('#backlog = 4096\n', '#backlog = 4096\nbacklog = 128\n'));
});

test('a key of a missing section begins that section', () => {
  assert.equal(setValue('a = 1\n', ['server', 'backlog'], 1), 'a = 1\n\n[server]\nbacklog = 1\n');
  assert.equal(setValue('', ['push', 'enabled'], false), '[push]\nenabled = false\n');
  assert.equal(setValue('server.a = 1', ['server', 'b'], 2), 'server.a = 1\nserver.b = 2\n');
});

test('a key of a table within an entry of a list stays in that entry', () => {
  assert.match(setValue(SITES, ['site', 0, 'compression', 'min'], '2KiB'), /host = \["a"\]\ncompression\.min = "2KiB"\n# of a/);
  assert.match(setValue(SITES, ['site', 0, 'errors', '500'], '/500'), /404 = "\/404.html"\n500 = "\/500"\n/);
});

test('an entry moves with its comments and its tables', () => {
  const text = moveTable(SITES, ['site'], 1, 0);
  assert.deepEqual(parse(text).values.site.map((site) => site.host[0]), ['b', 'a', 'c']);
  assert.ok(text.indexOf('# about b') < text.indexOf('host = ["b"]'));
  assert.ok(text.indexOf('# of a') > text.indexOf('host = ["a"]'));
});

test('an entry is appended behind the last of its list', () => {
  const text = appendTable(SITES, ['site', 1, 'cache'], { pattern: '/y', cache_control: 'x' });
  assert.deepEqual(parse(text).values.site[1].cache.map((rule) => rule.pattern), ['/x/**', '/y']);
  assert.deepEqual(parse(appendTable(SITES, ['site', 0, 'route'], { upstream: 'u' })).values.site[0].route, [{ upstream: 'u' }]);
  assert.deepEqual(parse(appendTable('x = [{a = 1}]', ['x'], { a: 2 })).values, { x: [{ a: 1 }, { a: 2 }] });
});

test('random changes give the values that were meant and keep all comments', () => {
  const seed = Number(process.env.SEED ?? 1);
  const next = random(seed);
  const pick = (items) => items[next(items.length)];
  const keys = ['a', 'b', 'c', 'quoted key'];
  const scalars = [1, -2.5, 'x', 'a "b" \\ é\u007f\n', true, ['x', 'y'], ['long '.repeat(30), 'z'], { x: 1, 'y z': ['w'] }];
  const results = [];
  for (let round = 0; round < 400; round++) {
    let text = pick(['', EXAMPLE, SITES, 'x = [{ a = 1 }, { b = 2 }]\nserver = { a = 1 }\n', '[server]\na = 1\n[server.b]\nc = 1 # end', 'server.a = 1']);
    for (let change = 0; change < 8; change++) {
      const before = parse(text).values;
      const wanted = structuredClone(before);
      const comments = tokens(text).filter((token) => token.kind === 'comment').length;
      const lists = ['site', 'x'].filter((name) => Array.isArray(before[name]) && before[name].length > 0);
      const name = pick([...lists, 'new']);
      const list = wanted[name];
      const kind = next(6);
      let keeps = true;
      let what;
      if (kind === 0) {
        const entry = { host: 'n', b: next(9) };
        what = ['append', name];
        text = appendTable(text, [name], entry);
        wanted[name] = [...(list ?? []), entry];
      } else if (kind === 1 && list?.length > 1) {
        const [from, to] = [next(list.length), next(list.length)];
        what = ['move', name, from, to];
        text = moveTable(text, [name], from, to);
        list.splice(to, 0, ...list.splice(from, 1));
      } else if (kind === 2 && list?.length > 1) {
        const index = next(list.length);
        what = ['remove', name, index];
        text = setValue(text, [name, index], undefined);
        list.splice(index, 1);
        keeps = false;
      } else {
        const head = kind === 3 && list !== undefined ? [name, next(list.length)] : pick([['server'], ['log'], ['new section', 'sub']]);
        let path = [...head, pick(keys)];
        if (next(4) === 0) path.push(pick(keys));
        // Only an entry of the same shape is extended.
        for (let length = 1; length < path.length; length++) {
          const held = resolve(before, path.slice(0, length));
          if (held !== undefined && (typeof held !== 'object' || Array.isArray(held)) && typeof path[length] !== 'number') path = path.slice(0, length);
        }
        if (path.length < 2) continue;
        const value = next(5) === 0 ? undefined : pick(scalars);
        what = ['set', path, value];
        keeps = value !== undefined && (resolve(before, path) === undefined || typeof resolve(before, path) !== 'object');
        text = setValue(text, path, value);
        let table = wanted;
        for (const step of path.slice(0, -1)) table = value === undefined && table === undefined ? undefined : (table[step] ??= value === undefined ? undefined : {});
        if (value !== undefined) table[path.at(-1)] = value;
        else if (table !== undefined) delete table[path.at(-1)];
      }
      const got = parse(text).values;
      assert.deepEqual(bare(got), bare(wanted), `seed ${seed}: ${JSON.stringify(what)}\n${text}`);
      if (keeps) assert.equal(tokens(text).filter((token) => token.kind === 'comment').length, comments, `seed ${seed}: ${JSON.stringify(what)}\n${text}`);
    }
    results.push([text, ours(text)]);
  }
  const expected = tomllib(results.map(([text]) => text));
  results.forEach(([text, values], index) => assert.deepEqual(values, expected[index], `seed ${seed}\n${text}`));
});

/** The values without tables that became empty: removing the last dotted key of a table removes it. */
function bare(value) {
  if (Array.isArray(value)) return value.map(bare);
  if (typeof value !== 'object' || value === null) return value;
  const pairs = Object.entries(value).map(([key, each]) => [key, bare(each)]);
  return Object.fromEntries(pairs.filter(([, each]) => each !== undefined && !(typeof each === 'object' && !Array.isArray(each) && Object.keys(each).length === 0) && !(Array.isArray(each) && each.length === 0)));
}

test('values are written as TOML', () => {
  for (const value of ['\u0000\u001f\u007f"\\', 1e21, [[], {}], { 'a.b': { c: [true] } }]) {
    assert.deepEqual(parse(`x = ${valueText(value)}`).values.x, value);
  }
});

test('an item without brackets is the only one of its list, and stays without them', () => {
  const text = '[server]\nlisten = "127.0.0.1:18080" # v4\n';
  const listen = ['server', 'listen'];
  assert.equal(resolve(parse(text).values, [...listen, 0]), '127.0.0.1:18080');
  assert.equal(resolve(parse(text).values, [...listen, 1]), undefined);
  assert.equal(setValue(text, [...listen, 0], '127.0.0.1:2'), '[server]\nlisten = "127.0.0.1:2" # v4\n');
  assert.equal(setValue(text, listen, ['127.0.0.1:18080', '[::1]:2']), '[server]\nlisten = ["127.0.0.1:18080", "[::1]:2"] # v4\n');
  const table = 'listen = { address = "8080", tls = true }\n';
  assert.equal(resolve(parse(table).values, ['listen', 0, 'address']), '8080');
  assert.equal(setValue(table, ['listen', 0, 'tls'], false), 'listen = { address = "8080", tls = false }\n');
});
