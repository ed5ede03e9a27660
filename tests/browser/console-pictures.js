/**
 * The screenshots of docs/console.md: a server with real traffic, and its console in Chromium.
 *
 * The server has a site, channels with subscribers, of which one is slow, an upstream with a failed target, and a supervised
 * application. Requests and messages run for PERIOD events of the overview, so that graphs show a course.
 */

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';

import { listener, source } from './console-rig.js';
import { publish, SECRET, tokenOf } from './rig.js';

/** Events of the overview, one per second, before the first picture. */
const PERIOD = Number(process.env.PERIOD ?? 180);
/** Pictures that are larger are encoded again, with less quality. */
const BYTES_MAX = 60_000;

const WIDE = { width: 1200, height: 780 };

/** `path` is the route of the page. `ready` brings the page into the state of the picture. */
const PICTURES = [
  { file: 'console-connections.webp', path: 'connections?sort=-unsent_bytes', ready: (page) => row(page, /read nothing/).waitFor() },
  { file: 'console-phone.webp', path: 'connections?sort=-unsent_bytes', width: 390, height: 780, ready: (page) => page.getByText(/read nothing/).first().waitFor() },
  { file: 'console-channel.webp', path: 'channels?channel=news%2Fcomets', ready: (page) => page.getByRole('heading', { name: 'news/comets' }).first().waitFor() },
  { file: 'console-channels.webp', path: 'channels', ready: (page) => row(page, /news\/comets/).waitFor() },
  { file: 'console-stream.webp', path: 'streams?channel=live%2Fcomets', ready: (page) => page.getByText('fedcba9876543210').first().waitFor() },
  { file: 'console-upstreams.webp', path: 'upstreams', ready: (page) => row(page, /failing check|ejected/).waitFor() },
  { file: 'console-log.webp', path: 'log', ready: (page) => page.locator('main li').nth(12).waitFor() },
  { file: 'console-explain.webp', path: 'explain', ready: explained },
  { file: 'console-settings.webp', path: 'settings?view=form&section=limits', ready: edited },
  { file: 'console-text.webp', path: 'settings?view=text', ready: mistyped },
  { file: 'console-japanese.webp', path: 'channels', locale: 'ja', ready: (page) => row(page, /news\/comets/).waitFor() },
  // Last, because graphs need time.
  { file: 'console-overview.webp', path: 'overview?range=5m', ready: graphs, settle: 3 },
  { file: 'console-dark.webp', path: 'overview?range=5m', colorScheme: 'dark', ready: graphs, settle: 3 },
];

const row = (page, name) => page.getByRole('row', { name }).first();

function graphs(page) {
  return page.locator('.uplot canvas').first().waitFor();
}

async function explained(page) {
  await page.getByLabel('URL or path').fill('/shop/cart?id=7');
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.locator('main ol li').first().waitFor();
}

async function edited(page) {
  await page.getByLabel('head_time').fill('20s');
  await page.getByLabel('head_time').blur();
  await page.getByText('2 lines changed').waitFor();
}

async function mistyped(page) {
  const area = page.getByLabel('Text of the settings file');
  await area.fill((await area.inputValue()).replace('head_time', 'head_tme'));
  await page.getByRole('button', { name: /Line \d+/ }).first().click();
}

