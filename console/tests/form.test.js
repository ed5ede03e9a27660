/** The forms of the real schema (tests/guards/golden/schema.json), and the difference of texts. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { changedLines, difference, merge, parts } from '../out/diff.js';
import { entryTitle, fits, misfit, same, sections, typed } from '../out/form.js';

const SCHEMA = JSON.parse(readFileSync(new URL('../../tests/guards/golden/schema.json', import.meta.url), 'utf8'));
const ALL = sections(SCHEMA);

function field(section, ...names) {
  let fields = ALL.find((each) => each.name === section).shape.fields;
  let found;
  for (const name of names) {
    found = fields.find((each) => each.name === name);
    assert.ok(found, name);
    fields = found.shape.fields ?? found.shape.item?.options?.find((option) => option.fields)?.fields ?? found.shape.options?.find((option) => option.fields)?.fields;
  }
  return found;
}

function everyField(fields, visit, path = []) {
  for (const each of fields) {
    visit(each, [...path, each.name]);
    for (const shape of [each.shape, each.shape.item, ...(each.shape.options ?? []), ...(each.shape.item?.options ?? [])]) {
      if (shape?.fields) everyField(shape.fields, visit, [...path, each.name]);
    }
  }
}

test('each section of the schema is a page, and keys above all sections are the last', () => {
  assert.deepEqual(ALL.map((section) => section.name), [...Object.keys(SCHEMA.properties).filter((name) => name !== 'include'), '']);
});

test('each default fits the form of its setting', () => {
  let count = 0;
  for (const section of ALL) {
    everyField(section.shape.fields, (each, path) => {
      if (each.fallback === undefined || each.fallback === null) return;
      assert.ok(fits(each.shape, each.fallback), `${section.name}.${path.join('.')}: ${JSON.stringify(each)}`);
      if (each.shape.kind === 'text' || each.shape.kind === 'number') {
        assert.equal(misfit(each.shape, String(each.fallback)), null, `${section.name}.${path.join('.')}`);
        assert.equal(typed(each.shape, String(each.fallback)) ?? '', each.fallback, path.join('.'));
      }
      count++;
    });
  }
  assert.ok(count > 150, `${count} defaults`);
});

test('a setting gets the input of its type', () => {
  assert.deepEqual(field('limits', 'head_time').shape.unit, 'duration');
  assert.deepEqual(field('limits', 'body_bytes').shape, { kind: 'text', unit: 'size', words: ['off'], examples: ['64KiB', '1.5MB', '4096'], integer: true });
  assert.equal(field('limits', 'write_rate').shape.unit, 'rate');
  assert.deepEqual(field('push', 'admission').shape, { kind: 'number', min: 1, max: undefined, words: ['off'] });
  assert.equal(field('log', 'level').shape.kind, 'choice');
  assert.equal(field('server', 'admin').shape.kind, 'union');
  assert.equal(field('server', 'admin', 'token').shape.kind, 'secret');
  assert.deepEqual(field('server', 'listen').shape.item.options.map((shape) => shape.kind), ['text', 'table']);
  assert.equal(field('site', 'route').shape.kind, 'tables');
  assert.equal(field('site', 'errors').shape.kind, 'map');
  assert.equal(field('upstream', 'balance').shape.kind, 'union');
});

test('settings that wait for the start are marked, and their help is plain', () => {
  assert.equal(field('server', 'workers').atStart, true);
  assert.equal(field('server', 'drain_time').atStart, false);
  for (const section of ALL) everyField(section.shape.fields, (each, path) => assert.doesNotMatch(each.help, /\*start\*|[^\n]\n[^\n]/, path.join('.')));
});

test('a text that is no quantity is reported before the server is asked', () => {
  const shape = field('limits', 'head_time').shape;
  assert.equal(misfit(shape, '1m30s'), null);
  assert.deepEqual(misfit(shape, '10'), { key: 'duration' });
  assert.deepEqual(misfit(field('limits', 'handshakes').shape, '0'), { key: 'least', min: 1 });
  assert.deepEqual(misfit(field('server', 'offload_threads').shape, '65536'), { key: 'most', max: 65535 });
  assert.deepEqual(misfit(field('limits', 'head_bytes').shape, '4 potatoes'), { key: 'size' });
  assert.deepEqual(typed(field('limits', 'head_bytes').shape, ' 4096 '), 4096);
  assert.deepEqual(typed(field('push', 'admission').shape, 'off'), 'off');
});

test('an entry of a list is called by its name, hosts or pattern', () => {
  assert.equal(entryTitle({ root: '.', host: ['a.example', 'b.example'] }), 'a.example, b.example');
  assert.equal(entryTitle({ pattern: '/x/**', status: 404 }), '/x/**');
});

test('equal values are equal whatever the order of their keys', () => {
  assert.ok(same({ a: 1, b: [{ c: null }] }, { b: [{ c: null }], a: 1 }));
  assert.ok(!same([1], { 0: 1 }));
  assert.ok(!same({ a: 1 }, { a: 1, b: undefined }));
});

test('a difference leads from one text to the other with the fewest lines', () => {
  const diff = difference('a\nb\nc\nd\n', 'a\nx\nc\nd\ne\n');
  assert.deepEqual(diff.map((line) => `${{ same: ' ', removed: '-', added: '+' }[line.kind]}${line.text}`), [' a', '-b', '+x', ' c', ' d', '+e']);
  assert.equal(changedLines(diff), 3);
  const seed = Number(process.env.SEED ?? 1);
  let state = seed;
  const next = () => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 16) % 4;
  for (let round = 0; round < 300; round++) {
    const [before, after] = [0, 0].map(() => Array.from({ length: next() * 5 + next() }, () => `${next()}\n`).join(''));
    const lines = difference(before, after);
    const text = (kind) => lines.filter((line) => line.kind !== kind).map((line) => `${line.text}\n`).join('');
    assert.deepEqual([text('added'), text('removed')], [before, after], `seed ${seed}`);
  }
});

test('unchanged lines far from a change are counted, not shown', () => {
  const text = Array.from({ length: 20 }, (_, index) => `${index}`).join('\n');
  const shown = parts(difference(text, text.replace('\n10\n', '\nten\n')), 2);
  assert.deepEqual(shown.map((part) => ('skipped' in part ? part.skipped : part.line.text)), [8, '8', '9', '10', 'ten', '11', '12', 7]);
  assert.deepEqual([shown[3].before, shown[3].after, shown[4].before, shown[4].after], [11, null, null, 11]);
});

test('two changes of different places are combined, and changes of one place are not', () => {
  const base = 'a\nb\nc\nd\ne\n';
  assert.equal(merge(base, 'A\nb\nc\nd\ne\n', 'a\nb\nc\nD\ne\nf\n'), 'A\nb\nc\nD\ne\nf\n');
  assert.equal(merge(base, 'a\nB\nc\nd\ne\n', 'a\nX\nc\nd\ne\n'), null);
  assert.equal(merge(base, 'a\nB\nc\nd\ne\n', 'a\nb\nC\nd\ne\n'), null, 'neighbours may belong together');
  assert.equal(merge(base, 'a\nB\nc\nd\ne\n', 'a\nB\nc\nd\n'), 'a\nB\nc\nd\n', 'the same change twice');
});
