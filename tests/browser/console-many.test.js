/** The list of as many connections as a process can have. The test measures times, so no other test runs beside it. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';

import { more, opened, operated, SETTINGS } from './console-rig.js';
import { staged } from './rig.js';

/** As many as fit into the 20,000 descriptors of a process, in this process and in the server. */
const CONNECTIONS = 19_000;
/** Sources of the connections, so that a search for an address finds some of them. */
const ADDRESSES = 100;
/** Connections that are being opened at once: the queue of a listener is finite. */
const DIALS_MAX = 256;
const ROWS = 100;
/** A person waits that long without doubt whether a click had an effect; a build without optimisation needs a third of it. */
const RESPONSE_MAX_MS = 3000;

/** Opens connections to a port, from 127.0.1.1 and following. */
async function connected(stack, port) {
  const sockets = stack.ended([], () => sockets.forEach((socket) => socket.destroy()));
  const dial = async () => {
    while (sockets.length < CONNECTIONS) {
      const socket = net.connect({ port, host: '127.0.0.1', localAddress: `127.0.1.${1 + (sockets.length % ADDRESSES)}` });
      sockets.push(socket);
      await once(socket, 'connect');
    }
  };
  await Promise.all(Array.from({ length: DIALS_MAX }, dial));
}

more(`the list of ${CONNECTIONS} connections stays usable`, () =>
  staged(async (stack) => {
    const console = await operated(stack, SETTINGS.replace('head_time = "20s"', 'head_time = "1h"'));
    await connected(stack, console.server.port);
    // A slow page is slow each time; a pause of the machine does not come three times.
    const times = {};
    for (let round = 0; round < 3 && (round === 0 || Object.values(times).some((ms) => ms > RESPONSE_MAX_MS)); round += 1) {
      const { page, go, messages } = await opened(stack, console);
      const responds = async (name, act, seen) => {
        const began = performance.now();
        await act();
        await seen();
        times[name] = Math.min(times[name] ?? Infinity, Math.round(performance.now() - began));
        assert.ok((await page.locator('main tbody tr').count()) <= ROWS, `${name}: more than ${ROWS} rows`);
      };
      const first = page.locator('main tbody tr').first();
      const all = page.getByText(new RegExp(`of 1[89],\\d{3}$`)).first();
      await responds('open', () => go('connections'), () => all.waitFor());
      const top = async (sort) => (await console.get(`/lists/connections?limit=1&sort=${sort}`)).data.rows[0].address;
      const [lowest, highest] = [await top('address'), await top('-address')];
      assert.notEqual(lowest, highest);
      await responds('sort', () => page.getByRole('button', { name: 'Address', exact: true }).click(), () => first.getByRole('button', { name: lowest, exact: true }).waitFor());
      await responds('reverse', () => page.getByRole('button', { name: 'Address', exact: true }).click(), () => first.getByRole('button', { name: highest, exact: true }).waitFor());
      await responds('search', () => page.getByPlaceholder('Address, user, channel, path …').fill('127.0.1.42'), () => page.getByText(`100 of ${CONNECTIONS / ADDRESSES}`).waitFor());
      await responds('one', () => first.getByRole('button').first().click(), () => page.getByRole('heading', { name: '127.0.1.42' }).waitFor());
      assert.deepEqual(messages, []);
      await page.context().close();
    }
    globalThis.console.log(`# ${CONNECTIONS} connections, in ms: ${JSON.stringify(times)}`);
    for (const [name, ms] of Object.entries(times)) assert.ok(ms <= RESPONSE_MAX_MS, `${name} took ${ms} ms`);
  }));
