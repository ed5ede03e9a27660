/** Subscriptions of a page: which of them share a line, with which token, and when the line ends. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Line } from '../out/line.js';
import { Pool } from '../out/pool.js';
import { event, reader, settled, Stage } from './stage.js';

const base64url = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
let issued = 0;
/** A JWT: each one differs in `iat` and `jti`. */
const jwt = (claims) => [base64url({ alg: 'HS256' }), base64url({ ...claims, iat: issued++, jti: `${issued}`, exp: 10 + issued }), 'c2ln'].join('.');
const ANN = { sub: 'ann', encke: { subscribe: ['**'] } };
const BO = { sub: 'bo', encke: { subscribe: ['**'] } };

/** A page. Its carriers are lines of their own, and `plans` lists what they were made for. */
function page() {
  const stage = new Stage();
  const [plans, warnings, closed] = [[], [], []];
  const pool = new Pool(
    stage.world,
    (plan, token, tell) => {
      plans.push(plan);
      const carrier = new Line(stage.world, plan.settings, token, tell);
      carrier.close = () => closed.push(plan.key);
      return carrier;
    },
    (text) => warnings.push(text),
  );
  const subscribe = (channels, token, more = {}) => {
    const { url = 'http://test/push/', share, since } = more;
    const one = reader([channels].flat(), since);
    one.states = [];
    one.denied = (status, text) => pool.deny(one.place, status, text);
    one.place = pool.join({ settings: { url }, token, share, reader: one, listen: (condition) => ((one.condition = condition), one.states.push(condition.state)) });
    one.close = () => pool.leave(one.place);
    return one;
  };
  return { stage, pool, plans, warnings, closed, subscribe };
}

/** Reads the token of a request. */
const bearer = ({ init }) => init.headers.authorization.slice('Bearer '.length);
const subjectOf = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).sub;

test('eight components with inline functions share one line, and its token is one of theirs', async () => {
  const { stage, plans, warnings, subscribe } = page();
  let calls = 0;
  for (let count = 0; count < 8; count++) subscribe(`room/${count % 3}`, async () => (calls++, jwt(ANN)));
  await stage.pass(0);
  const request = stage.next();
  assert.match(request.url, /push\/room\/0,room\/1,room\/2\?/);
  assert.equal(subjectOf(bearer(request)), 'ann');
  assert.deepEqual([stage.requests.length, plans.length, calls, warnings], [0, 1, 8, []]);
});

test('components whose tokens arrive one after the other open the stream once', async () => {
  const { stage, subscribe } = page();
  for (const ms of [5, 30, 60]) subscribe(`after/${ms}`, () => new Promise((resolve) => stage.world.later(ms, () => resolve(jwt(ANN)))));
  await stage.pass(60);
  assert.match(stage.next().url, /push\/after\/30,after\/5,after\/60\?/);
  assert.equal(stage.requests.length, 0);
});

test('a function that does not return delays the others by a tenth of a second only', async () => {
  const { stage, subscribe } = page();
  subscribe('slow', () => new Promise(() => {}));
  subscribe('a', async () => jwt(ANN));
  await stage.pass(99);
  assert.equal(stage.requests.length, 0);
  await stage.pass(1);
  assert.match(stage.next().url, /push\/a\?/);
});

test('a subscription is open once the stream has its channel, and not because the stream of the others is', async () => {
  const { stage, subscribe } = page();
  const one = subscribe('a');
  await stage.pass(0);
  const stream = await stage.stream(stage.next(), ': hello\n\n');
  assert.deepEqual(one.states, ['connecting'], 'no position: what is published now would not arrive');
  await stream.write('id: e-5\n\n');
  assert.deepEqual(one.states, ['connecting', 'open']);
  const same = subscribe('a');
  await settled();
  assert.deepEqual([same.states, stage.requests.length], [['open'], 0]);

  const other = subscribe('b');
  await settled();
  assert.deepEqual(other.states, ['connecting']);
  await stage.pass(0);
  // Both parts are brought to one position.
  for (const [channel, since] of [['a', 'e-5'], ['b', 'now']]) {
    const request = stage.next();
    assert.ok(request.url.includes(`/push/${channel}?since=${since}&wait=0`), request.url);
    await stage.answer(request, 204, undefined, { 'encke-id': 'e-7' });
    assert.ok(!other.states.includes('open'));
  }
  await stage.stream(stage.next(), ': hello\nid: e-7\n\n' + event('e-8', 'x', 'b'));
  for (const { states } of [one, same, other]) assert.equal(states.at(-1), 'open');
  assert.deepEqual(other.read, ['e-8 x']);
});

test('another user, other rights and other settings have a line of their own', async () => {
  const { stage, plans, subscribe } = page();
  subscribe('a', async () => jwt(ANN));
  subscribe('a', async () => jwt(BO));
  subscribe('a', async () => jwt({ ...ANN, encke: { subscribe: ['a'] } }));
  subscribe('a', async () => jwt(ANN), { url: 'http://other/push/' });
  subscribe('a', 'a fixed token');
  subscribe('a');
  await stage.pass(0);
  assert.equal(stage.requests.length, 6);
  assert.equal(new Set(plans.map(({ key }) => key)).size, 6);
});

