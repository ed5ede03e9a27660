/**
 * Takes the screenshots of the documents: the chat, light, dark, on a phone, in Japanese; load reports; the console.
 *
 *   npm run pictures             writes docs/chat-*.png, docs/load-report.png, docs/load-push.png and docs/console-*.webp
 *   npm run pictures -- load     only those whose names begin with `load`; several beginnings are possible
 */

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { consolePictures } from './console-pictures.js';
import { load, staged } from './rig.js';

const DOCS = fileURLToPath(new URL('../../docs/', import.meta.url));

const ENGLISH = [
  ['Encke', 'Back again! Three years and four months, as always.'],
  ['Halley', 'Show-off. I only come by every 76 years.'],
  ['Halley', 'What did I miss?'],
  ['Lovejoy', 'The chat got faster. No more polling every second: the answer waits until there is one.'],
  ['Encke', 'And if you fly behind the sun for a while, it gives you what was said meanwhile. Once.'],
  ['Halley', 'Even with a tail this long? ☄️'],
  ['Hyakutake', 'Just came in on a phone through the worst hotel Wi-Fi. Works.'],
  ['Lovejoy', 'curl works, too:\ncurl -d hello http://localhost:8080/push/chat/comets'],
];
const JAPANESE = [
  ['池谷', 'こんばんは。今夜は雲がなくて、よく見えますね。'],
  ['関', '東の空、明け方が狙い目だそうです。'],
  ['関', '双眼鏡でも尾が見えるかもしれません。'],
  ['百武', '電車の中から参加しています。トンネルに入っても、あとで全部届きました。'],
  ['池谷', 'それは便利！ 重複もなし？'],
  ['百武', 'はい、一度ずつ、順番どおりです ☄️'],
];

const PICTURES = [
  { file: 'chat-light.png', me: 'Encke', room: 'comets', lines: ENGLISH, width: 1100, height: 770 },
  { file: 'chat-dark.png', me: 'Encke', room: 'comets', lines: ENGLISH, width: 1100, height: 770, colorScheme: 'dark' },
  { file: 'chat-phone.png', me: 'Hyakutake', room: 'comets', lines: ENGLISH, width: 390, height: 760, colorScheme: 'dark', poll: true },
  { file: 'chat-japanese.png', me: '百武', room: '観測会', lines: JAPANESE, width: 390, height: 760, locale: 'ja' },
];

const words = process.argv.slice(2);
const isWanted = ({ file }) => words.length === 0 || words.some((word) => file.startsWith(word));

const REPORTS = [
  { file: 'load-report.png', words: ['-r', '2k', '-c', '200', '-d', '15s'] },
  { file: 'load-push.png', words: ['push', '-s', '2000', '-r', '10', '-d', '12s', '--storm'] },
];

await staged(async (stack) => {
  for (const report of REPORTS.filter(isWanted)) {
    const encke = await stack.encke();
    const file = join(await stack.folder(), 'report.html');
    await load(...report.words, '--report', file, encke.url);
    const context = await (await stack.browser()).newContext({ viewport: { width: 1000, height: 1000 } });
    const page = await context.newPage();
    await page.goto(`file://${file}`);
    // The command contains a path of this machine.
    await page.locator('code').first().evaluate((code) => code.remove());
    await page.screenshot({ path: join(DOCS, report.file) });
  }
});

await staged(async (stack) => {
  const browser = await stack.browser();
  for (const picture of PICTURES.filter(isWanted)) {
    const encke = await stack.encke();
    const { me, room, lines, width, height, colorScheme = 'light', locale = 'en', poll = false } = picture;
    const open = async (name) => {
      const context = await browser.newContext({ viewport: { width, height }, deviceScaleFactor: 1.5, colorScheme, locale });
      await context.addInitScript(([name, poll]) => {
        localStorage.setItem('chat.name', name);
        if (poll) localStorage.setItem('chat.poll', 'yes');
      }, [name, poll]);
      const page = await context.newPage();
      await page.goto(`${encke.url}#${encodeURIComponent(room)}`);
      await page.waitForSelector('#status.open');
      return page;
    };
    const pages = new Map();
    for (const name of new Set([...lines.map(([name]) => name), me])) pages.set(name, await open(name));
    const mine = pages.get(me);
    for (const [name, text] of lines) {
      await pages.get(name).fill('#text', text);
      await pages.get(name).press('#text', 'Enter');
      await mine.locator('.message:not(.unsent) .bubble', { hasText: text.split('\n')[0] }).waitFor();
    }
    await mine.waitForFunction((people) => document.querySelectorAll('#people li').length === people, pages.size);
    // Removes notices of joins, which would distract from the picture, and ends animations.
    await mine.evaluate(() => {
      for (const notice of document.querySelectorAll('.notice')) notice.remove();
      document.querySelector('#log').scrollTop = 1e6;
      return Promise.all(document.getAnimations().filter((one) => !(one instanceof CSSAnimation && one.animationName === 'drift')).map((one) => one.finished));
    });
    await mine.screenshot({ path: join(DOCS, picture.file) });
    for (const page of pages.values()) await page.context().close();
  }
});

await staged((stack) => consolePictures(stack, DOCS, isWanted));
