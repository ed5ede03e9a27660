/** The interface of the script: wrong arguments are errors at the call, before the client needs a browser. */

import assert from 'node:assert/strict';
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

test('options without a fault pass the check', () => {
  const options = { url: '/push/', since: 'all', token: 't', transport: 'ws', name: 'Ann', share: false, json: true, onGap() {}, onState() {} };
  // Without a browser, the next step fails: the page has no address.
  for (const given of [options, { ...options, transport: undefined }, {}]) {
    assert.throws(() => subscribe('news', () => {}, given), { name: 'ReferenceError', message: /location/ });
  }
});
