/**
 * The environment of the browser tests: Encke, Chromium, and relays between them that fail on purpose.
 *
 *   $ENCKE      the program; by default target/release/encke of this repository
 *   $CHROMIUM   the browser; by default /usr/bin/chromium
 *
 * No test waits for time to pass: waits are for a line, a connection, or a change of the page.
 *
 * Tests run side by side in one process (all.js), which must never block: relays between a browser and its server are in it.
 */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHash, createHmac, X509Certificate } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';

const HERE = fileURLToPath(new URL('.', import.meta.url));
export const CHAT = join(HERE, '../../examples/chat');
export const ENCKE = process.env.ENCKE ?? join(HERE, '../../target/release/encke');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Long enough for a page that loads slowly on a busy machine. */
export const PATIENCE_MS = 90_000;

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];

/** Above the ports of common services. */
const RESERVED_FROM = 27_000;

/** All clients have all rights, and rooms show presence: the tests are alone on their ports. */
const SETTINGS = `
[push]
anonymous_rate = "off"
[[push.channel]]
pattern = "chat/**"
presence = true

[auth]
anonymous = ["subscribe", "publish", "presence"]
`;

/** Tests share a program with the same options, because its start is the slowest step. */
const launched = new Map();
after(async () => {
  for (const browser of launched.values()) await (await browser).close();
});

/** The resources of a test, released in reverse order. */
export class Stack {
  #ends = [];

  /** Registers `end` to run after the test. */
  ended(value, end) {
    this.#ends.push(end);
    return value;
  }

  async end() {
    for (const end of this.#ends.reverse()) await end();
    this.#ends = [];
  }

  /** A directory of the test. */
  async folder() {
    const path = await mkdtemp(join(tmpdir(), 'encke-browser-'));
    return this.ended(path, () => rm(path, { recursive: true, force: true, maxRetries: 5 }));
  }

  /** Starts Encke with the chat, or another site, on a free port or on one of `reservedPort`. */
  async encke({ port = 0, settings = SETTINGS, site = CHAT } = {}) {
    const file = join(await this.folder(), 'encke.toml');
    await writeFile(file, settings);
    const words = ['serve', site, '-c', file, '-l', `127.0.0.1:${port}`, '--admin', '127.0.0.1:0', '-w', '2'];
    const server = await serving(words, /^ {2}site +http:\/\/127\.0\.0\.1:(\d+)/);
    return this.ended(server, () => server.kill());
  }

  /** Starts Encke with the chat over TLS, and a browser that permanently accepts its certificate. */
  async secure() {
    const folder = await this.folder();
    const [key, cert, file] = ['key.pem', 'cert.pem', 'encke.toml'].map((name) => join(folder, name));
    await promisify(execFile)('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', key, '-out', cert]);
    const listen = `[server]\nlisten = [{ address = "127.0.0.1:0", tls = { cert = "${cert}", key = "${key}" } }]\n`;
    await writeFile(file, listen + SETTINGS);
    const words = ['serve', CHAT, '-c', file, '--admin', '127.0.0.1:0', '-w', '2'];
    const server = await serving(words, /^ {2}site +https:\/\/localhost:(\d+)/);
    this.ended(server, () => server.kill());
    const spki = new X509Certificate(await readFile(cert)).publicKey.export({ type: 'spki', format: 'der' });
    const trusted = createHash('sha256').update(spki).digest('base64');
    return {
      url: `https://localhost:${server.port}/`,
      browser: await this.browser([`--ignore-certificate-errors-spki-list=${trusted}`]),
      count: (family) => server.count(family),
    };
  }

  /** Returns a browser. Each context that it creates is isolated and closed after the test. */
  async browser(more = []) {
    const key = more.join();
    if (!launched.has(key)) launched.set(key, chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, ...more], timeout: PATIENCE_MS }));
    const browser = await launched.get(key);
    const newContext = async (options) => {
      const context = await browser.newContext(options);
      context.setDefaultTimeout(PATIENCE_MS);
      return this.ended(context, () => context.close());
    };
    return { newContext };
  }

  /** Starts a TCP relay that can be cut. */
  async line(port) {
    const line = new CutLine(port);
    await line.listen();
    return this.ended(line, () => line.close());
  }

  /** Starts an HTTP proxy that records open responses. */
  async proxy(port, options) {
    const proxy = new Proxy(port, options);
    await proxy.listen();
    return this.ended(proxy, () => proxy.close());
  }
}

/** Runs `encke load`. On a busy machine the generator may be the bottleneck (status 4), which is a report, too. */
export const load = (...words) => encke(['load', ...words], [0, 4]);

/** Runs `encke lab`. */
export const lab = (...words) => encke(['lab', ...words], [0]);

