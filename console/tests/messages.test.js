/** The lists of messages that the pages load. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { keysOf, listOf } from '../tools/messages.mjs';

test('a group with a message of the name other keeps its keys', () => {
  const first = { login: { title: 'Log in', other: 'Other ways' }, rows: { one: '{n} row', other: '{n} rows' } };
  assert.equal(keysOf(first), 'login{title,other},rows');
  assert.deepEqual(listOf(first, first), ['Log in', 'Other ways', first.rows]);
});

test('the list of another language has the order of the first', () => {
  const first = { a: { one: '1', other: 'n' }, b: { c: 'C', d: 'D' } };
  assert.deepEqual(listOf(first, { b: { d: 'd', c: 'c' }, a: { other: 'x' } }), [{ other: 'x' }, 'c', 'd']);
  assert.deepEqual(listOf(first, { b: { d: 'd' } }), [null, null, 'd']);
});
