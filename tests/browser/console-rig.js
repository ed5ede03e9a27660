/**
 * The environment of the console's tests: a server with settings, a browser that is logged in, and checks of a page.
 *
 *   $PAGES   a directory that `vite build` wrote, instead of the pages inside the program
 *   $CONSOLE `all`: every test runs (`npm run console`). Otherwise a representative third does, and the others are reported as
 *            skipped: `make test` is short, `.ci/run` is complete.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import { extname, join } from 'node:path';
import { test } from 'node:test';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };
export const PASSWORD = 'view only';
export const SETTINGS = `# Settings of the test.
[console]
edit = true
[[console.user]]
name = "vera"
password = "$2y$05$E3zeiuERwLVNOjxLNIF6LuvDgkXr7d9dfSPmD33jWvRI0zAlgvqwu"

[limits]
# Long enough for slow networks.
head_time = "20s"

[[site]]
root = "."
# The application.
[[site.route]]
pattern = "/app/**"
upstream = "app"

[[upstream]]
name = "app"
to = "http://127.0.0.1:9"

[auth]
anonymous = ["subscribe", "publish", "presence"]
`;

/** Starts a server and returns what a test needs of its console. */
export async function operated(stack, settings = SETTINGS) {
  const server = await stack.encke({ settings });
  const status = new URL(server.admin('api/v1/status'));
  const bearer = { authorization: `Bearer ${status.searchParams.get('token')}` };
  const call = async (method, path, body, headers = {}) => {
    const response = await fetch(new URL(`/api/v1${path}`, status), { method, body: body === undefined ? undefined : JSON.stringify(body), headers: { ...bearer, 'content-type': 'application/json', ...headers } });
    return { status: response.status, etag: response.headers.get('etag'), data: response.status === 204 ? null : await response.json() };
  };
  const stream = async (watch, signal) => (await fetch(new URL(`/api/v1/live?watch=${encodeURIComponent(watch)}`, status), { headers: bearer, signal })).body;
  return { server, origin: status.origin, port: Number(status.port), call, get: (path) => call('GET', path), stream };
}

/** Opens the console, logged in unless `credentials` is null, and collects the browser's messages. */
export async function opened(stack, console, { width = 1200, theme = 'light', credentials, language = 'en-US' } = {}) {
  const browser = await stack.browser();
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: theme, locale: language });
  const page = await context.newPage();
  const messages = [];
  page.on('console', (message) => messages.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => messages.push(`error: ${error.message}`));
  if (process.env.PAGES) {
    await context.route((url) => url.origin === console.origin && !url.pathname.startsWith('/api/'), async (route) => {
      const path = new URL(route.request().url()).pathname;
      const file = join(process.env.PAGES, path === '/' ? 'index.html' : path);
      await route.fulfill({ body: await readFile(file), contentType: TYPES[extname(file)] });
    });
  }
  if (credentials !== null) {
    const data = credentials ?? { token: (await console.call('POST', '/session/token')).data.token };
    const session = await context.request.post(`${console.origin}/api/v1/session`, { data });
    assert.equal(session.status(), 201);
  }
  const go = async (hash) => {
    await page.goto(`${console.origin}/#/${hash}`);
    await page.locator('main h1').waitFor();
  };
  return { page, go, messages };
}

/** The page as it stands has no violation of accessibility, and nothing is wider than the screen. */
export async function accessible(page) {
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
  });
  assert.deepEqual(violations, []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `wider than the screen: ${page.url()}`);
}

/** A subscriber of a channel, with what it received. */
export async function subscriber(server, channel) {
  const abort = new AbortController();
  const response = await fetch(`${server.url}push/${channel}`, { headers: { accept: 'text/event-stream' }, signal: abort.signal });
  const reader = response.body.getReader();
  let text = '';
  let waiting = () => {};
  const ended = (async () => {
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        text += new TextDecoder().decode(part.value);
        waiting();
      }
    } catch {
      // A closed connection ends the stream, too.
    }
    waiting();
  })();
  const hears = async (words) => {
    while (!text.includes(words)) await new Promise((resolve) => (waiting = resolve));
  };
  return { ended, hears, stop: () => abort.abort() };
}

/** A frame of FLV with a picture of H.264 (Adobe FLV 10.1, annex E); every tenth is a key frame. Without a number, the head. */
function flv(number) {
  const content = number === undefined ? Buffer.from('170000000001 42001e ffe10000010000'.replaceAll(' ', ''), 'hex') : Buffer.concat([Buffer.from([number % 10 === 0 ? 0x17 : 0x27, 1, 0, 0, 0]), Buffer.alloc(4_000, 7)]);
  const tag = Buffer.alloc(11 + content.length + 4);
  tag[0] = 9;
  tag.writeUIntBE(content.length, 1, 3);
  tag.writeUIntBE((number ?? 0) * 100, 4, 3);
  content.copy(tag, 11);
  tag.writeUInt32BE(11 + content.length, 11 + content.length);
  return number === undefined ? Buffer.concat([Buffer.from('464c5601010000000900000000', 'hex'), tag]) : tag;
}

/** A source of a live stream that has sent some seconds of it, and its response. `send` sends another second. */
export function source(stack, server, name, title = 'Comets') {
  const headers = { 'user-agent': 'camera/1', 'ice-name': title, 'transfer-encoding': 'chunked' };
  const request = http.request(`${server.url}live/${name}`, { method: 'PUT', headers });
  const response = new Promise((resolve, reject) => request.on('response', (response) => resolve(response.resume())).on('error', reject));
  // The end of the test may cut it off.
  response.catch(() => {});
  let number = 0;
  const send = () => {
    for (const end = number + 10; number < end; number += 1) request.write(flv(number));
  };
  request.write(flv());
  for (let second = 0; second < 3; second += 1) send();
  stack.ended(request, () => request.destroy());
  return { response, send };
}

/** A listener of a live stream, until its end. */
export function listener(stack, server, name, headers = {}) {
  const request = http.get(`${server.url}live/${name}`, { headers });
  stack.ended(request, () => request.destroy());
  return new Promise((resolve) => {
    request.on('error', resolve).on('response', (response) => response.on('error', resolve).on('close', resolve).resume());
  });
}

/** A test that runs with `CONSOLE=all` only. */
export function more(name, run) {
  test(name, { skip: process.env.CONSOLE === 'all' ? false : 'not in the third of `make test`; `npm run console` runs it' }, run);
}
