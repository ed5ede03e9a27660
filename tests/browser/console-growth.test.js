/**
 * A page of the console after eight simulated hours: memory, DOM nodes and listeners do not grow.
 *
 *   $CONSOLE_EVERY_MS   simulated time between two events: 20,000, because drawing them takes long; `make soak` uses 250, the
 *                       shortest time that the API allows
 *   $CONSOLE_LEAK       plants a fault: the page keeps every event, with an element and a listener
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';

import { more, opened, operated } from './console-rig.js';
import { staged } from './rig.js';

const HOURS = 8;
const HOUR_MS = 3_600_000;
const EVERY_MS = Number(process.env.CONSOLE_EVERY_MS ?? 20_000);
/** All events take less than a minute, and many minutes with a CONSOLE_EVERY_MS of 250. */
const PATIENCE_MS = 3_600_000;
/**
 * Bytes of JavaScript memory between the first hour and the last. Code that the browser compiles, and its caches, are up to 1.1 MB
 * for any number of events; in the second half they are at most 0.45 MB.
 */
const HEAP_GROWTH_MAX = 1536 * 1024;
const LATER_HEAP_GROWTH_MAX = 1152 * 1024;
/** Rows come and go, so that the moment of a measurement matters. */
const NODES_GROWTH_MAX = 200;
const LISTENERS_GROWTH_MAX = 20;

/** The event streams of a page: simulated time, as fast as the page reads. The events repeat a sample of a real server with other figures. */
class Hours {
  #samples;
  #untilMs = 0;
  #raised = () => {};
  /** Simulated time since the page was opened. */
  atMs = 0;
  events = 0;

  constructor(samples) {
    this.#samples = samples;
    this.beginMs = samples.beginMs;
  }

  /** Allows simulated time up to `hours`. */
  until(hours) {
    this.#untilMs = hours * HOUR_MS;
    this.#raised();
  }

