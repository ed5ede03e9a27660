/**
 * /encke.js in a real browser: whatever is between it and the server, no message is lost or repeated, and nothing is requested
 * twice.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { becomes, BY_TOKEN, heard, listen, listener, opened, publish, staged, tokenOf } from './rig.js';

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

/** Streams of these tests are counted: none may be given up because its first byte is late on a busy machine. */
const ONE = { transport: 'sse' };

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
      const first = await listener(context, proxy.url, 'news', ONE);
      await opened(first);
      const second = await listener(context, proxy.url, 'news', ONE);
      await opened(second);
      await publish(encke.port, 'news', 'to both');
      assert.deepEqual(await heard(first, 'to both'), ['to both']);
      assert.deepEqual(await heard(second, 'to both'), ['to both']);
      await proxy.carries(1);

      await first.close();
      await publish(encke.port, 'news', 'to one');
      assert.deepEqual(await heard(second, 'to one'), ['to both', 'to one']);
      await publish(encke.port, 'news', 'and on');
      assert.deepEqual(await heard(second, 'and on'), ['to both', 'to one', 'and on']);
      await proxy.carries(1);
    });
  });
}

test('a tab that joins with history gets it, and the other tab nothing twice', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const proxy = await stack.proxy(encke.port);
    const context = await (await stack.browser()).newContext();
    const first = await listener(context, proxy.url, 'a', ONE);
    await opened(first);
    for (const word of ['1', '2', '3']) await publish(encke.port, 'b', word);
    await publish(encke.port, 'a', 'x');
    await heard(first, 'x');
    const second = await listener(context, proxy.url, 'b', { ...ONE, since: 'last:2' });
    assert.deepEqual(await heard(second, '3'), ['2', '3']);
    await publish(encke.port, 'a', 'y');
    await publish(encke.port, 'b', '4');
    assert.deepEqual(await heard(first, 'y'), ['x', 'y']);
    assert.deepEqual(await heard(second, '4'), ['2', '3', '4']);
    await proxy.carries(1);
  });
});

/** Subscribes eight components of a page, each with a token of its own from a function of its own. */
async function components(page, tokens, options = {}) {
  await page.evaluate(async ([tokens, options]) => {
    const { subscribe } = await import('/encke.js');
    Object.assign(window, { heard: [], states: [], warned: [] });
    console.warn = (text) => warned.push(text);
    window.subscriptions = tokens.map((token, count) =>
      subscribe(`room/${count % 3}`, (data) => heard.push(`${count} ${data}`), {
        ...options,
        token: async () => token,
        onState: (state) => (states[count] = state),
      }),
    );
  }, [tokens, options]);
  await page.waitForFunction((count) => states.filter((state) => state === 'open').length === count, tokens.length);
}

const WHERE = [
  ['in a worker', () => {}, {}],
  ['in an elected tab', () => delete window.SharedWorker, {}],
  ['in the page', () => {}, { share: false }],
];

for (const [where, prepare, options] of WHERE) {
  test(`eight components with inline token functions have one stream ${where}, and its end frees it`, async () => {
    await staged(async (stack) => {
      const encke = await stack.encke({ settings: BY_TOKEN });
      const context = await (await stack.browser()).newContext();
      await context.addInitScript(prepare);
      const page = await context.newPage();
      await page.goto(`${encke.url}comet.svg`);
      await components(page, Array.from({ length: 8 }, () => tokenOf('ann')), options);
      await becomes(encke, 'encke_push_subscribers', 1);
      assert.equal(await page.evaluate(async () => (await fetch('/chat.css')).status), 200);
      await page.evaluate(() => subscriptions[7].publish({ from: 7 }, { channel: 'room/0' }));
      await page.waitForFunction(() => heard.length === 3);
      assert.deepEqual((await page.evaluate(() => heard)).sort(), ['0 {"from":7}', '3 {"from":7}', '6 {"from":7}']);
      assert.deepEqual(await page.evaluate(() => warned), []);

      await page.evaluate(() => subscriptions.slice(1).forEach((one) => one.close()));
      await publish(encke.port, 'room/0', 'to the last', tokenOf('server'));
      await page.waitForFunction(() => heard.includes('0 to the last'));
      await page.evaluate(() => subscriptions[0].close());
      await becomes(encke, 'encke_push_subscribers', 0);
      assert.ok(!(await page.evaluate(async () => (await navigator.locks.query()).held)).some(({ name }) => name.startsWith('encke.v2')));
    });
  });
}

