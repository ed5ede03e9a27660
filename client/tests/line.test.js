/** A line keeps its stream open: requests, notifications, and permanent failures. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { envelope, event, reader, settled, Stage } from './stage.js';

/** A line with one reader, with its stream open at e-5. */
async function opened(options = {}) {
  const stage = new Stage();
  const { line, states } = stage.line(options.settings, options.token);
  const first = reader(['a'], options.since);
  line.add(first);
  await stage.pass(0);
  const request = stage.next();
  const stream = await stage.stream(request, ': hello\nid: e-5\n\n');
  return { stage, line, states, first, request, stream };
}

const last = (states) => states.at(-1).state;

test('it asks for an event stream of envelopes, from where its reader begins', async () => {
  const { request, states } = await opened({ since: 'last:3', settings: { name: 'Ann & Bo' } });
  assert.equal(request.url, 'http://test/push/a?since=last%3A3&name=Ann%20%26%20Bo&envelope=');
  assert.equal(request.init.headers.accept, 'text/event-stream');
  assert.deepEqual(states.map(({ state }) => state), ['connecting', 'open']);
});

test('it resumes after the last message, or where it began if there was none', async () => {
  for (const [said, since] of [['', 'e-5'], [event('e-8', 'x'), 'e-8']]) {
    const { stage, stream } = await opened();
    if (said) await stream.write(said);
    await stream.cut();
    await stage.pass(2_000);
    assert.match(stage.next().url, new RegExp(`since=${since}&`));
  }
});

test('no message is given twice when a stream repeats itself', async () => {
  const { stage, stream, first } = await opened();
  await stream.write(event('e-6', 'x') + event('e-7', 'y'));
  await stream.cut();
  await stage.pass(2_000);
  await stage.stream(stage.next(), event('e-7', 'y') + event('e-8', 'z'));
  assert.deepEqual(first.read, ['e-6 x', 'e-7 y', 'e-8 z']);
});

test('a message that comes in pieces of one byte is one message', async () => {
  const { stream, first } = await opened();
  for (const char of event('e-6', 'x')) await stream.write(char);
  assert.deepEqual(first.read, ['e-6 x']);
});

test('a gap is told, and what follows is read', async () => {
  const { stream, first } = await opened();
  await stream.write('event: encke.gap\ndata: {"from":"e-5","to":"e-90","reason":"evicted"}\n\n' + event('e-91', 'x'));
  assert.deepEqual(first.gaps, [{ from: 'e-5', to: 'e-90', reason: 'evicted' }]);
  assert.deepEqual(first.read, ['e-91 x']);
});

test('a gap is told, too, when the server says the position behind it first', async () => {
  const { stage, stream, first } = await opened();
  await stream.cut();
  await stage.pass(2_000);
  const gap = 'id: f-9\nevent: encke.gap\ndata: {"op":"gap","from":"e-5","to":"f-9","reason":"epoch"}\n\n';
  await stage.stream(stage.next(), `: encke\nid: f-9\n\n${gap}${event('f-10', 'x')}`);
  assert.deepEqual(first.gaps, [{ from: 'e-5', to: 'f-9', reason: 'epoch' }]);
  assert.deepEqual(first.read, ['f-10 x']);
});

test('readers that come in one turn share one request', async () => {
  const stage = new Stage();
  const { line } = stage.line();
  line.add(reader(['b']));
  line.add(reader(['a', 'b']));
  await stage.pass(0);
  assert.match(stage.next().url, /push\/a,b\?since=now/);
  assert.equal(stage.requests.length, 0);
});

