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
      return { post: (ask) => all.counter.hear(name, structuredClone(ask), (told) => tell(structuredClone(told))) };
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
