/**
 * The pages of the console that operate a server: connections, channels, upstreams, settings, rules. Each test uses its own server,
 * and every page is checked for messages of the browser, for accessibility (axe), and for text beyond the screen.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accessible, listener, more, opened, operated, PASSWORD, SETTINGS, source, subscriber } from './console-rig.js';
import { staged } from './rig.js';

const button = (page, name) => page.getByRole('button', { name, exact: true });

test('one connection is found, explained and closed', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const client = await subscriber(console.server, 'news');
    const { page, go, messages } = await opened(stack, console);
    await go('connections');
    await page.getByPlaceholder('Address, user, channel, path …').fill('/push/news');
    await page.waitForURL(/filter=%2Fpush%2Fnews/);
    await page.getByText('1 of 1').waitFor();
    await accessible(page);
    await page.getByRole('button', { name: '127.0.0.1', exact: true }).click();
    await page.getByRole('heading', { name: '127.0.0.1' }).waitFor();
    await accessible(page);
    await button(page, 'Close: 127.0.0.1').last().click();
    await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click();
    await Promise.all([page.getByText('Close: 1 affected.').waitFor(), client.ended]);
    await page.getByText('This connection has ended.').waitFor();
    await page.goBack();
    await page.getByRole('heading', { name: '127.0.0.1' }).waitFor({ state: 'detached' });
    await go('connections?view=closes&filter=operator');
    await page.getByRole('row', { name: /operator/ }).first().waitFor();
    await accessible(page);
    assert.deepEqual(messages, []);
  }));

more('rows stand still while one has the focus, and move on afterwards', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const clients = [await subscriber(console.server, 'news/a')];
    const { page, go, messages } = await opened(stack, console);
    await go('channels?sort=channel');
    await button(page, 'news/a').focus();
    await page.getByText('The rows stand still while one has the focus.').waitFor();
    const updates = page.waitForEvent('console', { predicate: (message) => message.text() === 'an update', timeout: 30_000 });
    clients.push(await subscriber(console.server, 'news/b'));
    // A second stream at the page's pace: after its third event the page has had the news, too.
    await page.evaluate(() => {
      const source = new EventSource('api/v1/live?watch=lists%2Fchannels&every=1000');
      let events = 0;
      source.addEventListener('list', (event) => {
        if (!event.data.includes('news/b') || ++events < 3) return;
        source.close();
        globalThis.console.log('an update');
      });
    });
    await updates;
    assert.equal(await button(page, 'news/b').count(), 0);
    await page.getByPlaceholder('Channel or pattern …').focus();
    await button(page, 'news/b').waitFor();
    for (const client of clients) client.stop();
    assert.deepEqual(messages, ['log: an update']);
  }));

more('an address is blocked for a time and unblocked', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('connections?view=blocks');
    await page.getByText('No address is blocked').waitFor();
    await button(page, 'Block an address').click();
    await page.getByRole('dialog').getByLabel('Address', { exact: true }).fill('192.0.2.7');
    await page.getByRole('button', { name: '1 h' }).click();
    await accessible(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Block address' }).click();
    await page.getByRole('row', { name: /192\.0\.2\.7/ }).waitFor();
    const { data } = await console.get('/lists/blocks');
    assert.equal(data.rows[0].address, '192.0.2.7');
    assert.ok(data.rows[0].ends_ms > Date.now() + 3_500_000);
    await button(page, 'Unblock: 192.0.2.7').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Unblock' }).click();
    await page.getByText('No address is blocked').waitFor();
    assert.deepEqual(messages, []);
  }));

more('a field that the server rejects is marked in the dialog', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go } = await opened(stack, console);
    await go('connections?view=blocks');
    await button(page, 'Block an address').click();
    await page.getByRole('dialog').getByLabel('Address', { exact: true }).fill('no address');
    await page.getByRole('dialog').getByRole('button', { name: 'Block address' }).click();
    await page.locator('dialog [aria-invalid=true], dialog [role=alert]').first().waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal((await console.get('/lists/blocks')).data.total, 0);
  }));

more('one channel shows its messages, and its actions reach subscribers', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const client = await subscriber(console.server, 'news/today');
    const { page, go, messages } = await opened(stack, console);
    await go('channels');
    await button(page, 'news/today').click();
    await page.getByLabel('Message', { exact: true }).fill('good morning');
    await button(page, 'Publish').click();
    await client.hears('good morning');
    await page.getByRole('cell', { name: 'good morning' }).waitFor();
    await accessible(page);
    await page.getByRole('link', { name: 'Subscribers' }).click();
    await page.getByRole('row', { name: /sse/ }).waitFor();
    await accessible(page);
    await page.getByRole('link', { name: 'Messages' }).click();
    await button(page, 'Delete messages: news/today').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete messages' }).click();
    await page.getByText('No messages are kept').waitFor();
    await button(page, 'Disconnect subscribers: news/today').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Disconnect subscribers' }).click();
    await client.ended;
    await go('channels?view=cluster');
    await page.getByText('This server is not part of a cluster').waitFor();
    assert.deepEqual(messages.filter((message) => !message.includes('404')), []);
  }));

more('a live stream shows its source and its relays, and both are ended', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('streams');
    await page.getByText('No live streams').waitFor();
    await accessible(page);
    const film = source(stack, console.server, 'film');
    // A source that sends nothing is silent after 2 s, and ended after 20 s.
    const sending = setInterval(film.send, 1_000);
    stack.ended(sending, () => clearInterval(sending));
    await page.getByRole('row', { name: /film (live|silent) 0 avc1/ }).waitFor();
    await accessible(page);
    await page.getByPlaceholder('Stream, title, codec, source …').fill('sea');
    await page.getByText('Nothing matches').waitFor();
    await page.getByPlaceholder('Stream, title, codec, source …').fill('');
    const relay = listener(stack, console.server, 'film', { 'encke-hops': 'c3, b2' });
    listener(stack, console.server, 'film');
    // By keyboard: a row opens by Enter.
    await button(page, 'film').focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'live/film' }).waitFor();
    const facts = page.getByRole('region', { name: 'Source' });
    for (const value of ['Comets', 'flv', 'avc1.', '1 s', 'camera/1', '127.0.0.1']) await facts.getByText(value).first().waitFor();
    const tree = page.getByRole('region', { name: 'Relay tree' });
    // The way from the source, by depth: this server, the relay, and the node for which that one pulls.
    await tree.locator('li:has-text("camera/1") > ul > li:has-text("this server") > ul > li:has-text("b2") > ul > li:has-text("c3")').waitFor();
    await tree.getByText('1 other listener').waitFor();
    await accessible(page);
    await page.getByRole('row', { name: /c3, b2/ }).getByRole('button', { name: 'Close: 127.0.0.1' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click();
    await relay;
    // Exactly: the random name of this server may contain these letters.
    await tree.getByText('b2', { exact: true }).waitFor({ state: 'detached' });
    await button(page, 'End source: film').click();
    await page.getByRole('dialog').getByRole('button', { name: 'End source' }).click();
    assert.equal((await film.response).statusCode, 403);
    await page.getByText('source lost').waitFor();
    assert.equal(await button(page, 'End source: film').isDisabled(), true);
    const { data } = await console.get('/audit');
    assert.equal(data.entries.filter(({ act, result }) => act.endsWith('/actions/live/end') && result === 200).length, 1);
    assert.deepEqual(messages, []);
  }));

more('a target is drained and resumed', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('upstreams');
    await button(page, 'Drain: http://127.0.0.1:9').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
    await page.getByRole('cell', { name: 'drained' }).waitFor();
    await accessible(page);
    await button(page, 'Resume: http://127.0.0.1:9').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('cell', { name: 'drained' }).waitFor({ state: 'detached' });
    assert.deepEqual(messages, []);
  }));

test('a setting is changed by a form, and its comment stays', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('settings?view=form&section=limits');
    const input = page.getByLabel('head_time');
    assert.equal(await input.inputValue(), '20s');
    await input.fill('soon');
    await input.blur();
    await page.getByText('A number and a unit are expected').waitFor();
    await input.fill('30s');
    await input.blur();
    await page.getByText('2 lines changed').waitFor();
    await accessible(page);
    await button(page, 'Review and apply').click();
    await page.getByRole('dialog').getByText('head_time = "30s"').waitFor();
    await accessible(page);
    await button(page, 'Apply').click();
    await page.getByText('Applied.').waitFor();
    const { data } = await console.get('/settings');
    assert.equal(data.running.limits.head_time, '30s');
    const text = (await console.get('/settings/file')).data.text;
    assert.equal(text, SETTINGS.replace('head_time = "20s"', 'head_time = "30s"'));
    await go('settings?view=history');
    await page.getByRole('row').nth(2).getByRole('button', { name: 'Compare' }).click();
    await page.getByRole('region', { name: 'From this version to the current file' }).waitFor();
    await accessible(page);
    await button(page, 'Restore this version').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Restore this version' }).click();
    await page.getByText(/Version \d+ is in force/).waitFor();
    assert.equal((await console.get('/settings/file')).data.text, SETTINGS);
    assert.deepEqual(messages, []);
  }));

more('errors stand where they are, in the text and in the form, and are not applied', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('settings?view=text');
    const area = page.getByLabel('Text of the settings file');
    await area.fill(SETTINGS.replace('head_time = "20s"', 'head_time = "0s"\nhead_tim = 1'));
    await page.getByRole('button', { name: /Line 11:/ }).waitFor();
    await accessible(page);
    await page.keyboard.press('Control+s');
    assert.equal(await button(page, 'Apply').isDisabled(), true);
    await button(page, 'Keep editing').click();
    await area.fill(SETTINGS.replace('head_time = "20s"', 'head_time = "x"'));
    await page.getByRole('link', { name: 'Forms' }).click();
    await page.goto(`${console.origin}/#/settings?view=form&section=limits`);
    await page.locator('[id="setting-limits.head_time"] .faults').waitFor();
    assert.equal(await page.getByLabel('head_time').getAttribute('aria-invalid'), 'true');
    await button(page, 'Discard').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
    await page.getByRole('region', { name: 'Changes that are not applied' }).waitFor({ state: 'detached' });
    assert.equal((await console.get('/settings/file')).data.text, SETTINGS);
    assert.deepEqual(messages, []);
  }));

more('the editor completes keys by the keyboard alone', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('settings?view=text');
    const area = page.getByLabel('Text of the settings file');
    await area.focus();
    await page.keyboard.press('Control+End');
    await page.keyboard.type('\n[log]\nlev');
    await page.keyboard.press('Control+Space');
    await page.getByRole('option', { name: /level/ }).first().waitFor();
    await accessible(page);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('textarea').value.includes('[log]\nlevel'));
    await page.keyboard.press('Tab');
    assert.notEqual(await page.evaluate(() => document.activeElement.tagName), 'TEXTAREA');
    assert.deepEqual(messages, []);
  }));

more('the second of two writers is told, and combines both changes', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('settings?view=form&section=limits');
    await page.getByLabel('head_time').fill('30s');
    await page.getByLabel('head_time').blur();
    await page.getByText('2 lines changed').waitFor();
    const { etag } = await console.get('/settings/file');
    const theirs = `${SETTINGS}\n[log]\nlevel = "debug"\n`;
    assert.equal((await console.call('PUT', '/settings/file', { text: theirs }, { 'if-match': etag })).status, 200);
    await button(page, 'Review and apply').click();
    await button(page, 'Apply').click();
    await page.getByRole('heading', { name: 'Somebody else changed the file' }).waitFor();
    await accessible(page);
    await button(page, 'Combine both').click();
    await button(page, 'Apply').click();
    await page.getByText('Applied.').waitFor();
    assert.equal((await console.get('/settings/file')).data.text, theirs.replace('"20s"', '"30s"'));
    // The browser reports the response 412 itself.
    assert.deepEqual(messages.filter((message) => !message.includes('412')), []);
  }));

more('entries of lists are added, moved and removed by forms', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('settings?view=form&section=upstream');
    await button(page, 'Add to upstream').click();
    const fresh = page.locator('.entry').nth(1);
    await fresh.locator('summary').first().click();
    const name = page.locator('[id="setting-upstream.1.name"] input');
    if (!(await name.isVisible())) await fresh.locator('summary').first().click();
    await name.fill('second');
    await name.blur();
    await page.locator('[id="setting-upstream.1.to"]').getByRole('button', { name: 'Add to to' }).click();
    await page.locator('[id="setting-upstream.1.to"] input').fill('http://127.0.0.1:10');
    await page.locator('[id="setting-upstream.1.to"] input').blur();
    await button(page, 'Move second up').click();
    await page.locator('.entry').first().getByText('second').waitFor();
    await button(page, 'Review and apply').click();
    await button(page, 'Apply').click();
    await page.getByText('Applied.').waitFor();
    const { data } = await console.get('/settings');
    assert.deepEqual(data.running.upstream.map((each) => each.name), ['second', 'app']);
    await button(page, 'Remove second').click();
    await button(page, 'Review and apply').click();
    await button(page, 'Apply').click();
    await page.getByRole('region', { name: 'Changes that are not applied' }).waitFor({ state: 'detached' });
    assert.deepEqual((await console.get('/settings')).data.running.upstream.map((each) => each.name), ['app']);
    assert.deepEqual(messages, []);
  }));

test('the rules of a request are listed with their lines', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, go, messages } = await opened(stack, console);
    await go('explain');
    await page.getByLabel('URL or path').fill('/app/x');
    await button(page, 'Explain').click();
    const line = SETTINGS.split('\n').indexOf('[[site.route]]') + 1;
    const link = page.getByRole('link', { name: new RegExp(`encke.toml:(${line}|${line + 1})$`) }).first();
    await link.waitFor();
    await accessible(page);
    await link.click();
    await page.getByLabel('Text of the settings file').waitFor();
    await page.waitForFunction(() => document.activeElement.tagName === 'TEXTAREA');
    assert.deepEqual(messages, []);
  }));

test('refusals of the server are shown in the language of the pages', () =>
  staged(async (stack) => {
    const console = await operated(stack, SETTINGS.replace('edit = true', 'edit = false'));
    for (const [language, reason, fault, refusal] of [
      ['ja-JP', '編集は無効です。設定ファイルの [console] に edit = true を書き、再読み込みしてください', /^GET http:\/\/ は有効なリクエストではありません。/, 'このアドレスはブロックされていません'],
      ['en-US', 'editing is off: set edit = true in [console] of the settings file, and reload it', /^GET http:\/\/ is no valid request; /, 'this address is not blocked: the list `blocks` has all that are'],
    ]) {
      const { page, go, messages } = await opened(stack, console, { language });
      await go('settings?view=form');
      await page.getByText(reason).first().waitFor();
      await go(`explain?url=${encodeURIComponent('http://')}`);
      await page.getByText(fault).first().waitFor();
      await accessible(page);
      // Another operator removes a block before this one does.
      await console.call('POST', '/actions/connections/block', { address: '192.0.2.1', seconds: 60 });
      await go('connections?view=blocks');
      const remove = page.getByRole('row', { name: /192\.0\.2\.1/ }).getByRole('button').last();
      await remove.click();
      await page.getByRole('dialog').waitFor();
      assert.equal((await console.call('POST', '/actions/connections/unblock', { address: '192.0.2.1' })).status, 200);
      await page.getByRole('dialog').getByRole('button').last().click();
      await page.getByText(refusal).waitFor();
      // The browser reports the two refusals themselves.
      assert.deepEqual(messages.filter((message) => !/Failed to load resource: .* status of (409|422) /.test(message)), []);
    }
  }));

test('a user with the role view sees the pages, and why nothing can be changed', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const client = await subscriber(console.server, 'news');
    const { page, go, messages } = await opened(stack, console, { credentials: { user: 'vera', password: PASSWORD } });
    for (const hash of ['connections', 'channels', 'channels?channel=news', 'streams', 'streams?channel=live%2Ffilm', 'upstreams', 'settings?view=form', 'settings?view=text']) {
      await go(hash);
      await page.getByText('Your role is view').first().waitFor();
      await accessible(page);
    }
    await go('connections');
    assert.equal(await page.getByRole('button', { name: /^Close: / }).first().isDisabled(), true);
    await go('settings?view=form&section=limits');
    assert.equal(await page.getByLabel('head_time').isDisabled(), true);
    assert.equal(await page.getByLabel('head_time').inputValue(), '20s');
    client.stop();
    assert.deepEqual(messages, []);
  }));

test('a log-in, a log-out and an ended session leave no message in the browser', () =>
  staged(async (stack) => {
    const console = await operated(stack);
    const { page, messages } = await opened(stack, console, { credentials: null });
    await page.goto(console.origin);
    await page.getByLabel('User', { exact: true }).waitFor();
    await accessible(page);
    await page.getByLabel('User', { exact: true }).fill('vera');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    // An open page would notice the end of the session by a rejected request, which the browser reports.
    await page.goto('about:blank');
    await page.context().clearCookies();
    await page.goto(console.origin);
    await page.getByLabel('User', { exact: true }).waitFor();
    assert.deepEqual(messages, []);
  }));

for (const [theme, width] of [['light', 390], ['dark', 390], ['dark', 1200]]) {
  const some = theme === 'dark' && width === 390 ? test : more;
  some(`the pages are accessible in the theme ${theme} at ${width} px`, () =>
    staged(async (stack) => {
      const console = await operated(stack);
      const client = await subscriber(console.server, 'news/today');
      source(stack, console.server, 'film');
      listener(stack, console.server, 'film', { 'encke-hops': '0123456789abcdef, fedcba9876543210' });
      const { page, go, messages } = await opened(stack, console, { theme, width, language: theme === 'dark' ? 'ja-JP' : 'en-US' });
      for (const hash of ['connections', 'connections?view=closes', 'connections?view=blocks', 'channels', 'channels?channel=news%2Ftoday', 'streams', 'streams?channel=live%2Ffilm', 'upstreams', 'settings', 'settings?view=form&section=site', 'settings?view=form&section=auth', 'settings?view=text', 'settings?view=history', 'explain?url=%2Fapp%2Fx']) {
        await go(hash);
        await page.locator('main').locator('table, .empty, .panel, .editor, .setting').first().waitFor();
        await accessible(page);
      }
      client.stop();
      assert.deepEqual(messages, []);
    }));
}