test('tabs share the line of a token that names its user, and of no token; other tokens stay in the page', async () => {
  const { stage, plans, subscribe } = page();
  subscribe('a', async () => jwt(ANN));
  subscribe('a', async () => 'opaque');
  subscribe('a', async () => jwt({ encke: { subscribe: ['a'] } }));
  subscribe('a');
  subscribe('a', async () => jwt(ANN), { share: false });
  subscribe('a', async () => 'opaque', { share: 'ann' });
  await stage.pass(0);
  const tabsOf = new Map(plans.map((plan) => [plan.key, plan.tabs]));
  assert.equal(tabsOf.size, 6);
  assert.deepEqual(plans.map(({ tabs }) => tabs).sort(), [false, false, false, true, true, true]);
});

test('a renewed token of the same user is used by the same line', async () => {
  const { stage, plans, subscribe } = page();
  const one = subscribe('a', async () => jwt(ANN));
  await stage.pass(0);
  const first = stage.next();
  const stream = await stage.stream(first, event('e-1', 'x'));
  await stage.pass(10_000);
  await stream.cut();
  await stage.pass(2_000);
  const second = stage.next();
  assert.notEqual(bearer(second), bearer(first));
  assert.equal(plans.length, 1);
  await stage.stream(second, event('e-2', 'y'));
  subscribe('a', async () => jwt(ANN));
  await stage.pass(0);
  assert.deepEqual([stage.requests.length, plans.length], [0, 1]);
  assert.deepEqual(one.read, ['e-1 x', 'e-2 y']);
});

test('a renewed token without a subject takes its line along, with all that share it', async () => {
  const { stage, plans, closed, subscribe } = page();
  let token = 'first';
  for (const channel of ['a', 'b']) subscribe(channel, async () => token);
  await stage.pass(0);
  const stream = await stage.stream(stage.next(), ':\n\n');
  await stage.pass(10_000);
  token = 'second';
  await stream.cut();
  await stage.pass(2_000);
  const request = stage.next();
  assert.equal(bearer(request), 'second');
  assert.match(request.url, /push\/a,b\?/);
  await stage.stream(request, ':\n\n');
  subscribe('a', async () => token);
  await stage.pass(0);
  assert.deepEqual([stage.requests.length, plans.length, closed.length], [0, 1, 0]);
});

for (const kind of ['a subject', 'no subject']) {
  test(`two users whose tokens have ${kind} are not mixed when one of them takes the place of the other`, async () => {
    const { stage, subscribe } = page();
    const tokenOf = (claims) => (kind === 'a subject' ? jwt(claims) : `opaque ${claims.sub}`);
    let user = ANN;
    const stays = subscribe('b', async () => tokenOf(ANN));
    const changes = subscribe('a', async () => tokenOf(user));
    await stage.pass(0);
    const stream = await stage.stream(stage.next(), ': hello\nid: e-5\n\n');
    await stage.pass(10_000);
    user = BO;
    await stream.cut();
    await stage.pass(3_000);
    const all = stage.requests.splice(0).filter(({ aborted }) => !aborted);
    const userOf = (request) => (kind === 'a subject' ? subjectOf(bearer(request)) : bearer(request).slice('opaque '.length));
    assert.deepEqual(all.map((request) => [userOf(request), /push\/(.*?)&/.exec(request.url)[1]]).sort(), [['ann', 'b?since=e-5'], ['bo', 'a?since=e-5']]);
    for (const request of all) await stage.stream(request, event('e-6', 'x', 'a') + event('e-7', 'y', 'b'));
    assert.deepEqual([changes.read, stays.read], [['e-6 x'], ['e-7 y']]);
    assert.deepEqual([changes.states.at(-1), stays.states.at(-1)], ['open', 'open']);
  });
}

test('while a function fails, its subscription waits and tries again, and then joins the others', async () => {
  const { stage, plans, subscribe } = page();
  let works = false;
  const late = subscribe('late', async () => (works ? jwt(ANN) : Promise.reject(new Error('no network'))));
  const early = subscribe('early', async () => jwt(ANN));
  await stage.pass(0);
  const request = stage.next();
  assert.match(request.url, /push\/early\?/);
  await stage.stream(request, ': hello\nid: e-5\n\n');
  assert.equal(late.states.at(-1), 'waiting');
  works = true;
  await stage.pass(5_000);
  for (const channel of ['early', 'late']) {
    const poll = stage.next();
    assert.match(poll.url, new RegExp(`push/${channel}\\?.*wait=0`));
    await stage.answer(poll, 204, undefined, { 'encke-id': 'e-6' });
  }
  const both = stage.next();
  assert.match(both.url, /push\/early,late\?/);
  await stage.stream(both, ':\n\n');
  assert.deepEqual([plans.length, late.states.at(-1), early.states.at(-1)], [2, 'open', 'open']);
});

