/** The page that a browser gets at the URL of a channel. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { publish, staged } from './rig.js';

test('a channel opened in a browser shows what was said, what is said, and says something itself', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    await publish(encke.port, 'news', 'before');
    const page = await (await (await stack.browser()).newContext()).newPage();
    const complaints = [];
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    await page.goto(`${encke.url}push/news`);
    const line = (text) => page.locator('ol li', { hasText: text });
    await line('before').waitFor();
    assert.equal(await page.title(), 'news');
    await publish(encke.port, 'news', '<img src=x onerror=alert(1)>');
    await line('<img src=x').waitFor();
    await page.fill('#event', 'greeting');
    await page.fill('#data', 'from the page');
    await page.press('#data', 'Enter');
    await line('from the page').waitFor();
    assert.match(await line('from the page').textContent(), /greeting/);
    assert.equal(await page.locator('ol img').count(), 0);
    assert.deepEqual(complaints, []);
  });
});

test('a channel that nobody may read says so, and is not asked again', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke({ settings: '[auth]\nanonymous = ["publish"]\n' });
    const page = await (await (await stack.browser()).newContext()).newPage();
    const answer = await page.goto(`${encke.url}push/news`);
    assert.equal(answer.status(), 401);
  });
});

test('the page comes back to its channel when the line is cut, without a message too few or too many', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const line = await stack.line(encke.port);
    const page = await (await (await stack.browser()).newContext()).newPage();
    await page.goto(`${line.url}push/news`);
    await page.waitForSelector('#state.open');
    await publish(encke.port, 'news', 'one');
    await page.locator('ol li', { hasText: 'one' }).waitFor();
    line.cut();
    await page.waitForSelector('#state:not(.open)');
    await publish(encke.port, 'news', 'two');
    line.mend();
    await page.locator('ol li', { hasText: 'two' }).waitFor();
    await publish(encke.port, 'news', 'three');
    await page.locator('ol li', { hasText: 'three' }).waitFor();
    const all = await page.$$eval('ol li', (lines) => lines.map((one) => one.lastChild.textContent));
    assert.deepEqual(all, ['one', 'two', 'three']);
  });
});
