/**
 * Plays live streams in Chromium, for tests/live: node live-player.js '{"origin": URL, "seconds": N, "streams": [[NAME, ELEMENT]]}'
 *
 * ELEMENT is `video` or `audio`, whose source is the stream; `page`, the player page of the server; or `list`, the page of all
 * streams. Prints one JSON object: for each stream when it began to play, for how long it has played, its stalls, and messages of the
 * console. All streams play at once, each in a page of its own.
 */

import { chromium } from 'playwright-core';

const { origin, seconds, streams } = JSON.parse(process.argv[2]);
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run', '--autoplay-policy=no-user-gesture-required'];
/** For each step before a stream plays: the start of the browser, its page, the first picture. A busy machine needs many seconds. */
const START_MS = 60_000;

/** Notes the events of every media element from its first moment on. */
function watch() {
  window.seen = { began: performance.now(), playing: 0, waits: [], errors: [] };
  const note = (event) => {
    const { seen } = window;
    const at = Math.round(performance.now() - seen.began);
    if (event.type === 'playing') seen.playing ||= at;
    else if (event.type === 'waiting' && seen.playing) seen.waits.push(at);
    else if (event.type === 'error') seen.errors.push(event.target.error?.message ?? 'error');
  };
  for (const type of ['playing', 'waiting', 'error']) addEventListener(type, note, { capture: true });
}

async function played(browser, name, element) {
  const context = await browser.newContext();
  context.setDefaultTimeout(START_MS);
  const page = await context.newPage();
  const messages = [];
  page.on('console', (message) => messages.push(message.text()));
  page.on('pageerror', (error) => messages.push(String(error)));
  await page.addInitScript(watch);
  if (element === 'list') {
    await page.goto(`${origin}/live/`);
    await page.getByText(name).first().waitFor();
    return { messages, text: await page.textContent('body') };
  }
  if (element === 'page') {
    await page.goto(`${origin}/live/${name}`);
  } else {
    // A page of the same origin: the list of streams, without its content security policy.
    await page.route(`${origin}/blank`, (route) => route.fulfill({ contentType: 'text/html', body: '<link rel="icon" href="data:,">' }));
    await page.goto(`${origin}/blank`);
    await page.evaluate(([element, url]) => {
      const media = document.createElement(element);
      Object.assign(media, { muted: true, autoplay: true, src: url });
      document.body.append(media);
    }, [element, `${origin}/live/${name}`]);
  }
  try {
    await page.waitForFunction(() => {
      const media = document.querySelector('video, audio');
      return window.seen.errors.length || (window.seen.playing && media.currentTime > 0);
    });
    const from = await page.evaluate(() => [document.querySelector('video, audio').currentTime, performance.now()]);
    await page.waitForTimeout(seconds * 1000); // the time of play is the subject
    return await page.evaluate(([from, seen]) => {
      const media = document.querySelector('video, audio');
      return { ...window.seen, ...seen, played: media.currentTime - from[0], took: (performance.now() - from[1]) / 1000, frames: media.videoWidth ? media.getVideoPlaybackQuality().totalVideoFrames : null };
    }, [from, { messages }]);
  } catch (error) {
    return { messages, errors: [String(error).slice(0, 300)], waits: [], played: 0, note: await page.textContent('body').catch(() => '') };
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS, timeout: START_MS });
try {
  const results = await Promise.all(streams.map(([name, element]) => played(browser, name, element)));
  console.log(JSON.stringify(results));
} finally {
  await browser.close();
}
