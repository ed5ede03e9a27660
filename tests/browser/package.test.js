/**
 * The npm package @encke/client in projects of its users: installed from a directory and from a tarball, with types, in Vite, React
 * and Vue.
 */

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { build } from 'esbuild';

import { installed, project, ran } from './project.js';
import { becomes, BY_TOKEN, publish, staged, tokenOf } from './rig.js';

const CORE = `
import { subscribe, PublishError, type Message, type Subscription, type SubscribeOptions } from '@encke/client';

const options: SubscribeOptions = { since: 'last:10', token: async () => 'text', share: false };
const news: Subscription = subscribe('news', (data: string | Uint8Array, { id, time }: Message) => show(id, data, time), options);
subscribe(['news'], (value) => show(value), { json: true, url: undefined });
news.publish({ price: 1 }).then(({ id }) => show(id), (error) => error instanceof PublishError && show(error.status));
// @ts-expect-error A number is no channel.
subscribe(1, () => {});
// @ts-expect-error Without json the payload is text or bytes.
subscribe('news', (data: { price: number }) => show(data));
function show(...values: unknown[]): void {
  Object.assign(window, { shown: values });
}
`;

const HOOKS = `
import { useChannel } from '@encke/client/react';
import { useChannel as useVueChannel } from '@encke/client/vue';

export function Component(): string {
  const { state, publish } = useChannel('news', (data) => void data, { token: () => 'text' });
  void publish({ x: 1 });
  // @ts-expect-error There is no such state.
  if (state === 'asleep') return '';
  return state;
}

export function setup(): unknown {
  const { state } = useVueChannel(() => ['a', 'b'], (value: unknown, { channel }) => void [value, channel.length], { json: true });
  // @ts-expect-error The state of a composable is a ref.
  state.length;
  return state.value.length;
}
`;

for (const from of ['tarball', 'directory']) {
  for (const resolution of ['bundler', 'nodenext']) {
    test(`the package from a ${from} has types for moduleResolution ${resolution}`, async () => {
      await staged(async (stack) => {
        const folder = await project(stack, from);
        await writeFile(join(folder, 'core.ts'), CORE);
        // A linked directory finds no library of the project: the client needs none, the hooks do.
        if (from === 'tarball') await writeFile(join(folder, 'hooks.ts'), HOOKS);
        const module = resolution === 'nodenext' ? 'nodenext' : 'esnext';
        const compilerOptions = {
          target: 'es2022', lib: ['es2023', 'dom', 'dom.iterable'], module, moduleResolution: resolution, strict: true, noEmit: true,
          exactOptionalPropertyTypes: true, skipLibCheck: false, types: [],
        };
        await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: from === 'tarball' ? ['core.ts', 'hooks.ts'] : ['core.ts'] }));
        await ran([process.execPath, installed('typescript/bin/tsc'), '-p', folder], folder);
      });
    });
  }

  test(`a page that Vite builds with the package from a ${from} subscribes`, async () => {
    await staged(async (stack) => {
      const folder = await project(stack, from);
      await writeFile(join(folder, 'index.html'), '<!doctype html><title>user</title><script type="module" src="/main.ts"></script>');
      await writeFile(join(folder, 'main.ts'), `
        import { subscribe } from '@encke/client';
        const heard: unknown[] = [];
        const news = subscribe('news', (data) => heard.push(data), { onState: (state) => Object.assign(window, { state }) });
        Object.assign(window, { heard, news });
      `);
      await ran([process.execPath, installed('vite/bin/vite.js'), 'build', '--logLevel', 'error'], folder);
      const encke = await stack.encke({ site: join(folder, 'dist') });
      const page = await (await (await stack.browser()).newContext()).newPage();
      await page.goto(encke.url);
      await page.waitForFunction(() => window.state === 'open');
      await page.evaluate(() => news.publish('hello'));
      await page.waitForFunction(() => heard.includes('hello'));
    });
  });
}

test('a server that renders pages may import the package', async () => {
  await staged(async (stack) => {
    const folder = await project(stack);
    const script = "const all = await Promise.all(['', '/react', '/vue'].map((part) => import('@encke/client' + part))); console.log(all.map(Object.keys).join())";
    assert.equal((await ran([process.execPath, '--input-type=module', '-e', script], folder)).trim(), 'PublishError,subscribe,useChannel,useChannel');
  });
});