/** Takes the pictures that `isWanted` selects. */
export async function consolePictures(stack, folder, isWanted) {
  const pictures = PICTURES.filter(isWanted);
  if (pictures.length === 0) return;
  const { server, origin, token } = await busyServer(stack);
  const browser = await stack.browser();
  const call = (path, body) => fetch(`${origin}/api/v1${path}`, { method: 'POST', headers: { authorization: `Bearer ${token}` }, body: body && JSON.stringify(body) });
  await seconds(server, PERIOD);
  for (const { file, path, ready, settle = 1, width = WIDE.width, height = WIDE.height, colorScheme = 'light', locale = 'en' } of pictures) {
    const context = await browser.newContext({ viewport: { width, height }, deviceScaleFactor: width < 600 ? 1.5 : 1.25, colorScheme, locale, reducedMotion: 'reduce' });
    const login = await (await call('/session/token')).json();
    const session = await context.request.post(`${origin}/api/v1/session`, { data: { token: login.token } });
    if (session.status() !== 201) throw new Error(`the log-in was answered with ${session.status()}`);
    const page = await context.newPage();
    await page.goto(`${origin}/#/${path}`);
    await page.locator('main h1').waitFor();
    await ready(page);
    await seconds(server, settle);
    // On a busy machine a page is stale until its stream is open again.
    await page.locator('main .top .badge.warn').waitFor({ state: 'detached' });
    await page.mouse.move(0, 0);
    await page.evaluate(withoutFolder);
    await writeFile(join(folder, file), await asWebp(browser, await page.screenshot()));
    await context.close();
  }
}

/** Removes the temporary directory of this machine from the page's text. */
function withoutFolder() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replace(/\/\S+\/encke-browser-\w+\//g, '/etc/encke/');
}

/** Encodes a PNG as WebP in the browser, in the highest quality that fits. */
async function asWebp(browser, png) {
  const context = await browser.newContext();
  const page = await context.newPage();
  for (const quality of [0.9, 0.8, 0.7, 0.55, 0.4]) {
    const text = await page.evaluate(async ([source, quality]) => {
      const image = new Image();
      image.src = source;
      await image.decode();
      const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
      canvas.getContext('2d').drawImage(image, 0, 0);
      return canvas.toDataURL('image/webp', quality);
    }, [`data:image/png;base64,${png.toString('base64')}`, quality]);
    const bytes = Buffer.from(text.split(',')[1], 'base64');
    if (bytes.length <= BYTES_MAX) {
      await context.close();
      return bytes;
    }
  }
  throw new Error('the picture is too large');
}

/** Resolves after so many events of the overview. */
async function seconds(server, count) {
  const url = new URL(server.admin('api/v1/live'));
  url.searchParams.set('watch', 'overview');
  const response = await fetch(url);
  const decoder = new TextDecoder();
  let seen = 0;
  for await (const part of response.body) {
    seen += decoder.decode(part, { stream: true }).split('event: overview').length - 1;
    if (seen >= count) return;
  }
  throw new Error('the live stream has ended');
}

/** Starts the server and its clients. */
async function busyServer(stack) {
  const folder = await stack.folder();
  const site = join(folder, 'public');
  await mkdir(join(site, 'img'), { recursive: true });
  await writeFile(join(site, 'index.html'), '<!doctype html><title>Comets</title><h1>Comets</h1>');
  await writeFile(join(site, 'style.css'), 'body { font: 1rem sans-serif }\n'.repeat(40));
  await writeFile(join(site, 'img/tail.svg'), `<svg xmlns="http://www.w3.org/2000/svg">${'<path d="M0 0h9"/>'.repeat(900)}</svg>`);
  await writeFile(join(folder, 'reports.mjs'), "import http from 'node:http';\nhttp.createServer((_, response) => response.end('report\\n')).listen({ fd: 3 });\n");
  const shop = await application(stack);
  const dead = await freePort();
  const server = await stack.encke({ site, settings: settings(folder, shop, dead) });
  const status = new URL(server.admin('api/v1/status'));
  await clients(stack, server);
  return { server, origin: status.origin, token: status.searchParams.get('token') };
}

const settings = (folder, shop, dead) => `# comets.example
[console]
edit = true

[limits]
# Phones in trains need longer than 10 s.
head_time = "15s"
idle_time = "75s"

[[app]]
name = "reports"
run = ["node", "reports.mjs"]
directory = "${folder}/"

[[upstream]]
name = "shop"
to = ["http://127.0.0.1:${shop}", "http://127.0.0.1:${dead}"]
connections = 8
check = { path = "/health", every = "5s" }

[[site]]
root = "public"

[[site.route]]
pattern = "/shop/**"
upstream = "shop"

[[site.route]]
pattern = "/reports/**"
upstream = "app:reports"

[push]
anonymous_rate = "off"
[[push.channel]]
pattern = "news/**"
presence = true
[[push.channel]]
# A subscriber that is too slow stays.
pattern = "pictures/**"
policy = "skip"

[auth]
keys = [{ secret = "${SECRET}" }]
anonymous = ["subscribe", "publish", "presence"]
`;