test('a reader that comes later begins where it wants, and nobody misses or repeats a message', async () => {
  const { stage, line, first, request } = await opened();
  const second = reader(['b'], 'last:2');
  line.add(second);
  await stage.pass(0);
  assert.ok(request.aborted, 'the old stream is given up');
  // First the old part, from its position; then the new one, from its start position.
  const old = stage.next();
  assert.match(old.url, /push\/a\?since=e-5&wait=0/);
  await stage.answer(old, 200, { messages: [envelope('e-6', 'x')], next: 'e-6' });
  const history = stage.next();
  assert.match(history.url, /push\/b\?since=last%3A2&wait=0/);
  const messages = [envelope('e-2', 'p', 'b'), envelope('e-7', 'q', 'b')];
  await stage.answer(history, 200, { messages, next: 'e-7' });
  // Then both, from the older position. The second reader does not receive its messages again.
  const both = stage.next();
  assert.match(both.url, /push\/a,b\?since=e-6&/);
  await stage.stream(both, event('e-7', 'q', 'b') + event('e-8', 'y', 'a') + event('e-9', 'r', 'b'));
  assert.deepEqual(first.read, ['e-6 x', 'e-8 y']);
  assert.deepEqual(second.read, ['e-2 p', 'e-7 q', 'e-9 r']);
});

test('history that comes in several answers is read to its end', async () => {
  const { stage, line } = await opened();
  const second = reader(['b'], 'all');
  line.add(second);
  await stage.pass(0);
  await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-6' });
  await stage.answer(stage.next(), 200, { messages: [envelope('e-1', 'p', 'b')], next: 'e-1', more: 1 });
  const rest = stage.next();
  assert.match(rest.url, /push\/b\?since=e-1&wait=0/);
  await stage.answer(rest, 200, { messages: [envelope('e-2', 'q', 'b')], next: 'e-6' });
  assert.deepEqual(second.read, ['e-1 p', 'e-2 q']);
  assert.match(stage.next().url, /push\/a,b\?since=e-6&/);
});

test('a reader that leaves while others catch up is not asked for, and nobody is rejected', async () => {
  const { stage, line, first, states } = await opened();
  const second = reader(['a'], 'last:20');
  line.add(second);
  await stage.pass(0);
  const old = stage.next();
  assert.match(old.url, /push\/a\?since=e-5&wait=0/);
  line.remove(second);
  await stage.pass(0);
  await stage.answer(old, 204, undefined, { 'encke-id': 'e-6' });
  const stream = stage.next();
  assert.match(stream.url, /push\/a\?since=e-6&/);
  await stage.stream(stream, event('e-7', 'x'));
  assert.deepEqual([first.read, first.rejected, states.at(-1).state], [['e-7 x'], undefined, 'open']);
});

test('a reader of channels that the stream has already joins it without a new one', async () => {
  const { stage, line, stream, first } = await opened();
  const second = reader(['a']);
  line.add(second);
  await stage.pass(0);
  await stream.write(event('e-6', 'x'));
  assert.deepEqual(second.read, first.read);
  assert.equal(stage.requests.length, 0);
});

test('a channel that nobody reads any more is not asked for; without readers the line closes', async () => {
  const { stage, line, states, first, request } = await opened();
  const second = reader(['a', 'b']);
  line.add(second);
  await stage.pass(0);
  await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-6' });
  await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-6' });
  const both = stage.next();
  await stage.stream(both, ':\n\n');
  line.remove(second);
  await stage.pass(0);
  assert.ok(request.aborted && both.aborted);
  const one = stage.next();
  assert.match(one.url, /push\/a\?since=e-6&/);
  await stage.stream(one, ':\n\n');
  line.remove(first);
  await stage.pass(0);
  assert.ok(one.aborted);
  assert.equal(last(states), 'closed');
});

test('without a first byte in 5 s it takes the next transport, and remembers what works', async () => {
  const stage = new Stage();
  const { line, states } = stage.line();
  const first = reader(['a']);
  line.add(first);
  await stage.pass(0);
  const silent = stage.next();
  await stage.stream(silent);
  await stage.pass(5_000);
  assert.ok(silent.aborted);
  const [socket] = stage.sockets;
  assert.equal(socket.url, 'ws://test/push/a?since=now');
  assert.equal(socket.protocol, 'encke.v1');
  socket.onopen();
  socket.onmessage({ data: '{"op":"ok","id":"e-5"}' });
  socket.onmessage({ data: JSON.stringify(envelope('e-6', 'x')) });
  await settled();
  assert.deepEqual(first.read, ['e-6 x']);
  assert.equal(stage.notes.get('http://test/push/'), 'ws');
  assert.deepEqual(states.at(-1), { state: 'open', transport: 'ws' });

  const again = stage.line();
  again.line.add(reader(['a']));
  await stage.pass(0);
  assert.equal(stage.sockets.length, 2, 'another line of this tab begins with what has worked');
});