async function encke(words, expected) {
  const [status] = await once(spawn(ENCKE, words, { stdio: ['ignore', 'ignore', 'inherit'] }), 'exit');
  if (!expected.includes(status)) throw new Error(`encke ${words.join(' ')} ended with ${status}`);
}

/** Runs a test with a stack, which is always released. */
export async function staged(run) {
  const stack = new Stack();
  try {
    await run(stack);
  } finally {
    await stack.end();
  }
}

/** Starts Encke. `site` matches the start-up line with the port. */
async function serving(words, site) {
  let port;
  let admin;
  const server = await program(ENCKE, words, (line) => {
    port ??= site.exec(line)?.[1];
    admin ??= /^ {2}admin +(http:.*)api\/v1\/status(.*)/.exec(line)?.slice(1);
    return admin && port;
  });
  return {
    ...server,
    /** The URL of a page of the admin listener. */
    admin: (page) => `${admin[0]}${page}${admin[1]}`,
    /** Returns the sum of a metric family's samples. */
    async count(family) {
      const metrics = await (await fetch(this.admin('metrics'))).text();
      const samples = metrics.split('\n').filter((line) => line.startsWith(family) && ' {'.includes(line[family.length]));
      return samples.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
    },
  };
}

const reserved = new Set();

/**
 * Returns a free port that no program gets unasked: outside of the range from which the system chooses. For servers that cannot choose
 * their port, and for those that come back.
 */
export async function reservedPort() {
  const [low] = (await readFile('/proc/sys/net/ipv4/ip_local_port_range', 'utf8')).trim().split(/\s+/).map(Number);
  for (;;) {
    // A system that chooses from nearly all ports has no other ones.
    const port = low > RESERVED_FROM ? RESERVED_FROM + Math.floor(Math.random() * (low - RESERVED_FROM)) : 0;
    if (reserved.has(port)) continue;
    const server = net.createServer();
    const isFree = await new Promise((resolve) => server.on('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)));
    if (!isFree) continue;
    const given = server.address().port;
    reserved.add(given);
    server.close();
    await once(server, 'close');
    return given;
  }
}

/** Starts a program that prints its port to standard error. It is stopped by its process id. */
async function program(path, words, portOf) {
  const child = spawn(path, words, { stdio: ['ignore', 'ignore', 'pipe'] });
  const said = [];
  const exited = new Promise((resolve) => child.on('exit', resolve).on('error', resolve));
  const port = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) => reject(new Error(`${path} ended with ${code}:\n${said.join('\n')}`)));
    createInterface(child.stderr).on('line', (line) => {
      said.push(line);
      const port = portOf(line);
      if (port) resolve(Number(port));
    });
  });
  return {
    port,
    url: `http://127.0.0.1:${port}/`,
    async stop() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
      await exited;
    },
    async kill() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
      await exited;
    },
  };
}

/** A TCP relay between a browser and a server. */
class CutLine {
  #server = net.createServer((near) => this.#join(near));
  #pairs = new Set();
  #up = true;

  constructor(target) {
    this.target = target;
  }

  async listen() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    this.url = `http://127.0.0.1:${this.#server.address().port}/`;
  }

  #join(near) {
    // What the browser does to a connection that is being reset is no failure of the test.
    near.on('error', () => near.destroy());
    if (!this.#up) return near.resetAndDestroy();
    const far = net.connect(this.target, '127.0.0.1');
    const pair = [near, far];
    this.#pairs.add(pair);
    for (const [from, to] of [[near, far], [far, near]]) {
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => (to.destroy(), this.#pairs.delete(pair)));
    }
  }

  /** Resets every connection, and each new one immediately. */
  cut() {
    this.#up = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resetAndDestroy();
  }

  mend() {
    this.#up = true;
  }

  async close() {
    this.cut();
    this.#server.close();
  }
}

/**
 * An HTTP proxy, misconfigured on request: it buffers the beginning of each response, or does not support WebSockets. `answers`
 * responds to some requests itself, and returns whether it did.
 */
class Proxy {
  #server = http.createServer((request, answer) => this.#forward(request, answer));
  #sockets = new Set();
  #moves = new EventEmitter();
  /** URLs of open responses. */
  open = [];
  /** URLs of all requests. */
  asked = [];

  constructor(target, { keeps = 0, upgrades = true, answers = () => false } = {}) {
    this.target = target;
    this.keeps = keeps;
    this.answers = answers;
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('upgrade', (request, socket, head) => {
      this.asked.push(`ws ${request.url}`);
      // A browser may reset the connection after the answer.
      socket.on('error', () => socket.destroy());
      if (upgrades) this.#tunnel(request, socket, head);
      else socket.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    });
  }

