/** An outbox: each message is published once and in order; rejections are reported. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Outbox, PublishError } from '../out/publish.js';
import { settled, Stage } from './stage.js';

function outbox(token = async () => undefined) {
  const stage = new Stage();
  const box = new Outbox(stage.world, 'http://test/push/');
  return { stage, box: { publish: (channel, data, options) => box.publish(channel, data, options, token), wake: () => box.wake() } };
}

test('it posts the payload with its names', async () => {
  const { stage, box } = outbox(async () => 't1');
  const published = box.publish('a/b', 'hi', { event: 'greeting', key: 'k' });
  await settled();
  const { url, init, ...request } = stage.next();
  assert.equal(url, 'http://test/push/a/b');
  assert.equal(init.method, 'POST');
  assert.equal(init.body, 'hi');
  assert.deepEqual(init.headers, {
    accept: 'application/json',
    authorization: 'Bearer t1',
    'content-type': 'text/plain;charset=utf-8',
    'encke-event': 'greeting',
    'idempotency-key': 'k',
  });
  await stage.answer(request, 201, { id: 'e-1', subscribers: 3 });
  assert.deepEqual(await published, { id: 'e-1', subscribers: 3 });
});

test('an unknown option is an error, and nothing is sent', async () => {
  const { stage, box } = outbox();
  await assert.rejects(box.publish('a', 'hi', { evnt: 'greeting' }), {
    name: 'TypeError',
    message: 'publish: unknown option "evnt": expected channel, event, type, key',
  });
  await settled();
  assert.equal(stage.requests.length, 0);
});

test('what waits for a cluster is published without an id', async () => {
  const { stage, box } = outbox();
  const published = box.publish('a', 'hi', {});
  await settled();
  await stage.answer(stage.next(), 202, { queued: 1, subscribers: 2 });
  assert.deepEqual(await published, { id: '', subscribers: 2 });
});

test('a response that is not from the server, such as the login page of a hotspot, is no receipt', async () => {
  const { stage, box } = outbox();
  const published = box.publish('a', 'hi', {});
  await settled();
  stage.next().resolve(new Response('<!doctype html>', { headers: { 'content-type': 'text/html' } }));
  await stage.pass(1_000);
  await stage.answer(stage.next(), 201, { id: 'e-1', subscribers: 1 });
  assert.equal((await published).id, 'e-1');
});

test('a lost answer is asked for again under the same key', async () => {
  const { stage, box } = outbox();
  const published = box.publish('a', 'hi', {});
  await settled();
  const first = stage.next();
  first.reject(new TypeError('reset'));
  await stage.pass(1_000);
  const second = stage.next();
  assert.ok(first.init.headers['idempotency-key']);
  assert.equal(second.init.headers['idempotency-key'], first.init.headers['idempotency-key']);
  await stage.answer(second, 200, { id: 'e-1', subscribers: 1 });
  assert.equal((await published).id, 'e-1');
});

test('two messages have two keys, and the second waits for the first', async () => {
  const { stage, box } = outbox();
  const both = [box.publish('a', '1', {}), box.publish('a', '2', {})];
  await settled();
  const first = stage.next();
  assert.equal(stage.requests.length, 0);
  await stage.answer(first, 201, { id: 'e-1', subscribers: 0 });
  const second = stage.next();
  assert.equal(second.init.body, '2');
  assert.notEqual(second.init.headers['idempotency-key'], first.init.headers['idempotency-key']);
  await stage.answer(second, 201, { id: 'e-2', subscribers: 0 });
  assert.deepEqual((await Promise.all(both)).map(({ id }) => id), ['e-1', 'e-2']);
});

test('a refusal is an error with the words of the server, and the next message goes on', async () => {
  const { stage, box } = outbox();
  const refused = box.publish('a', 'x', {});
  const next = box.publish('a', 'y', {});
  await settled();
  stage.next().resolve(new Response('too large\n', { status: 413 }));
  await assert.rejects(refused, (error) => error instanceof PublishError && error.status === 413 && error.message === 'too large');
  await settled();
  await stage.answer(stage.next(), 201, { id: 'e-1', subscribers: 0 });
  await next;
});

test('an overloaded server is asked again when it wishes, a network that is back at once', async () => {
  const { stage, box } = outbox();
  void box.publish('a', 'x', {});
  await settled();
  await stage.answer(stage.next(), 503, undefined, { 'retry-after': '7' });
  await stage.pass(6_999);
  assert.equal(stage.requests.length, 0);
  await stage.pass(1);
  stage.next().reject(new TypeError('reset'));
  await settled();
  box.wake();
  await settled();
  assert.equal(stage.requests.length, 1);
});

test('a server that asks for no time gets a second, and then more', async () => {
  const { stage, box } = outbox();
  void box.publish('a', 'x', {});
  await settled();
  for (const delayMs of [1_000, 2_000, 4_000]) {
    await stage.answer(stage.next(), 429, undefined, { 'retry-after': '0' });
    await stage.pass(delayMs - 1);
    assert.equal(stage.requests.length, 0, `within ${delayMs} ms`);
    await stage.pass(1);
  }
});

test('it gives up while the server still remembers the key', async () => {
  const { stage, box } = outbox();
  const published = box.publish('a', 'x', {});
  const outcome = assert.rejects(published, (error) => error instanceof PublishError && error.status === 0);
  await stage.pass(120_000);
  await outcome;
});

test('after 401 it asks for another token, once', async () => {
  const asked = [];
  const { stage, box } = outbox(async (fresh) => (asked.push(fresh), 't'));
  const published = box.publish('a', 'x', {});
  await settled();
  await stage.answer(stage.next(), 401);
  await stage.answer(stage.next(), 401);
  await assert.rejects(published, (error) => error.status === 401);
  assert.deepEqual(asked, [false, true]);
});

test('an object is published as JSON, as it was when it was passed', async () => {
  const { stage, box } = outbox();
  const price = { symbol: 'ACME', value: 4.2 };
  const cases = [[price, '{"symbol":"ACME","value":4.2}'], [[1, 'b'], '[1,"b"]'], [7, '7'], [null, 'null'], [new Date(0), '"1970-01-01T00:00:00.000Z"']];
  for (const [data] of cases) void box.publish('a', data, {});
  void box.publish('a', price, { type: 'application/geo+json' });
  price.value = 5;
  for (const [, body] of cases) {
    await settled();
    const request = stage.next();
    assert.deepEqual([request.init.body, request.init.headers['content-type']], [body, 'application/json']);
    await stage.answer(request, 201, { id: 'e-1', subscribers: 0 });
  }
  assert.equal(stage.next().init.headers['content-type'], 'application/geo+json');
});

test('a value that JSON would lose is an error of the caller, and nothing is sent', async () => {
  const { stage, box } = outbox();
  for (const data of [undefined, new Map([[1, 2]]), new FormData(), Promise.resolve('x'), () => 1]) {
    await assert.rejects(box.publish('a', data, {}), TypeError);
  }
  await settled();
  assert.equal(stage.requests.length, 0);
});
