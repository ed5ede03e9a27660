/** Encke with TLS and HTTP/2, in a real browser. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { becomes, heard, listen, opened, staged } from './rig.js';

/** Opens a page of the server. Returns it with its protocol. */
async function visit(context, url) {
  const page = await context.newPage();
  await page.goto(url);
  const protocol = await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol);
  return { page, protocol };
}

/** Publishes from a page. */
const say = (page, channel, text) =>
  page.evaluate(async ([channel, text]) => {
    const answer = await fetch(`/push/${channel}`, { method: 'POST', body: text });
    if (!answer.ok) throw new Error(`publishing was answered with ${answer.status}`);
  }, [channel, text]);

test('the chat comes by HTTP/2, and what one says the other one reads', async () => {
  await staged(async (stack) => {
    const { url, browser } = await stack.secure();
    const people = [];
    for (const name of ['Ann', 'Bo']) {
      const context = await browser.newContext();
      await context.addInitScript((name) => localStorage.setItem('chat.name', name), name);
      const { page, protocol } = await visit(context, `${url}#lobby`);
      assert.equal(protocol, 'h2');
      await page.waitForSelector('#status.open');
      people.push(page);
    }
    await people[0].fill('#text', 'Hello by TLS');
    await people[0].press('#text', 'Enter');
    await people[1].locator('.message .bubble', { hasText: 'Hello by TLS' }).first().waitFor();
  });
});

test('twenty EventSources in one page share a connection, and leave room for more', async () => {
  await staged(async (stack) => {
    const server = await stack.secure();
    const { page } = await visit(await server.browser.newContext(), `${server.url}comet.svg`);
    await page.evaluate(() => {
      window.heard = Array.from({ length: 20 }, () => []);
      window.sources = heard.map((list, at) => {
        const source = new EventSource(`/push/many/${at}?as=sse&since=all`);
        source.onmessage = ({ data }) => list.push(data);
        return source;
      });
    });
    await page.waitForFunction(() => sources.every(({ readyState }) => readyState === EventSource.OPEN));
    for (let at = 0; at < 20; at++) await say(page, `many/${at}`, `for ${at}`);
    await page.waitForFunction(() => heard.every((list) => list.length === 1));
    assert.deepEqual(await page.evaluate(() => heard.flat()), Array.from({ length: 20 }, (_, at) => `for ${at}`));
    await becomes(server, 'encke_push_subscribers', 20);
    await becomes(server, 'encke_h2_connections', 1);
  });
});

test('a WebSocket goes by a stream of the connection that is there', async () => {
  await staged(async (stack) => {
    const server = await stack.secure();
    const { page } = await visit(await server.browser.newContext(), `${server.url}comet.svg`);
    const before = await server.count('encke_tls_handshakes_total');
    assert.ok(before > 0);
    await listen(page, 'socket', { transport: 'ws' });
    assert.equal(await opened(page), 'ws');
    await say(page, 'socket', 'through a stream');
    assert.deepEqual(await heard(page, 'through a stream'), ['through a stream']);
    assert.equal(await server.count('encke_tls_handshakes_total'), before, 'a connection of its own');
    await becomes(server, 'encke_push_subscribers', 1);
  });
});