  async listen() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    this.url = `http://127.0.0.1:${this.#server.address().port}/`;
  }

  /** The open event streams. */
  get streams() {
    return this.open.filter((entry) => entry.startsWith('text/event-stream'));
  }

  /** Resolves once so many event streams are open. A browser closes one that it has replaced when it comes to it. */
  async carries(count) {
    const late = AbortSignal.timeout(PATIENCE_MS);
    while (this.streams.length !== count) {
      await once(this.#moves, 'move', { signal: late }).catch(() => assert.fail(`not ${count} streams:\n${this.open.join('\n')}`));
    }
  }

  #forward(request, answer) {
    if (this.answers(request, answer)) return;
    const entry = `${request.headers.accept} ${request.url}`;
    this.asked.push(entry);
    this.open.push(entry);
    this.#moves.emit('move');
    const { method, url: path, headers } = request;
    const far = http.request({ host: '127.0.0.1', port: this.target, method, path, headers }, (reply) => {
      const kept = [];
      let bytes = 0;
      const give = () => {
        if (!answer.headersSent) answer.writeHead(reply.statusCode, reply.headers);
        for (const chunk of kept.splice(0)) answer.write(chunk);
      };
      reply.on('data', (chunk) => {
        kept.push(chunk);
        bytes += chunk.length;
        if (bytes > this.keeps) give();
      });
      reply.on('end', () => (give(), answer.end()));
      reply.on('error', () => answer.destroy());
    });
    far.on('error', () => answer.destroy());
    answer.on('close', () => {
      this.open.splice(this.open.indexOf(entry), 1);
      this.#moves.emit('move');
      far.destroy();
    });
    request.pipe(far);
  }

  #tunnel(request, near, head) {
    const far = net.connect(this.target, '127.0.0.1', () => {
      const fields = request.rawHeaders.reduce((text, word, at) => text + word + (at % 2 ? '\r\n' : ': '), '');
      far.write(`${request.method} ${request.url} HTTP/1.1\r\n${fields}\r\n`);
      far.write(head);
      far.pipe(near).pipe(far);
    });
    for (const [one, other] of [[near, far], [far, near]]) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  }

  async close() {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** Opens a page with the client, which records messages in `window.heard`. */
export async function listener(context, url, channel, options = {}) {
  const page = await context.newPage();
  await page.goto(`${url}comet.svg`);
  await listen(page, channel, options);
  return page;
}

/** Subscribes on a page, which records events in `window.heard`, `gaps`, `states`. */
export async function listen(page, channel, options = {}) {
  await page.evaluate(async ([channel, options]) => {
    const { subscribe } = await import('/encke.js');
    Object.assign(window, { heard: [], gaps: [], states: [], ids: [] });
    window.subscription = subscribe(channel, (data, { id }) => (heard.push(data), ids.push(id)), {
      ...options,
      onGap: (gap) => gaps.push(gap),
      onState: (state, { transport }) => states.push(`${state} ${transport}`),
    });
  }, [channel, options]);
}

/** Waits until a page's stream is open. Returns its transport. */
export async function opened(page) {
  const state = await page.waitForFunction(() => states.at(-1)?.startsWith('open') && states.at(-1));
  return (await state.jsonValue()).split(' ')[1];
}

/** Waits until a page has received `last`. Returns all its messages. */
export async function heard(page, last) {
  await page.waitForFunction((last) => heard.includes(last), last);
  return page.evaluate(() => heard);
}

/** A secret of HS256, and the settings with which Encke accepts its tokens only. */
export const SECRET = '0123456789abcdef0123456789abcdef';
export const BY_TOKEN = `[auth]\nkeys = [{ secret = "${SECRET}" }]\n`;

/**
 * Resolves once a figure of the server has a value: each request for it is an event that the server has answered. A figure is read
 * once only where nothing can still change it: the server learns of a stream that a page has replaced when its connection closes.
 */
export async function becomes(encke, family, value) {
  for (const until = performance.now() + PATIENCE_MS; ; ) {
    const now = await encke.count(family);
    if (now === value) return;
    assert.ok(performance.now() < until, `${family} is ${now}, and not ${value}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

let issued = 0;

/** Signs a token; each one is different. By default it is valid for an hour and has all rights. */
export function tokenOf(sub, { ttl = 3600, encke = { subscribe: ['**'], publish: ['**'] } } = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = { sub, exp: Math.floor(Date.now() / 1000) + ttl, jti: String(issued++), encke };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', SECRET).update(signed).digest('base64url')}`;
}

/** Publishes from outside of the browser. */
export async function publish(port, channel, data, token) {
  const headers = { 'content-type': 'text/plain', ...(token && { authorization: `Bearer ${token}` }) };
  const answer = await fetch(`http://127.0.0.1:${port}/push/${channel}`, { method: 'POST', body: data, headers });
  assert.ok(answer.ok, `publishing was answered with ${answer.status}`);
  return answer.json();
}