test('a transport that a subscription forces is remembered for no other one', async () => {
  const stage = new Stage();
  const forced = stage.line({ transport: 'ws' });
  forced.line.add(reader(['a']));
  await stage.pass(0);
  await socketOpens(stage.sockets[0]);
  assert.deepEqual(forced.states.at(-1), { state: 'open', transport: 'ws' });
  assert.equal(stage.notes.size, 0);
  stage.line().line.add(reader(['a']));
  await stage.pass(0);
  assert.equal(stage.next().init.headers.accept, 'text/event-stream');
});

test('a WebSocket that is refused is followed by long polls, each from where the last one ended', async () => {
  const stage = new Stage();
  const { line, states } = stage.line();
  const first = reader(['a']);
  line.add(first);
  await stage.pass(5_000);
  stage.next();
  stage.sockets[0].onclose({ code: 1006, reason: '' });
  await settled();
  // The server has nothing against the request: WebSockets do not work here.
  await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-4' });
  const probe = stage.next();
  assert.match(probe.url, /since=now&wait=0/);
  await stage.answer(probe, 200, { messages: [], next: 'e-5' });
  assert.deepEqual(states.at(-1), { state: 'open', transport: 'poll' });
  const poll = stage.next();
  assert.match(poll.url, /since=e-5&wait=25/);
  await stage.answer(poll, 200, { messages: [envelope('e-6', 'x')], next: 'e-6' });
  await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-6' });
  assert.match(stage.next().url, /since=e-6&wait=25/);
  assert.deepEqual(first.read, ['e-6 x']);
});

test('a server that is down is no reason to change the transport', async () => {
  const { stage, stream, states } = await opened();
  await stream.cut();
  for (let failure = 0; failure < 8; failure++) {
    await stage.pass(states.at(-1).delayMs);
    stage.next().reject(new TypeError('refused'));
    await settled();
    assert.equal(states.at(-1).transport, 'sse');
  }
  assert.equal(stage.sockets.length, 0);
});

test('a transport that has worked is given up only after three silent attempts', async () => {
  const { stage, stream } = await opened();
  await stream.cut();
  while (stage.sockets.length === 0) await stage.pass(1_000);
  assert.equal(stage.requests.length, 3);
});

