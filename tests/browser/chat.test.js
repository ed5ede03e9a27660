/** The chat, as users operate it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { publish, staged } from './rig.js';

/** A user with a separate browser context. */
async function person(browser, url, name, { room = 'lobby', language = 'en', poll = false, before = () => {}, ...options } = {}) {
  const context = await browser.newContext({ locale: language, ...options });
  await context.addInitScript(([name, poll]) => {
    if (!localStorage.getItem('chat.name')) localStorage.setItem('chat.name', name);
    if (poll) localStorage.setItem('chat.poll', 'yes');
  }, [name, poll]);
  const page = await context.newPage();
  await before(page);
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(`${url}#${encodeURIComponent(room)}`);
  await page.waitForSelector('#status.open');
  return {
    page,
    errors,
    async say(text) {
      await page.fill('#text', text);
      await page.press('#text', 'Enter');
    },
    /** Waits for a message with this text. Returns all messages, without times. */
    async log(last) {
      await page.locator('.message:not(.unsent) .bubble', { hasText: last }).first().waitFor();
      return page.$$eval('.message .bubble', (all) => all.map((bubble) => bubble.firstChild.textContent));
    },
    transport: () => page.getAttribute('#status', 'data-transport'),
    people: () => page.$$eval('#people li > span:nth-child(2)', (all) => all.map((one) => one.textContent)),
    /** Waits until exactly these members are present. */
    sees: (names) => page.waitForFunction((names) => {
      const seen = [...document.querySelectorAll('#people li > span:nth-child(2)')].map((one) => one.textContent);
      return seen.join() === names.join();
    }, names),
  };
}

/** A promise, and the function that resolves it. */
function gate() {
  let open;
  const passed = new Promise((resolve) => (open = resolve));
  return { open, passed };
}

test('two people talk, see each other come and go, and who comes later reads what was said', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const browser = await stack.browser();
    const ann = await person(browser, encke.url, 'Ann');
    const bo = await person(browser, encke.url, 'Bo');
    await ann.sees(['Ann', 'Bo']);
    await bo.sees(['Ann', 'Bo']);
    await ann.say('Hello, Bo');
    assert.deepEqual(await bo.log('Hello, Bo'), ['Hello, Bo']);
    await bo.say('<b>Hello</b>, Ann & all');
    const said = ['Hello, Bo', '<b>Hello</b>, Ann & all'];
    assert.deepEqual(await ann.log('Ann & all'), said);

    const cy = await person(browser, encke.url, 'Cy');
    assert.deepEqual(await cy.log('Ann & all'), said);
    await bo.page.context().close();
    await ann.sees(['Ann', 'Cy']);
    assert.deepEqual([...ann.errors, ...cy.errors], []);
  });
});

test('who comes in while a page waits for the list of people is in it', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const browser = await stack.browser();
    const counted = gate();
    const given = gate();
    const before = (page) => page.route('**/*?info', async (route) => {
      const response = await route.fetch();
      counted.open();
      await given.passed;
      await route.fulfill({ response });
    });
    const ann = await person(browser, encke.url, 'Ann', { before });
    await counted.passed;
    await person(browser, encke.url, 'Bo');
    await ann.page.locator('.notice', { hasText: 'Bo' }).waitFor();
    given.open();
    await ann.page.waitForResponse('**/*?info');
    await person(browser, encke.url, 'Cy');
    await ann.sees(['Ann', 'Bo', 'Cy']);
  });
});

test('one loses the network for a while: nothing is lost, nothing comes twice', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const line = await stack.line(encke.port);
    const browser = await stack.browser();
    const ann = await person(browser, encke.url, 'Ann');
    const bo = await person(browser, line.url, 'Bo');
    await ann.say('before');
    await bo.log('before');

    line.cut();
    await bo.page.waitForSelector('#status.waiting');
    await ann.say('you cannot hear me');
    await ann.say('but you will');
    await ann.log('but you will');
    await bo.say('nor you me');
    await bo.page.waitForSelector('.message.unsent');
    line.mend();

    await bo.log('but you will');
    await ann.log('nor you me');
    await bo.log('nor you me');
    await ann.say('after');
    const said = ['before', 'you cannot hear me', 'but you will', 'nor you me', 'after'];
    assert.deepEqual(await bo.log('after'), said);
    assert.deepEqual(await ann.log('after'), said);
    assert.equal(await bo.page.locator('.unsent, .gap').count(), 0);
  });
});

test('long polls can be forced by the switch, and serve as well', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const browser = await stack.browser();
    const ann = await person(browser, encke.url, 'Ann');
    const bo = await person(browser, encke.url, 'Bo');
    await bo.page.locator('.switch').click();
    await bo.page.waitForSelector('#status.open[data-transport=poll]');
    for (let count = 0; count < 5; count++) {
      await ann.say(`ann ${count}`);
      await bo.log(`ann ${count}`);
      await bo.say(`bo ${count}`);
      await ann.log(`bo ${count}`);
    }
    assert.deepEqual(await bo.log('bo 4'), await ann.log('bo 4'));
    assert.notEqual(await ann.transport(), 'poll');
  });
});

test('rooms have names in any script, and keep to themselves', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const browser = await stack.browser();
    const ann = await person(browser, encke.url, '彗星', { room: '雑談 ☄', language: 'ja' });
    assert.equal(await ann.page.textContent('#room'), '雑談 ☄');
    assert.equal(await ann.page.getAttribute('html', 'lang'), 'ja');
    await ann.say('こんにちは');
    await ann.log('こんにちは');
    const bo = await person(browser, encke.url, 'Bo');
    await bo.say('only here');
    await bo.log('only here');
    assert.deepEqual(await ann.log('こんにちは'), ['こんにちは']);
    await bo.page.fill('#room-name', '雑談 ☄');
    await bo.page.press('#room-name', 'Enter');
    assert.deepEqual(await bo.log('こんにちは'), ['こんにちは']);
    await bo.page.click('#language');
    assert.equal(await bo.page.getAttribute('html', 'lang'), 'ja');
  });
});

test('what comes from a terminal is shown as what it is', async () => {
  await staged(async (stack) => {
    const encke = await stack.encke();
    const ann = await person(await stack.browser(), encke.url, 'Ann');
    await publish(encke.port, 'chat/lobby', '{"name":1}<script>alert(1)</script>');
    assert.deepEqual(await ann.log('alert(1)'), ['{"name":1}<script>alert(1)</script>']);
    assert.equal(await ann.page.locator('#log script').count(), 0);
    assert.deepEqual(ann.errors, []);
  });
});
