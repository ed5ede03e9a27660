/**
 * The files of docs/deploy.md as printed: each is started with a browser as its client.
 *
 * Only ports are changed. A missing proxy is reported and skipped; `.ci/need` installs them.
 */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { heard, listener, opened, publish, reservedPort, staged } from './rig.js';

const PAGE = new URL('../../docs/deploy.md', import.meta.url);
const SETTINGS = `
[push]
origins = ["*"]
anonymous_rate = "off"

[auth]
anonymous = ["subscribe", "publish"]
`;

/** Returns the block of the page that begins with this comment, with these ports. */
async function block(title, front, back) {
  const text = await readFile(PAGE, 'utf8');
  const found = text.split('```').find((part) => part.split('\n')[1] === `# ${title}`);
  assert.ok(found, `docs/deploy.md has no block "# ${title}"`);
  return found.slice(found.indexOf('\n') + 1).replaceAll('127.0.0.1:8000', `127.0.0.1:${front}`).replaceAll('127.0.0.1:8080', `127.0.0.1:${back}`);
}

const PROXIES = [
  {
    title: 'nginx: stock',
    program: '/usr/sbin/nginx',
    transports: ['sse', 'poll'],
    files: (folder, text) => ({ 'nginx.conf': nginx(folder, text) }),
    words: (folder) => ['-p', folder, '-e', 'stderr', '-c', join(folder, 'nginx.conf')],
  },
  {
    title: 'nginx: recipe',
    program: '/usr/sbin/nginx',
    transports: ['sse', 'ws', 'poll'],
    files: (folder, text) => ({ 'nginx.conf': nginx(folder, text) }),
    words: (folder) => ['-p', folder, '-e', 'stderr', '-c', join(folder, 'nginx.conf')],
  },
  {
    title: 'haproxy',
    program: '/usr/sbin/haproxy',
    transports: ['sse', 'ws', 'poll'],
    files: (_, text) => ({ 'haproxy.cfg': text }),
    words: (folder) => ['-db', '-f', join(folder, 'haproxy.cfg')],
  },
  {
    title: 'Apache',
    program: '/usr/sbin/apache2',
    transports: ['sse', 'ws', 'poll'],
    files: (folder, text) => ({ 'apache.conf': apache(folder, text) }),
    words: (folder) => ['-d', folder, '-f', join(folder, 'apache.conf'), '-DFOREGROUND'],
  },
];

function nginx(folder, text) {
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`);
  return `daemon off; pid ${folder}/nginx.pid; error_log stderr;\nevents {}\nhttp {\naccess_log off; ${paths.join(' ')}\n${text}\n}\n`;
}

function apache(folder, text) {
  const modules = ['mpm_event', 'authz_core', 'proxy', 'proxy_http', 'proxy_wstunnel'];
  const loads = modules.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`);
  const user = process.getuid() === 0 ? 'User www-data\nGroup www-data\n' : '';
  return `${loads.join('\n')}\n${user}ServerName localhost\nPidFile ${folder}/apache.pid\nErrorLog ${folder}/apache.log\nMutex pthread\n${text}`;
}

/** Starts a proxy with a file of docs/deploy.md for this port. Returns `undefined` if this machine lacks it. */
async function started(stack, { title, program, files, words }, encke) {
  const exists = await promisify(execFile)('test', ['-x', program]).then(() => true, () => false);
  if (!exists) return undefined;
  const folder = await stack.folder();
  const port = await reservedPort();
  for (const [name, text] of Object.entries(files(folder, await block(title, port, encke.port)))) await writeFile(join(folder, name), text);
  await mkdir(join(folder, 'logs'), { recursive: true });
  const child = spawn(program, words(folder), { stdio: ['ignore', 'ignore', 'pipe'] });
  const said = [];
  child.stderr.on('data', (data) => said.push(String(data)));
  const exited = once(child, 'exit');
  // Apache ends ten seconds after a signal while it waits for responses.
  stack.ended(child, async () => (await encke.kill(), child.kill('SIGTERM'), exited));
  await listening(port, child, said);
  return `http://127.0.0.1:${port}/`;
}

/** Waits until the port accepts connections. The system answers each attempt at once, so a pause leaves the processor to the proxy. */
async function listening(port, child, said) {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}:\n${said.join('')}`);
    const socket = net.connect(port, '127.0.0.1');
    const there = await new Promise((resolve) => socket.on('connect', () => resolve(true)).on('error', () => resolve(false)));
    socket.destroy();
    if (there) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

for (const proxy of PROXIES) {
  test(`docs/deploy.md, ${proxy.title}: ${proxy.transports.join(', ')} pass at once`, async (context) => {
    await staged(async (stack) => {
      const encke = await stack.encke({ settings: SETTINGS });
      const url = await started(stack, proxy, encke);
      if (!url) return context.skip(`there is no ${proxy.program}`);
      const browser = await stack.browser();
      for (const transport of proxy.transports) {
        const page = await listener(await browser.newContext(), url, 'news', { transport });
        assert.equal(await opened(page), transport);
        await publish(encke.port, 'news', `${transport}: from outside`);
        await heard(page, `${transport}: from outside`);
        await page.evaluate((text) => subscription.publish(text), `${transport}: from the page`);
        assert.deepEqual(await heard(page, `${transport}: from the page`), [`${transport}: from outside`, `${transport}: from the page`]);
        await page.context().close();
      }
    });
  });
}

test('docs/deploy.md, nginx: a WebSocket that does not pass is done without', async (context) => {
  await staged(async (stack) => {
    const encke = await stack.encke({ settings: SETTINGS });
    const url = await started(stack, PROXIES[0], encke);
    if (!url) return context.skip('there is no nginx');
    const browser = await stack.browser();
    const page = await browser.newContext().then((context) => listener(context, url, 'news'));
    assert.equal(await opened(page), 'sse');
  });
});

/** The typical duration of an update. It is part of the case, not a wait for an event. */
const OUTAGE_MS = 20_000;

test('while Encke is down for 20 s behind nginx a page waits; then it resumes, and what is missing is said', async (context) => {
  await staged(async (stack) => {
    const first = await stack.encke({ port: await reservedPort(), settings: SETTINGS });
    const url = await started(stack, PROXIES[1], first);
    if (!url) return context.skip('there is no nginx');
    const page = await listener(await (await stack.browser()).newContext(), url, 'news');
    const transport = await opened(page);
    await publish(first.port, 'news', 'before');
    await heard(page, 'before');
    await first.stop();
    await page.waitForFunction(() => states.at(-1).startsWith('waiting'));
    await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
    const second = await stack.encke({ port: first.port, settings: SETTINGS });
    await publish(second.port, 'news', 'published before anybody is back');
    await page.waitForFunction(() => states.at(-1).startsWith('open'));
    await publish(second.port, 'news', 'after');
    const all = await heard(page, 'after');
    const told = await page.evaluate(() => gaps.length);
    const whole = ['before', 'published before anybody is back', 'after'];
    assert.ok(told > 0 || all.join() === whole.join(), `heard ${all.join()} with ${told} gaps`);
    assert.equal(all.filter((word) => word === 'after').length, 1);
    assert.equal(await page.evaluate(() => states.at(-1)), `open ${transport}`, 'an outage is no reason to change the transport');
  });
});