  /** Responds to a request of the live stream. */
  async respond(request, response) {
    const { searchParams } = new URL(request.url, 'http://localhost');
    const watches = searchParams.getAll('watch').filter((watch) => watch !== 'notices');
    let isOpen = true;
    const closed = once(response, 'close').then(() => ((isOpen = false), this.#raised()));
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.flushHeaders();
    while (isOpen) {
      if (this.atMs >= this.#untilMs) {
        await new Promise((resolve) => (this.#raised = resolve));
        continue;
      }
      this.atMs += EVERY_MS;
      const text = watches.map((watch) => this.#event(watch)).join('');
      this.events += watches.length;
      if (!response.write(text)) await Promise.race([once(response, 'drain'), closed]);
    }
  }

  #event(watch) {
    const n = this.atMs / 1000;
    if (watch === 'overview') return sse('overview', this.#overview(n));
    if (watch.startsWith('lists/')) return sse('list', { watch, name: watch.slice(6).split('?')[0], total: n, rows: this.#rows(n) });
    return sse('log', { watch, dropped: 0, entries: this.#entries(n) });
  }

  #overview(n) {
    const { overview } = this.#samples;
    const vary = ([name, value]) => [name, typeof value === 'number' ? value + wave(n, name.length) : n % 5 < 1 ? null : wave(n, name.length)];
    return { ...overview, time_ms: this.beginMs + this.atMs, figures: Object.fromEntries(Object.entries(overview.figures).map(vary)) };
  }

  /** A hundred connections, of which some end in each interval, and others begin. */
  #rows(n) {
    const [row] = this.#samples.rows;
    return Array.from({ length: 100 - (Math.floor(n) % 7) }, (_, at) => {
      const born = Math.floor((n + at * 13) / 50) * 100 + at;
      return { ...row, id: String(born), address: `192.0.2.${born % 200}`, age_s: n + at, out_bytes: n * at, idle_s: n % 60 };
    });
  }

  #entries(n) {
    const [entry] = this.#samples.entries;
    return Array.from({ length: 6 }, (_, at) => ({ ...entry, time: new Date(this.beginMs + this.atMs).toISOString(), path: `/page/${n}/${at}`, target: `/page/${n}/${at}`, bytes: n }));
  }
}

const sse = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const wave = (n, k) => 1 + Math.abs(Math.sin(n / (7 + k))) * k;

/** A sample of each section of a real server. */
async function sampled(console) {
  const abort = new AbortController();
  const log = await console.stream('log', abort.signal);
  await fetch(`${console.server.url}sample`);
  let text = '';
  for await (const part of log) {
    text += new TextDecoder().decode(part);
    if (/"entries":\[\{.*\n\n/.test(text)) break;
  }
  abort.abort();
  const { entries } = JSON.parse(/data: (\{.*"entries":\[\{.*)\n\n/.exec(text)[1]);
  const overview = (await console.get('/overview')).data;
  const { rows } = (await console.get('/lists/connections?limit=1')).data;
  assert.ok(rows.length > 0 && entries.length > 0, 'a connection and an entry');
  return { beginMs: overview.time_ms + 60_000, overview, rows, entries };
}

/** JavaScript memory in bytes, DOM nodes and listeners, after a garbage collection. */
async function measured(cdp) {
  // The first collection frees what finalizers of the second one need.
  for (let n = 0; n < 3; n += 1) await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  const { nodes, jsEventListeners } = await cdp.send('Memory.getDOMCounters');
  return { heap: usedSize, nodes, listeners: jsEventListeners };
}

/** A leak, as a page would have it that forgets to release something of each event. */
function leak() {
  const Real = globalThis.EventSource;
  globalThis.kept = [];
  globalThis.EventSource = class extends Real {
    addEventListener(name, handler) {
      super.addEventListener(name, (event) => {
        const element = document.createElement('i');
        element.addEventListener('click', () => event);
        globalThis.kept.push(element);
        handler(event);
      });
    }
  };
}

const PAGES = [
  { hash: 'overview', shows: (page, hours) => page.locator('.tiles').getByText(`for ${hours} h`).waitFor() },
  { hash: 'connections', shows: (page, hours) => page.getByText(`of ${(hours * 3600).toLocaleString('en')}`).waitFor() },
  { hash: 'log', shows: (page, hours) => page.getByText(`/page/${hours * 3600}/5`).first().waitFor() },
];

for (const { hash, shows } of PAGES) {
  more(`the page ${hash} does not grow in ${HOURS} simulated hours`, () =>
    staged(async (stack) => {
      const console = await operated(stack);
      const hours = new Hours(await sampled(console));
      const relay = await stack.proxy(console.port, {
        answers: (request, response) => request.url.startsWith('/api/v1/live') && (void hours.respond(request, response), true),
      });
      const { page, go, messages } = await opened(stack, { ...console, origin: new URL(relay.url).origin });
      if (process.env.CONSOLE_LEAK) await page.addInitScript(leak);
      await go(hash);
      page.setDefaultTimeout(PATIENCE_MS);
      // Graphs are drawn while they are visible; small ones in a fraction of the time.
      await page.setViewportSize({ width: 390, height: 900 });
      const cdp = await page.context().newCDPSession(page);
      const after = async (time) => {
        hours.until(time);
        await shows(page, time);
        return measured(cdp);
      };
      const began = performance.now();
      const first = await after(1);
      const half = await after(HOURS / 2);
      const last = await after(HOURS);
      const grown = Object.fromEntries(Object.entries(last).map(([name, value]) => [name, value - first[name]]));
      globalThis.console.log(`# ${hash}: ${hours.events} events in ${((performance.now() - began) / 1000).toFixed(0)} s; after 1 h ${JSON.stringify(first)}, after ${HOURS / 2} h ${JSON.stringify(half)}, after ${HOURS} h ${JSON.stringify(last)}`);
      assert.ok(hours.events >= (HOURS * HOUR_MS) / EVERY_MS, `only ${hours.events} events`);
      assert.ok(grown.heap <= HEAP_GROWTH_MAX, `the memory grew by ${grown.heap} bytes`);
      assert.ok(last.heap - half.heap <= LATER_HEAP_GROWTH_MAX, `the memory grew by ${last.heap - half.heap} bytes in the second half`);
      assert.ok(grown.nodes <= NODES_GROWTH_MAX, `the page grew by ${grown.nodes} nodes`);
      assert.ok(grown.listeners <= LISTENERS_GROWTH_MAX, `the page grew by ${grown.listeners} listeners`);
      assert.deepEqual(messages, []);
    }));
}
