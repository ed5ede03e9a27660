/** Pages behind a pipe: messages through the pipe, and a change of its peer. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { envelope, event, reader, Stage } from './stage.js';

// Without locks, a page ends with its own notification.
Object.defineProperty(globalThis, 'navigator', { value: {}, configurable: true });
const { Counter, Remote } = await import('../out/tabs.js');

const SETTINGS = { url: 'http://test/push/' };

/** Pages with pipes to the current counter, as in tabs. */
function tabs(hasToken = false) {
  const stage = new Stage();
  const make = () => new Counter(stage.world, SETTINGS, hasToken);
  const all = { stage, counter: make(), pages: [] };
  all.page = (token = async () => undefined) => {
    const states = [];
    const name = `page ${all.pages.length}`;
    const maker = (tell, again) => {
      all.pages.push(again);
      // Messages are copied, as between tabs.
      const post = (ask) => all.counter.hear(name, structuredClone(ask), (told) => tell(structuredClone(told)));
      return { post, close: () => post({ ask: 'bye' }) };
    };
    const remote = new Remote(maker, token, ({ state }) => states.push(state));
    return { remote, states, bye: () => all.counter.hear(name, { ask: 'bye' }) };
  };
  /** Another tab becomes the leader. */
  all.change = () => {
    all.counter = make();
    for (const again of all.pages) again();
  };
  return all;
}

test('two pages share one stream, and each hears of its own channels', async () => {
  const { stage, page } = tabs();
  const [one, two] = [page(), page()];
  const [a, b] = [reader(['a']), reader(['a', 'b'])];
  one.remote.add(a);
  two.remote.add(b);
  await stage.pass(0);
  const request = stage.next();
  assert.match(request.url, /push\/a,b\?/);
  assert.equal(stage.requests.length, 0);
  await stage.stream(request, event('e-1', 'x', 'a') + event('e-2', 'y', 'b'));
  assert.deepEqual(a.read, ['e-1 x']);
  assert.deepEqual(b.read, ['e-1 x', 'e-2 y']);
  assert.deepEqual(one.states, ['connecting', 'open']);
});

test('the first message of a page whose stream begins with history is not taken for known', async () => {
  const { stage, page } = tabs();
  const { remote } = page();
  const first = reader(['a'], 'last:2');
  remote.add(first);
  await stage.pass(0);
  await stage.stream(stage.next(), event('e-1', 'x') + event('e-2', 'y'));
  assert.deepEqual(first.read, ['e-1 x', 'e-2 y']);
});

test('when another tab leads, every page goes on from where it was', async () => {
  const all = tabs();
  const { stage } = all;
  const [talks, silent] = [reader(['a']), reader(['b'])];
  all.page().remote.add(talks);
  all.page().remote.add(silent);
  await stage.pass(0);
  await stage.stream(stage.next(), ': hello\nid: e-5\n\n' + event('e-6', 'x', 'a'));
  all.change();
  await stage.pass(0);
  const first = stage.next();
  assert.match(first.url, /push\/a\?since=e-6&wait=0/);
  await stage.answer(first, 200, { messages: [envelope('e-7', 'y', 'a')], next: 'e-7' });
  const rest = stage.next();
  assert.match(rest.url, /push\/b\?since=e-5&wait=0/, 'a silent channel goes on from where its stream began');
  await stage.answer(rest, 200, { messages: [envelope('e-8', 'z', 'b')], next: 'e-8' });
  await stage.stream(stage.next(), event('e-8', 'z', 'b') + event('e-9', 'w', 'a'));
  assert.deepEqual(talks.read, ['e-6 x', 'e-7 y', 'e-9 w']);
  assert.deepEqual(silent.read, ['e-8 z']);
});

test('a page that goes takes its readers with it', async () => {
  const { stage, page } = tabs();
  const { remote, bye } = page();
  remote.add(reader(['a']));
  await stage.pass(0);
  const request = stage.next();
  await stage.stream(request, ':\n\n');
  bye();
  await stage.pass(0);
  assert.ok(request.aborted);
});

test('the page that came last is asked for a token', async () => {
  const { stage, page } = tabs(true);
  page(async () => 'old').remote.add(reader(['a']));
  page(async () => 'new').remote.add(reader(['b']));
  await stage.pass(0);
  assert.equal(stage.next().init.headers.authorization, 'Bearer new');
});

test('a page without a token leaves the request to the other pages; one that does not respond, too', async () => {
  const { stage, page } = tabs(true);
  page(async () => 'mine').remote.add(reader(['a']));
  page(async () => undefined).remote.add(reader(['b']));
  page(() => new Promise(() => {})).remote.add(reader(['c']));
  await stage.pass(5_000);
  assert.equal(stage.next().init.headers.authorization, 'Bearer mine');
});

test('while no page can get a token, the line waits and is not rejected', async () => {
  const { stage, page } = tabs(true);
  const { remote, states } = page(async () => Promise.reject(new Error('no network')));
  remote.add(reader(['a']));
  await stage.pass(0);
  assert.equal(stage.requests.length, 0);
  assert.equal(states.at(-1), 'waiting');
});

test('a rejected channel is reported to its page alone', async () => {
  const { stage, page } = tabs();
  const [one, two] = [page(), page()];
  const [a, b] = [reader(['a']), reader(['b'])];
  one.remote.add(a);
  two.remote.add(b);
  await stage.pass(0);
  await stage.answer(stage.next(), 403);
  await stage.answer(stage.next(), 204);
  await stage.refuse(stage.next(), 403, 'no right');
  assert.deepEqual([a.rejected, b.rejected, b.reason], [undefined, 403, 'no right']);
  assert.match(stage.next().url, /push\/a\?/);
});

test('a rejected channel of a line with a token is found with one token', async () => {
  const { stage, page } = tabs(true);
  const { remote } = page(async () => 't');
  const [a, b, c] = [reader(['a']), reader(['b']), reader(['c'])];
  for (const one of [a, b, c]) remote.add(one);
  await stage.pass(0);
  await stage.answer(stage.next(), 403);
  assert.equal(stage.requests.length, 3);
  for (const status of [204, 403, 204]) {
    assert.equal(stage.requests[0].init.headers.authorization, 'Bearer t');
    await stage.answer(stage.next(), status);
  }
  assert.deepEqual([a.rejected, b.rejected, c.rejected], [undefined, 403, undefined]);
});

test('a page that closes the line leaves it, and the last one ends it', async () => {
  const { stage, page, ...all } = tabs();
  const [one, two] = [page(), page()];
  one.remote.add(reader(['a']));
  two.remote.add(reader(['a']));
  await stage.pass(0);
  const request = stage.next();
  await stage.stream(request, ':\n\n');
  one.remote.close();
  await stage.pass(0);
  assert.ok(!request.aborted && !all.counter.idle);
  two.remote.close();
  await stage.pass(0);
  assert.ok(request.aborted && all.counter.idle);
});

test('a tab that leads and closes ends its stream: another tab resumes', async () => {
  const { stage, page, ...all } = tabs();
  page().remote.add(reader(['a']));
  await stage.pass(0);
  const request = stage.next();
  await stage.stream(request, ':\n\n');
  all.counter.close();
  await stage.pass(0);
  assert.ok(request.aborted && all.counter.idle);
});