test('it waits longer each time, and not for ever', async () => {
  const { stage, stream, states } = await opened();
  await stream.cut();
  const delays = [];
  for (let failure = 0; failure < 7; failure++) {
    delays.push(states.at(-1).delayMs);
    await stage.pass(states.at(-1).delayMs);
    stage.next().reject(new TypeError('refused'));
    await settled();
  }
  assert.deepEqual(delays, [2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
});

test('it obeys the delay that a server wishes, on each transport', async () => {
  const { states, stream } = await opened();
  await stream.write('retry: 4000\n\n');
  await stream.end();
  assert.deepEqual(states.at(-1), { state: 'waiting', transport: 'sse', delayMs: 5_000 });

  const other = new Stage();
  const { line, states: waits } = other.line({ transport: 'ws' });
  line.add(reader(['a']));
  await other.pass(0);
  other.sockets[0].onopen();
  other.sockets[0].onmessage({ data: '{"op":"ok","id":"e-1"}' });
  other.sockets[0].onclose({ code: 1012, reason: 'retry in 8000 ms' });
  await settled();
  assert.equal(waits.at(-1).delayMs, 10_000);
  await other.pass(10_000);
  assert.match(other.sockets[1].url, /since=e-1/);

  const third = new Stage();
  const polls = third.line({ transport: 'poll' });
  polls.line.add(reader(['a']));
  await third.pass(0);
  await third.answer(third.next(), 503, undefined, { 'retry-after': '12' });
  assert.equal(polls.states.at(-1).delayMs, 15_000);
});

test('a server that asks for no time gets a second, and then more', async () => {
  const stage = new Stage();
  const polls = stage.line({ transport: 'poll' });
  polls.line.add(reader(['a']));
  await stage.pass(0);
  for (const delayMs of [1_250, 2_500, 5_000, 10_000, 20_000, 37_500, 37_500]) {
    await stage.answer(stage.next(), 503, undefined, { 'retry-after': '0' });
    assert.equal(polls.states.at(-1).delayMs, delayMs);
    await stage.pass(delayMs);
  }
});

test('a minute without a byte is the end of a stream; a heartbeat is a byte', async () => {
  const { stage, stream, request } = await opened();
  await stage.pass(59_000);
  await stream.write(':\n\n');
  await stage.pass(59_000);
  assert.ok(!request.aborted);
  await stage.pass(1_000);
  assert.ok(request.aborted);
});

test('a silent WebSocket is asked whether it lives', async () => {
  const stage = new Stage();
  const { line } = stage.line({ transport: 'ws' });
  line.add(reader(['a']));
  await stage.pass(0);
  const [socket] = stage.sockets;
  socket.onopen();
  socket.onmessage({ data: '{"op":"ok","id":"e-1"}' });
  await stage.pass(25_000);
  assert.deepEqual(socket.sent, ['{"op":"ping","ref":0}']);
  socket.onmessage({ data: '{"op":"ok","ref":0}' });
  await stage.pass(59_000);
  assert.ok(!socket.closed);
  await stage.pass(2_000);
  assert.ok(socket.closed);
});

test('a page that comes to the front, or a network that is back, ends waiting', async () => {
  for (const why of ['online', 'visible']) {
    const { stage, line, stream } = await opened();
    await stream.cut();
    assert.equal(stage.requests.length, 0);
    line.wake(why);
    await stage.pass(0);
    assert.match(stage.next().url, /since=e-5/);
  }
});

test('another network replaces a stream at once; coming to the front only one that has been silent', async () => {
  const { stage, line, request } = await opened();
  line.wake('visible');
  await stage.pass(0);
  assert.ok(!request.aborted);
  await stage.pass(31_000);
  line.wake('visible');
  await stage.pass(0);
  assert.ok(request.aborted);
  const second = stage.next();
  await stage.stream(second, ':\n\n');
  line.wake('online');
  await stage.pass(0);
  assert.ok(second.aborted);
});

test('after 401 it asks for another token, once', async () => {
  const stage = new Stage();
  const asked = [];
  const { line, states } = stage.line({}, async (fresh) => (asked.push(fresh), `t${asked.length}`));
  line.add(reader(['a']));
  await stage.pass(0);
  const first = stage.next();
  assert.equal(first.init.headers.authorization, 'Bearer t1');
  await stage.answer(first, 401);
  const second = stage.next();
  assert.equal(second.init.headers.authorization, 'Bearer t2');
  assert.deepEqual(asked, [false, true]);
  await stage.refuse(second, 401, 'invalid token: it has expired');
  assert.deepEqual(states.at(-1), { state: 'denied', transport: 'sse', status: 401, text: 'invalid token: it has expired' });
  await stage.pass(100_000);
  assert.equal(stage.requests.length, 0);
});

/** Opens a WebSocket of a line, and closes it as the server does when its token expires. */
const socketOpens = async ({ onopen, onmessage }) => (onopen(), onmessage({ data: '{"op":"ok","id":"e-5"}' }), settled());
const socketExpires = async ({ onclose }) => (onclose({ code: 4401, reason: 'the token has expired' }), settled());

test('every expiry is a renewal: a WebSocket and long polls outlive any number of tokens', async () => {
  for (const transport of ['ws', 'poll']) {
    const stage = new Stage();
    const asked = [];
    const { line, states } = stage.line({ transport }, async (fresh) => (asked.push(fresh), `t${asked.length}`));
    line.add(reader(['a']));
    await stage.pass(0);
    for (let expiry = 0; expiry < 5; expiry++) {
      if (transport === 'ws') await socketOpens(stage.sockets.at(-1));
      else await stage.answer(stage.next(), 204, undefined, { 'encke-id': 'e-5' });
      assert.deepEqual(states.at(-1), { state: 'open', transport });
      await stage.pass(4_000);
      if (transport === 'ws') await socketExpires(stage.sockets.at(-1));
      else await stage.answer(stage.next(), 401);
      assert.deepEqual(states.at(-1), { state: 'connecting', transport }, `${transport}, expiry ${expiry}`);
    }
    assert.deepEqual(asked, [false, true, true, true, true, true]);
    // The token of the last request is rejected before it has opened anything: that is final.
    if (transport === 'ws') stage.sockets.at(-1).onopen(), await socketExpires(stage.sockets.at(-1));
    else await stage.answer(stage.next(), 401);
    assert.equal(states.at(-1).state, 'denied');
  }
});

test('a token that opens a stream and is rejected at once is renewed after a delay, not in a loop', async () => {
  const stage = new Stage();
  const { line, states } = stage.line({ transport: 'ws' }, async () => 't');
  line.add(reader(['a']));
  await stage.pass(0);
  for (const socket of [1, 2]) {
    assert.equal(stage.sockets.length, socket);
    await socketOpens(stage.sockets.at(-1));
    await socketExpires(stage.sockets.at(-1));
  }
  assert.deepEqual(states.at(-1), { state: 'waiting', transport: 'ws', delayMs: 2_000 });
  await stage.pass(2_000);
  assert.equal(stage.sockets.length, 3);
});

test('a stream that opened with a renewed token and then changes asks for no other one', async () => {
  const stage = new Stage();
  const asked = [];
  const { line } = stage.line({}, async (fresh) => void asked.push(fresh));
  line.add(reader(['a']));
  await stage.pass(0);
  await stage.answer(stage.next(), 401);
  await stage.stream(stage.next(), ': hello\nid: e-5\n\n');
  line.wake('online');
  await settled();
  assert.deepEqual(asked, [false, true, false]);
});

test('403 is final, for this line; who subscribes again asks again', async () => {
  const stage = new Stage();
  const { line, states } = stage.line();
  line.add(reader(['a']));
  await stage.pass(0);
  await stage.answer(stage.next(), 403);
  await stage.pass(100_000);
  assert.deepEqual(states.at(-1), { state: 'denied', transport: 'sse', status: 403, text: '' });
  assert.equal(stage.requests.length, 0);
  line.add(reader(['b']));
  await stage.pass(0);
  assert.match(stage.next().url, /push\/b\?/);
});

test('the reason of a rejection is the first line of a response in plain text', async () => {
  const cases = [
    ['text/plain; charset=utf-8', 'channel "news:a": invalid character\nsecond line', 'channel "news:a": invalid character'],
    ['text/html', '<!doctype html><title>Forbidden</title>', ''],
  ];
  for (const transport of ['sse', 'poll']) {
    for (const [type, body, text] of cases) {
      const stage = new Stage();
      const { line, states } = stage.line({ transport });
      const one = reader(['news:a']);
      line.add(one);
      await stage.pass(0);
      await stage.refuse(stage.next(), 400, body, { 'content-type': type });
      assert.deepEqual(states.at(-1), { state: 'denied', transport, status: 400, text });
      assert.deepEqual([one.rejected, one.reason], [400, text]);
      await stage.pass(100_000);
      assert.equal(stage.requests.length, 0);
    }
  }
});

test('the reason of a WebSocket that the server closes is that of the close', async () => {
  const stage = new Stage();
  const { line, states } = stage.line({ transport: 'ws' });
  line.add(reader(['a']));
  await stage.pass(0);
  await socketOpens(stage.sockets[0]);
  stage.sockets[0].onclose({ code: 4403, reason: 'logged out' });
  await settled();
  assert.deepEqual(states.at(-1), { state: 'denied', transport: 'ws', status: 403, text: 'logged out' });
});

/** A line by WebSocket whose handshake failed. Returns the request that finds the reason. */
async function handshakeFails(token) {
  const stage = new Stage();
  const { line, states } = stage.line({ transport: 'ws' }, token);
  line.add(reader(['news:a'], 'last:5'));
  await stage.pass(0);
  stage.sockets[0].onclose({ code: 1006, reason: '' });
  await settled();
  const probe = stage.next();
  assert.match(probe.url, /push\/news:a\?since=now&wait=0/);
  return { stage, states, probe };
}

test('a WebSocket whose handshake the server rejects for good is not tried again', async () => {
  const { stage, states, probe } = await handshakeFails();
  await stage.refuse(probe, 400, 'channel "news:a": invalid character');
  assert.deepEqual(states.at(-1), { state: 'denied', transport: 'ws', status: 400, text: 'channel "news:a": invalid character' });
  await stage.pass(100_000);
  assert.deepEqual([stage.sockets.length, stage.requests.length], [1, 0]);
});

test('a WebSocket whose handshake fails for want of a token, for now, or without a network is tried again', async () => {
  const asked = [];
  const { stage, probe } = await handshakeFails(async (fresh) => void asked.push(fresh));
  await stage.refuse(probe, 401, 'invalid token: it has expired');
  assert.deepEqual([asked, stage.sockets.length], [[false, true], 2]);

  const later = await handshakeFails();
  await later.stage.refuse(later.probe, 503, 'the server drains', { 'retry-after': '7' });
  assert.deepEqual(later.states.at(-1), { state: 'waiting', transport: 'ws', delayMs: 8_750 });

  const cut = await handshakeFails();
  cut.probe.reject(new TypeError('no network'));
  await settled();
  assert.equal(cut.states.at(-1).state, 'waiting');
});

/** A line with readers whose stream was rejected with 403. Returns the requests for each reader's own channels, by URL. */
async function rejected(lists) {
  const stage = new Stage();
  const { line, states } = stage.line();
  const readers = lists.map((channels) => reader(channels));
  for (const one of readers) line.add(one);
  await stage.pass(0);
  await stage.answer(stage.next(), 403);
  const asks = new Map(stage.requests.splice(0).map((request) => [/push\/(.*)\?/.exec(request.url)[1], request]));
  return { stage, states, readers, asks };
}

test('a channel without a right is rejected alone: the other readers go on', async () => {
  const { stage, states, readers, asks } = await rejected([['a'], ['secret'], ['b'], ['secret']]);
  assert.deepEqual([...asks.keys()], ['a', 'secret', 'b']);
  assert.match(asks.get('a').url, /since=now&wait=0/);
  await stage.answer(asks.get('a'), 204);
  await stage.answer(asks.get('b'), 204);
  await stage.answer(asks.get('secret'), 403);
  assert.deepEqual(readers.map(({ rejected }) => rejected), [undefined, 403, undefined, 403]);
  const request = stage.next();
  assert.match(request.url, /push\/a,b\?/);
  await stage.stream(request, event('e-1', 'x'));
  assert.deepEqual(readers.map(({ read }) => read), [['e-1 x'], [], [], []]);
  assert.ok(!states.some(({ state }) => state === 'denied'));
});

test('when every channel is rejected, or only all of them together, all readers are', async () => {
  for (const status of [401, 403, 204]) {
    const { stage, states, readers, asks } = await rejected([['a'], ['b']]);
    for (const request of asks.values()) await stage.answer(request, status);
    assert.deepEqual(readers.map(({ rejected }) => rejected), [403, 403]);
    assert.equal(states.at(-1).state, 'denied');
    await stage.pass(100_000);
    assert.equal(stage.requests.length, 0);
  }
});

test('when the requests for single channels fail, nobody is rejected, and the line tries again later', async () => {
  const { stage, states, readers, asks } = await rejected([['a'], ['b']]);
  for (const request of asks.values()) request.reject(new TypeError('reset'));
  await settled();
  assert.equal(states.at(-1).state, 'waiting');
  await stage.pass(2_000);
  assert.match(stage.next().url, /push\/a,b\?/);
  assert.deepEqual(readers.map(({ rejected }) => rejected), [undefined, undefined]);
});
