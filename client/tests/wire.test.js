/** Event streams and envelopes, in pieces of any size. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ahead, EventStream, wordOf, wordOfEvent } from '../out/wire.js';

/** Returns the results for these pieces of a stream. */
function told(pieces) {
  const all = [];
  const stream = new EventStream((event) => all.push(event), (retry) => all.push({ retry }));
  for (const piece of pieces) stream.push(piece);
  return all;
}

/** Splits a text: whole, by character, and in two at every position. */
function everyWay(text) {
  const cuts = Array.from({ length: text.length + 1 }, (_, at) => [text.slice(0, at), text.slice(at)]);
  return [[text], [...text], ...cuts];
}

const STREAMS = [
  ['an event', 'id: e-1\nevent: news\ndata: a\ndata: b\n\n', [{ id: 'e-1', event: 'news', data: 'a\nb' }]],
  ['a position without data', ': hello\nid: e-7\n\n', [{ id: 'e-7' }]],
  ['a comment and an empty block', ':\n\n\n', []],
  ['ends of lines in each form', 'data: a\r\ndata: b\rdata: c\n\r\n', [{ data: 'a\nb\nc' }]],
  ['a byte order mark', '\uFEFFdata: x\n\n', [{ data: 'x' }]],
  ['a wish to retry', 'retry: 1500\n\nretry: soon\n\n', [{ retry: 1500 }]],
  ['only one space is cut', 'data:  x\ndata:y\n\n', [{ data: ' x\ny' }]],
  ['a field without a colon', 'data\n\n', [{ data: '' }]],
  ['an id with NUL counts as none', 'id: a\0b\ndata: x\n\n', [{ data: 'x' }]],
  ['an event that is not finished', 'data: x\n', []],
  ['an id does not stay for the next event', 'id: e-1\ndata: x\n\ndata: y\n\n', [{ id: 'e-1', data: 'x' }, { data: 'y' }]],
];

for (const [name, text, events] of STREAMS) {
  test(`event stream: ${name}`, () => {
    for (const pieces of everyWay(text)) assert.deepEqual(told(pieces), events, JSON.stringify(pieces));
  });
}

test('an envelope is a message', () => {
  const envelope = { id: 'e-1', channel: 'a', event: 'x', type: 'text/plain', time: '2026-01-31T10:00:00Z', data: 'hi' };
  assert.deepEqual(wordOf(envelope), { kind: 'message', message: { ...envelope, time: new Date(envelope.time) } });
});

test('an envelope with bytes is a message with bytes', () => {
  const word = wordOf({ id: 'e-1', channel: 'a', data64: '/wA=' });
  assert.deepEqual(word.message.data, Uint8Array.of(255, 0));
});

test('a payload that looks like a URL of data stays text', () => {
  assert.equal(wordOf({ id: 'e-1', channel: 'a', data: 'data:x;base64,AA==' }).message.data, 'data:x;base64,AA==');
});

test('a gap is told on event streams and in envelopes', () => {
  const gap = { from: 'e-1', to: 'e-9', reason: 'evicted' };
  assert.deepEqual(wordOf({ op: 'gap', ...gap }), { kind: 'gap', gap });
  assert.deepEqual(wordOfEvent({ event: 'encke.gap', data: JSON.stringify(gap) }), { kind: 'gap', gap });
});

test('what is no envelope is passed over', () => {
  for (const other of [undefined, null, 1, 'x', [], {}, { id: 'e-1' }, { id: 1, channel: 'a', data: 'x' }, { op: 'later' }]) {
    assert.equal(wordOf(other), undefined);
  }
  assert.equal(wordOfEvent({ data: 'no JSON' }), undefined);
  assert.equal(wordOf({ id: 'e-1', channel: 'a', data64: '!' }), undefined);
});

test('ids are in the order of their offsets, and an id of another epoch is ahead', () => {
  assert.equal(ahead('e-10', 'e-9'), 1);
  assert.equal(ahead('e-9', 'e-9'), 0);
  assert.equal(ahead('e-9', 'e-10'), -1);
  assert.equal(ahead('f-1', 'e-10'), Infinity);
});

test('ids of several streams are ahead if they are in one of them', () => {
  assert.equal(ahead('e-10,f-3', 'e-9,f-3'), 1);
  assert.equal(ahead('e-10,f-3', 'f-3,e-10'), 0);
  assert.equal(ahead('e-9,f-2', 'e-10,f-3'), -1);
  assert.equal(ahead('f-4', 'e-10,f-3'), 1);
  assert.equal(ahead('e-9,g-1', 'e-10,f-3'), Infinity);
});
