/**
 * /encke.js in a real browser: whatever is between it and the server, no message is lost or repeated, and nothing is requested
 * twice.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { heard, listen, listener, opened, publish, staged } from './rig.js';

const KEPT_BYTES = 64 * 1024;

test('a message reaches a page by each transport, and one that the page publishes comes back', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const browser = await stack.browser();
    for (const transport of ['sse', 'ws', 'poll']) {
      const page = await listener(await browser.newContext(), encke.url, transport, { transport });
      assert.equal(await opened(page), transport);
      await publish(encke.port, transport, 'from outside, ☄');
      await heard(page, 'from outside, ☄');
      await page.evaluate(() => subscription.publish('from the page, \n日本語'));
      assert.deepEqual(await heard(page, 'from the page, \n日本語'), ['from outside, ☄', 'from the page, \n日本語']);
    }
  });
});

test('a proxy that keeps 64 KiB of each answer makes the client use a WebSocket, and it remembers', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const proxy = await stack.proxy(encke.port, { keeps: KEPT_BYTES });
    const context = await (await stack.browser()).newContext();
    const page = await listener(context, proxy.url, 'news', { share: false });
    assert.equal(await opened(page), 'ws');
    await publish(encke.port, 'news', 'hello');
    assert.deepEqual(await heard(page, 'hello'), ['hello']);

    const before = proxy.asked.filter((entry) => entry.startsWith('text/event-stream')).length;
    await page.reload();
    await listen(page, 'news', { share: false });
    assert.equal(await opened(page), 'ws');
    assert.equal(proxy.asked.filter((entry) => entry.startsWith('text/event-stream')).length, before);
  });
});

test('where WebSockets do not pass either, the client polls', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const proxy = await stack.proxy(encke.port, { keeps: KEPT_BYTES, upgrades: false });
    const page = await listener(await (await stack.browser()).newContext(), proxy.url, 'news');
    assert.equal(await opened(page), 'poll');
    for (const word of ['one', 'two', 'three']) await publish(encke.port, 'news', word);
    assert.deepEqual(await heard(page, 'three'), ['one', 'two', 'three']);
  });
});

for (const transport of ['sse', 'ws', 'poll']) {
  test(`${transport}: what was published while the network was away comes once, in order`, async () => {
    await staged(async (stack) => {
      const encke = await stack.encke();
      const line = await stack.line(encke.port);
      const page = await listener(await (await stack.browser()).newContext(), line.url, 'news', { transport });
      await opened(page);
      const said = [];
      for (let round = 0; round < 3; round++) {
        for (const when of ['before', 'away', 'after']) {
          if (when === 'away') line.cut();
          for (let count = 0; count < 5; count++) {
            said.push(`${round} ${when} ${count}`);
            await publish(encke.port, 'news', said.at(-1));
          }
          if (when === 'away') line.mend();
        }
        assert.deepEqual(await heard(page, said.at(-1)), said);
      }
      assert.deepEqual(await page.evaluate(() => gaps), []);
    });
  });
}

test('what a page publishes while the network is away arrives once, in order', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const line = await stack.line(encke.port);
    const browser = await stack.browser();
    const witness = await listener(await browser.newContext(), encke.url, 'news');
    const page = await listener(await browser.newContext(), line.url, 'news');
    await Promise.all([opened(witness), opened(page)]);
    line.cut();
    await page.evaluate(() => {
      window.done = Promise.all(['one', 'two', 'three'].map((word) => subscription.publish(word)));
    });
    await page.waitForFunction(() => states.at(-1).startsWith('waiting'));
    line.mend();
    await page.evaluate(() => done);
    assert.deepEqual(await heard(witness, 'three'), ['one', 'two', 'three']);
    assert.deepEqual(await heard(page, 'three'), ['one', 'two', 'three']);
  });
});

const WAYS = [
  ['a worker', () => {}],
  ['an elected tab', () => delete window.SharedWorker],
];

for (const [way, prepare] of WAYS) {
  test(`two tabs share one stream through ${way}, and the other one goes on when one closes`, async () => {
    await staged(async (stack) => {
      const encke = await stack.encke();
      const proxy = await stack.proxy(encke.port);
      const context = await (await stack.browser()).newContext();
      await context.addInitScript(prepare);
      const first = await listener(context, proxy.url, 'news');
      await opened(first);
      const second = await listener(context, proxy.url, 'news');
      await opened(second);
      await publish(encke.port, 'news', 'to both');
      assert.deepEqual(await heard(first, 'to both'), ['to both']);
      assert.deepEqual(await heard(second, 'to both'), ['to both']);
      assert.deepEqual(proxy.streams.length, 1, proxy.open.join('\n'));

      await first.close();
      await publish(encke.port, 'news', 'to one');
      assert.deepEqual(await heard(second, 'to one'), ['to both', 'to one']);
      await publish(encke.port, 'news', 'and on');
      assert.deepEqual(await heard(second, 'and on'), ['to both', 'to one', 'and on']);
      assert.equal(proxy.streams.length, 1, proxy.open.join('\n'));
    });
  });
}

test('a tab that joins with history gets it, and the other tab nothing twice', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const proxy = await stack.proxy(encke.port);
    const context = await (await stack.browser()).newContext();
    const first = await listener(context, proxy.url, 'a');
    await opened(first);
    for (const word of ['1', '2', '3']) await publish(encke.port, 'b', word);
    await publish(encke.port, 'a', 'x');
    await heard(first, 'x');
    const second = await listener(context, proxy.url, 'b', { since: 'last:2' });
    assert.deepEqual(await heard(second, '3'), ['2', '3']);
    await publish(encke.port, 'a', 'y');
    await publish(encke.port, 'b', '4');
    assert.deepEqual(await heard(first, 'y'), ['x', 'y']);
    assert.deepEqual(await heard(second, '4'), ['2', '3', '4']);
    assert.equal(proxy.streams.length, 1, proxy.open.join('\n'));
  });
});
