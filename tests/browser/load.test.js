/** The pages of `encke load --report` and `encke load push --report`. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { load, staged } from './rig.js';

test('a report of load is drawn, light and dark, and asks nobody for anything', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const file = join(await stack.folder(), 'report.html');
    await load('-r', '300', '-d', '3s', '--report', file, encke.url, `${encke.url}not/there`);
    const captions = ['Latency by percentile', 'How many took how long', 'Latency over time', 'Answers a second', 'Errors a second', 'Connecting'];
    await drawn(stack, file, captions, 'response time');
  });
});

test('so is one of subscribers', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const file = join(await stack.folder(), 'report.html');
    await load('push', '-s', '100', '-r', '40', '-d', '2s', '--storm', '--report', file, encke.url);
    const captions = ['By percentile', 'Fan-out', 'The first, first to last, and the last', 'Receipts a second', 'Accepted subscribers', 'Reconnected subscribers', 'Connecting'];
    await drawn(stack, file, captions, 'reach');
  });
});

/**
 * Checks a page: its plots have these captions, its first table contains this, and it has no errors, on light and dark
 * background.
 */
async function drawn(stack, file, captions, told) {
  const grounds = [];
  for (const colorScheme of ['light', 'dark']) {
    const page = await (await (await stack.browser()).newContext({ colorScheme })).newPage();
    const complaints = [];
    const asked = [];
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(`file://${file}`);
    const plots = await page.$$eval('figure', (figures) => figures.map((figure) => {
      const marks = [...figure.querySelectorAll('.curve, .bar, .cell, .dot')];
      const boxes = marks.map((mark) => mark.getBoundingClientRect());
      const frame = figure.querySelector('svg').getBoundingClientRect();
      const paint = marks.map((mark) => getComputedStyle(mark)[mark.matches('.curve') ? 'stroke' : 'fill']);
      return {
        caption: figure.querySelector('figcaption').textContent,
        width: Math.max(...boxes.map((box) => box.right)) - Math.min(...boxes.map((box) => box.left)),
        inside: boxes.every((box) => box.left >= frame.left && box.right <= frame.right + 1 && box.top >= frame.top && box.bottom <= frame.bottom),
        painted: paint.every((colour) => /^rgb\((?!0, 0, 0\))/.test(colour)),
        labels: figure.querySelectorAll('svg text').length,
      };
    }));
    const all = plots.map(({ caption }) => caption).join('|');
    for (const caption of captions) {
      assert.ok(all.includes(caption), `no ${caption} in ${all}`);
    }
    for (const plot of plots) {
      assert.ok(plot.inside && plot.painted && plot.labels >= 3, JSON.stringify(plot));
      // If all connects took equally long, the plot is a dot.
      assert.ok(plot.width > (plot.caption.startsWith('Connecting') ? 4 : 100), JSON.stringify(plot));
    }
    assert.ok((await page.locator('table').first().textContent()).includes(told));
    assert.ok((await page.locator('h2', { hasText: 'What not to trust' }).count()) === 1);
    grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    assert.deepEqual(complaints, []);
    assert.deepEqual(asked, [`file://${file}`]);
  }
  assert.notEqual(grounds[0], grounds[1]);
}