test('after 401 another component may have the renewed token', async () => {
  const { stage, subscribe } = page();
  const [old, renewed] = [jwt(ANN), jwt(ANN)];
  let token = old;
  subscribe('a', async () => token);
  await stage.pass(0);
  subscribe('b', async () => old);
  await stage.pass(10_000);
  token = renewed;
  while (stage.requests.length > 1) stage.next();
  const request = stage.next();
  assert.equal(bearer(request), old);
  await stage.answer(request, 401);
  assert.equal(bearer(stage.next()), renewed);
});

test('a function whose token is always rejected, and always different, is asked twice only', async () => {
  for (const share of [true, false]) {
    const { stage, subscribe } = page();
    let count = 0;
    const one = subscribe('a', async () => jwt({ ...ANN, nonce: count++ }), { share });
    await stage.pass(0);
    let requests = 0;
    for (; stage.requests.length > 0; requests++) await stage.answer(stage.next(), 401), await stage.pass(0);
    assert.equal(one.states.at(-1), 'denied');
    assert.ok(requests <= 4, `${requests} requests`);
    await stage.pass(100_000);
    assert.equal(stage.requests.length, 0);
  }
});

test('a subscription without a right is denied alone', async () => {
  const { stage, subscribe } = page();
  const [a, secret] = [subscribe('a', async () => jwt(ANN)), subscribe('secret', async () => jwt(ANN))];
  await stage.pass(0);
  await stage.answer(stage.next(), 403);
  for (const request of stage.requests.splice(0)) {
    if (request.url.includes('secret')) await stage.refuse(request, 403, 'the token grants no right to read secret');
    else await stage.answer(request, 204);
  }
  await stage.pass(0);
  await stage.stream(stage.next(), event('e-1', 'x'));
  assert.equal(a.states.at(-1), 'open');
  assert.deepEqual(secret.condition, { state: 'denied', transport: 'sse', status: 403, text: 'the token grants no right to read secret' });
  assert.deepEqual(a.read, ['e-1 x']);
});

test('the last subscription that closes ends the stream, and a new one opens another', async () => {
  const { stage, plans, closed, subscribe } = page();
  const [one, two] = [subscribe('a', async () => jwt(ANN)), subscribe('a', async () => jwt(ANN))];
  await stage.pass(0);
  const request = stage.next();
  await stage.stream(request, ': hello\nid: e-1\n\n');
  one.close();
  await stage.pass(0);
  assert.ok(!request.aborted);
  two.close();
  await stage.pass(0);
  assert.ok(request.aborted);
  assert.deepEqual(closed, [plans[0].key]);
  subscribe('a', async () => jwt(ANN));
  await stage.pass(0);
  assert.equal(stage.requests.length, 1);
});

test('a component that takes the place of another in one turn takes over its stream', async () => {
  const { stage, plans, closed, subscribe } = page();
  const one = subscribe('a', 'fixed');
  await stage.pass(0);
  const request = stage.next();
  const stream = await stage.stream(request, ': hello\nid: e-1\n\n');
  one.close();
  const two = subscribe('a', 'fixed');
  await stage.pass(0);
  assert.ok(!request.aborted);
  assert.deepEqual([plans.length, closed.length, stage.requests.length], [1, 0, 0]);
  assert.equal(two.states.at(-1), 'open');
  await stream.write(event('e-2', 'x'));
  assert.deepEqual([one.read, two.read], [[], ['e-2 x']]);

  // One that begins elsewhere needs another stream.
  two.close();
  const three = subscribe('a', 'fixed', { since: 'last:1' });
  await stage.pass(0);
  assert.ok(request.aborted);
  await stage.stream(stage.next(), event('e-2', 'x'));
  assert.deepEqual(three.read, ['e-2 x']);
});

test('a subscription that is closed before its token arrives never opens a stream', async () => {
  const { stage, plans, subscribe } = page();
  let give;
  subscribe('a', () => new Promise((resolve) => (give = resolve))).close();
  give(jwt(ANN));
  await stage.pass(1_000);
  assert.deepEqual([plans.length, stage.requests.length], [0, 0]);
});

test('the third stream to a server is worth one warning; a closed one does not count', async () => {
  const { stage, warnings, subscribe } = page();
  subscribe('a', 'one');
  const two = subscribe('a', 'two');
  two.close();
  subscribe('a', 'three');
  subscribe('a', 'other', { url: 'http://other/push/' });
  await stage.pass(0);
  assert.deepEqual(warnings, []);
  subscribe('a', 'four');
  subscribe('a', 'five');
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /3 streams to http:\/\/test,.*share: 'USER'/s);
});

test('a subscription that moves gets the messages that it has missed once', async () => {
  const { stage, subscribe } = page();
  let user = ANN;
  const one = subscribe('a', async () => jwt(user), { since: 'last:1' });
  await stage.pass(0);
  const stream = await stage.stream(stage.next(), event('e-1', 'x'));
  await stage.pass(10_000);
  user = BO;
  await stream.cut();
  await stage.pass(3_000);
  const request = stage.next();
  assert.match(request.url, /since=e-1&/);
  await stage.stream(request, event('e-1', 'x') + event('e-2', 'y'));
  assert.deepEqual(one.read, ['e-1 x', 'e-2 y']);
});