/** An application with response times between 1 and 40 ms. */
async function application(stack) {
  let turn = 0;
  const server = http.createServer((_, response) => {
    turn += 1;
    setTimeout(() => response.end('{"items":3}'), 1 + ((turn * 7) % 40));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stack.ended(server, () => (server.closeAllConnections(), server.close()));
  return server.address().port;
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

const NEWS = [
  'Perihelion on 9 February: the tail is 12° long.',
  'Clouds over the north; the south has clear skies until 4 am.',
  'New ephemeris published, 3 arc seconds off the old one.',
  'Magnitude 6.1, rising.',
];

async function clients(stack, server) {
  const { port } = server;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 24 });
  stack.ended(agent, () => agent.destroy());
  const get = (path) => http.get({ port, path, agent, host: '127.0.0.1' }, (response) => response.resume()).on('error', () => {});
  const paths = ['/', '/style.css', '/img/tail.svg', '/shop/cart?id=7', '/', '/reports/2026', '/shop/items', '/old.html', '/img/tail.svg'];
  const every = (ms, act) => {
    const timer = setInterval(act, ms);
    stack.ended(timer, () => clearInterval(timer));
  };
  const film = source(stack, server, 'comets', 'Comets over the north');
  every(1_000, film.send);
  for (const headers of [{}, {}, { 'encke-hops': '0123456789abcdef, fedcba9876543210' }]) listener(stack, server, 'comets', headers);
  let turn = 0;
  every(100, () => {
    const load = 4 + 3 * Math.sin(turn / 200) + (turn % 350 < 30 ? 6 : 0);
    for (let n = 0; n < load; n += 1) get(paths[(turn + n * 5) % paths.length]);
    turn += 1;
  });
  const people = ['halley', 'encke', 'hyakutake', 'lovejoy', 'ikeya'];
  const sockets = [];
  const stream = (channel, token, slow = false) => {
    const socket = net.connect(port, '127.0.0.1', () => {
      const rights = token ? `Authorization: Bearer ${token}\r\n` : '';
      socket.write(`GET /push/${channel} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAccept: text/event-stream\r\n${rights}\r\n`);
    });
    socket.on('error', () => {});
    socket.on('data', () => {
      // One read in five seconds: enough for limits.write_rate, and too slow for the channel.
      if (!slow) return;
      socket.pause();
      setTimeout(() => socket.resume(), 5000);
    });
    sockets.push(socket);
  };
  stack.ended(sockets, () => sockets.forEach((socket) => socket.destroy()));
  for (const name of people) stream('news/comets', tokenOf(name));
  for (let n = 0; n < 14; n += 1) stream(n % 3 ? 'news/comets' : 'news/weather');
  for (let n = 0; n < 6; n += 1) stream('prices/all');
  stream('pictures/live', tokenOf('bennett'));
  stream('pictures/live', tokenOf('kohoutek'), true);
  for (const name of people.slice(0, 3)) {
    const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': randomBytes(16).toString('base64') };
    const request = http.get({ port, host: '127.0.0.1', path: `/push/news/comets?access_token=${tokenOf(name)}`, headers });
    request.on('upgrade', (_, socket) => sockets.push(socket.on('error', () => {}).resume())).on('error', () => {});
  }
  const send = (channel, text) => publish(port, channel, text).catch(() => {});
  let said = 0;
  every(700, () => send('news/comets', NEWS[said++ % NEWS.length]));
  every(5000, () => send('news/weather', 'clear'));
  every(100, () => send('prices/all', `{"C/2026 A1":${(40 + Math.sin(turn / 90)).toFixed(2)}}`));
  every(1000, () => send('pictures/live', 'x'.repeat(32 * 1024)));
}