test('eight components of three users have three streams, a warning, and only what their users may read', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke({ settings: BY_TOKEN });
    const page = await (await (await stack.browser()).newContext()).newPage();
    await page.goto(`${encke.url}comet.svg`);
    await components(page, ['ann', 'bo', 'cy', 'ann', 'bo', 'cy', 'ann', 'bo'].map((user) => tokenOf(user)));
    await becomes(encke, 'encke_push_subscribers', 3);
    assert.equal(await page.evaluate(async () => (await fetch('/chat.css')).status), 200);
    const warned = await page.evaluate(() => warned);
    assert.equal(warned.length, 1);
    assert.match(warned[0], /this page has 3 streams to http:.*share: 'USER'/s);
  });
});

test('a component without a right is denied, and the others of its stream are not', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke({ settings: BY_TOKEN });
    const page = await (await (await stack.browser()).newContext()).newPage();
    await page.goto(`${encke.url}comet.svg`);
    const rights = { subscribe: ['room/1', 'room/2'], publish: ['**'] };
    await page.evaluate(async (tokens) => {
      const { subscribe } = await import('/encke.js');
      Object.assign(window, { heard: [], states: [] });
      tokens.forEach((token, count) =>
        subscribe(`room/${count}`, (data) => heard.push(data), { token: async () => token, onState: (state) => (states[count] = state) }),
      );
    }, [0, 1, 2].map(() => tokenOf('ann', { encke: rights })));
    await page.waitForFunction(() => states.join() === 'denied,open,open');
    await publish(encke.port, 'room/2', 'hello', tokenOf('server'));
    assert.deepEqual(await heard(page, 'hello'), ['hello']);
  });
});

for (const transport of ['sse', 'ws', 'poll']) {
  test(`${transport}: a stream whose token expires goes on with a renewed one, in one stream for all components`, async () => {
    await staged(async (stack) => {
      const encke = await stack.encke({ settings: BY_TOKEN });
      const page = await (await (await stack.browser()).newContext()).newPage();
      // Two tokens in a row that expire before they arrive mean `denied`: on a busy machine a few seconds are too few.
      await page.exposeFunction('renew', () => tokenOf('ann', { ttl: 8 }));
      await page.goto(`${encke.url}comet.svg`);
      await page.evaluate(async (transport) => {
        const { subscribe } = await import('/encke.js');
        Object.assign(window, { heard: [], opened: [0, 0, 0] });
        [0, 1, 2].forEach((count) =>
          subscribe('room', (data) => heard.push(`${count} ${data}`), {
            transport,
            token: async () => renew(),
            onState: (state) => state === 'open' && opened[count]++,
          }),
        );
      }, transport);
      // The second renewal counts, too.
      await page.waitForFunction(() => opened.every((times) => times >= 3));
      await publish(encke.port, 'room', 'hello', tokenOf('server'));
      await page.waitForFunction(() => heard.length === 3);
      await becomes(encke, 'encke_push_subscribers', 1);
    });
  });
}

test('when the tab that leads closes its subscription, the other one resumes, and then both are gone', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const context = await (await stack.browser()).newContext();
    await context.addInitScript(() => delete window.SharedWorker);
    const first = await listener(context, encke.url, 'news');
    await opened(first);
    const second = await listener(context, encke.url, 'news');
    await opened(second);
    await becomes(encke, 'encke_push_subscribers', 1);
    await first.evaluate(() => subscription.close());
    await publish(encke.port, 'news', 'to one');
    assert.deepEqual(await heard(second, 'to one'), ['to one']);
    await becomes(encke, 'encke_push_subscribers', 1);
    await second.close();
    await becomes(encke, 'encke_push_subscribers', 0);
  });
});

test('with `json` a page receives values, and text that is no JSON as text', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const page = await (await (await stack.browser()).newContext()).newPage();
    await listenJson(page, encke);
    await page.evaluate(() => subscription.publish({ price: 4.2, of: ['☄'] }));
    await publish(encke.port, 'news', 'no JSON');
    await page.waitForFunction(() => heard.length === 2);
    assert.deepEqual(await page.evaluate(() => heard), [
      [{ price: 4.2, of: ['☄'] }, '{"price":4.2,"of":["☄"]}', 'application/json'],
      ['no JSON', 'no JSON', 'text/plain'],
    ]);
  });
});

async function listenJson(page, encke) {
  await page.goto(`${encke.url}comet.svg`);
  await page.evaluate(async () => {
    const { subscribe } = await import('/encke.js');
    Object.assign(window, { heard: [], states: [] });
    window.subscription = subscribe('news', (value, { data, type }) => heard.push([value, data, type]), {
      json: true,
      onState: (state, { transport }) => states.push(`${state} ${transport}`),
    });
  });
  await opened(page);
}
