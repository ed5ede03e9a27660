/** The interface of the script: wrong arguments are errors at the call, before the client needs a browser. */

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import { subscribe } from '../out/encke.js';

test('a wrong argument of subscribe is a TypeError with its name and the expected ones', () => {
  const cases = [
    [[], {}, 'subscribe: name at least one channel'],
    ['news', { sinse: 'all' }, 'subscribe: unknown option "sinse": expected url, since, token, transport, name, share, json, onGap, onState'],
    ['news', { transport: 'websocket' }, 'subscribe: unknown transport "websocket": expected sse, ws, poll'],
    ['news', { transport: null }, 'subscribe: unknown transport "null": expected sse, ws, poll'],
  ];
  for (const [channels, options, message] of cases) {
    assert.throws(() => subscribe(channels, () => {}, options), { name: 'TypeError', message });
  }
});

test('without a page a relative url is a TypeError, after the check of the options', () => {
  const options = { url: '/push/', since: 'all', token: 't', transport: 'ws', name: 'Ann', share: false, json: true, onGap() {}, onState() {} };
  for (const given of [options, { ...options, transport: undefined }, {}]) {
    assert.throws(() => subscribe('news', () => {}, given), {
      name: 'TypeError',
      message: 'subscribe: the url "/push/" is relative to a page, and there is none: name the server',
    });
  }
});

test('without a page messages arrive, and callbacks that throw end nothing', async (context) => {
  const server = createServer((request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const event = (id, data) => `id: ${id}\ndata: ${JSON.stringify({ id, channel: 'news', time: '2026-01-01T00:00:00Z', data })}\n\n`;
    response.write(`id: a-1\n\n${event('a-2', 'one')}${event('a-3', 'two')}`);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const reported = context.mock.method(console, 'error', () => {});
  const received = [];
  const news = await new Promise((done) => {
    const news = subscribe('news', (data) => {
      received.push(data);
      if (data === 'two') done(news);
      throw new Error(data);
    }, { url: `http://127.0.0.1:${server.address().port}/push/`, transport: 'sse' });
  });
  assert.deepEqual(received, ['one', 'two']);
  news.close();
  assert.deepEqual(reported.mock.calls.map(({ arguments: [error] }) => error.message), ['one', 'two']);
});
