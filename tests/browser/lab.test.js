/** The page of `encke lab --report`, with three experiments that take a few seconds and have all kinds of plots. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { lab, staged } from './rig.js';

test('a report of the laboratory is drawn, light and dark, and asks nobody for anything', async () => {
  await staged(async (stack) => {
    const file = join(await stack.folder(), 'lab.html');
    await lab('ring', 'timers', 'trigger', '--quick', '--lang', 'en', '--report', file);
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
        const marks = [...figure.querySelectorAll('.curve, .bar, .dot')];
        const boxes = marks.map((mark) => mark.getBoundingClientRect());
        const frame = figure.querySelector('svg').getBoundingClientRect();
        const paint = marks.map((mark) => getComputedStyle(mark)[mark.matches('.curve') ? 'stroke' : 'fill']);
        return {
          section: figure.closest('section').id,
          marks: marks.length,
          inside: boxes.every((box) => box.left >= frame.left && box.right <= frame.right + 1 && box.top >= frame.top && box.bottom <= frame.bottom),
          painted: paint.every((colour) => /^rgb\((?!0, 0, 0\))/.test(colour)),
          labels: figure.querySelectorAll('svg text').length,
        };
      }));
      const sections = plots.map(({ section }) => section);
      // A panel per category of load, one plot for numeric loads, none for results that are no numbers.
      assert.deepEqual(sections, ['ring', 'ring', 'timers']);
      for (const plot of plots) {
        assert.ok(plot.inside && plot.painted && plot.marks >= 4 && plot.labels >= 4, JSON.stringify(plot));
      }
      assert.equal(await page.locator('table').count() >= 3, true);
      assert.equal(await page.locator('.claims li').count(), 9);
      grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      assert.deepEqual(complaints, []);
      assert.deepEqual(asked, [`file://${file}`]);
    }
    assert.notEqual(grounds[0], grounds[1]);
  });
});