/** Apps with the same behaviour: `render({ rooms, prefix })` mounts a component for each room. */
const APPS = {
  React: `
    import { StrictMode, useState } from 'react';
    import { createRoot } from 'react-dom/client';
    import { useChannel } from '@encke/client/react';

    function Room({ room, prefix, number }) {
      const [lines, setLines] = useState([]);
      const { state, publish } = useChannel(
        room && 'room/' + room,
        (data) => setLines((lines) => [...lines, prefix + data]),
        { token: async () => window.tokens[number], onState: (state) => (window.inline = prefix + state) },
      );
      window.publish = publish;
      return <li className={state}>{lines.join(' ')}</li>;
    }

    const root = createRoot(document.body);
    window.render = ({ rooms, prefix = '' }) =>
      root.render(<StrictMode><ul>{rooms.map((room, number) => <Room key={number} {...{ room, prefix, number }} />)}</ul></StrictMode>);
  `,
  Vue: `
    import { createApp, h, reactive, ref } from 'vue';
    import { useChannel } from '@encke/client/vue';

    const Room = {
      props: ['room', 'prefix', 'number'],
      setup(props) {
        const lines = ref([]);
        const { state, publish } = useChannel(
          () => props.room && 'room/' + props.room,
          (data) => lines.value.push(props.prefix + data),
          () => ({ token: async () => window.tokens[props.number], onState: (state) => (window.inline = props.prefix + state) }),
        );
        return () => {
          window.publish = publish;
          return h('li', { class: state.value }, lines.value.join(' '));
        };
      },
    };

    const view = reactive({ rooms: [], prefix: '' });
    createApp(() => h('ul', view.rooms.map((room, number) => h(Room, { key: number, room, prefix: view.prefix, number })))).mount(
      document.body.appendChild(document.createElement('div')),
    );
    window.render = ({ rooms, prefix = '' }) => Object.assign(view, { rooms, prefix });
  `,
};

for (const [framework, source] of Object.entries(APPS)) {
  test(`${framework}: eight components share one stream, follow their props, and free it`, async () => {
    await staged(async (stack) => {
      const folder = await project(stack);
      const site = await stack.folder();
      const loader = framework === 'React' ? 'jsx' : 'js';
      await build({ stdin: { contents: source, resolveDir: folder, loader }, jsx: 'automatic', bundle: true, format: 'esm', outfile: join(site, 'app.js'), define: { 'process.env.NODE_ENV': '"development"' }, logLevel: 'error' });
      await writeFile(join(site, 'index.html'), '<!doctype html><title>app</title><body><script type="module" src="app.js"></script>');
      const encke = await stack.encke({ site, settings: BY_TOKEN });
      const page = await (await (await stack.browser()).newContext()).newPage();
      const faults = [];
      page.on('pageerror', (error) => faults.push(error.message));
      await page.goto(encke.url);
      await page.evaluate((tokens) => Object.assign(window, { tokens }), Array.from({ length: 8 }, () => tokenOf('ann')));
      const say = (room, data) => publish(encke.port, `room/${room}`, data, tokenOf('server'));
      const texts = () => page.$$eval('li', (all) => all.map((one) => one.textContent));
      /** Renders rooms. With a room that is new, waits until its subscription is open: the page shows the state of the one before. */
      const render = async (props, fresh = '') => {
        await page.evaluate((props) => (Object.assign(window, { inline: '' }), render(props)), props);
        await page.waitForFunction((fresh) => inline === fresh, fresh);
      };

      await render({ rooms: ['a', 'b', 'a', 'b', 'a', 'b', 'a', 'b'] }, 'open');
      await page.waitForFunction(() => document.querySelectorAll('li.open').length === 8);
      await becomes(encke, 'encke_push_subscribers', 1);
      assert.equal(await page.evaluate(async () => (await fetch('/app.js')).status), 200);
      await say('b', 'one');
      await say('a', 'two');
      await page.waitForFunction(() => [...document.querySelectorAll('li')].every((one) => one.textContent));
      assert.deepEqual(await texts(), ['two', 'one', 'two', 'one', 'two', 'one', 'two', 'one']);

      // Inline callbacks are the latest ones, without another subscription.
      await render({ rooms: ['a', 'b'], prefix: '>' });
      await page.waitForFunction(() => document.querySelectorAll('li').length === 2);
      await say('a', 'three');
      await page.waitForFunction(() => document.body.innerText.includes('>three'));
      assert.deepEqual(await texts(), ['two >three', 'one']);

      // Another channel, and none.
      await render({ rooms: ['c', null], prefix: '>' }, '>open');
      await page.waitForFunction(() => document.querySelector('li.closed') && document.querySelectorAll('li.open').length === 1);
      await say('a', 'four');
      await say('b', 'five');
      await say('c', 'six');
      await page.waitForFunction(() => document.body.innerText.includes('>six'));
      assert.deepEqual(await texts(), ['two >three >six', 'one']);
      await becomes(encke, 'encke_push_subscribers', 1);

      await render({ rooms: ['d'] }, 'open');
      await page.evaluate(() => publish({ n: 7 }));
      await page.waitForFunction(() => document.body.innerText.includes('{"n":7}'));
      await render({ rooms: [] });
      await becomes(encke, 'encke_push_subscribers', 0);
      assert.match(await page.evaluate(() => publish('x').catch((error) => error.message)), /no subscription/);
      assert.deepEqual(faults, []);
    });
  });
}
