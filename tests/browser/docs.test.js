/**
 * The snippets of the documents, each run as a reader would run it: scripts and pages in Chromium, programs by their interpreters, shell
 * lines by bash, all against a real server.
 *
 * A fenced block runs by its language. One in a language without a runner, or a shell command without a rule, fails: add a runner, or
 * name the reason in NOT_RUN. Ports of the documents (8080, 8081) become those of the server of the test.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';
import { compileScript, parse } from 'vue/compiler-sfc';

import { installed, project, ran } from './project.js';
import { becomes, ENCKE, publish, SECRET, staged, tokenOf } from './rig.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGES = ['README.md', 'docs/push.md', 'docs/streams.md', 'docs/tokens.md', 'client/README.md'];

/** What is no program for a reader to run, with the reason. */
const NOT_RUN = new Map([
  ['', 'pictures and output without a language'],
  ['text', 'pictures and output'],
  ['json', 'data, not a program'],
  ['toml', 'settings: the tests of `encke check` read their kind'],
]);

/** Shell commands that do not run here, with the reason. All others run. */
const COMMANDS_NOT_RUN = [
  [/^make( |$)/, 'builds the program: other stages do'],
  [/^(sudo|docker|cargo|git|brew|apt|apt-get|systemctl) /, 'changes the machine, or builds'],
  [/^npm (ci|run|install) /, 'package.test.js installs the package; `make test` runs the scripts'],
  [/^encke load /, 'takes ten seconds: load.test.js runs the generator'],
  [/^(mkdir -p site && )?encke (serve|demo)( |$)/, 'does not end: the server of the test has its place'],
  [/^ffmpeg /, 'does not end, and needs a camera: tests/live runs ffmpeg, and `sends` is the source here'],
  [/^-c:v /, 'a part of a command'],
];

/** A film of some seconds, which the tests of containers use. */
const FILM = join(ROOT, 'crates/encke-wire/tests/media/vp8-vorbis.webm');

/** Rights for all: except on the page about tokens, where a token is needed. */
const settingsOf = (file) => `
[push]
anonymous_rate = "off"
[[live.channel]]
hold = "500ms"
[[push.channel]]
pattern = "chat/**"
presence = true
[auth]
keys = [{ secret = "${SECRET}" }]
cookie = "session"
${file === 'docs/tokens.md' ? '' : 'anonymous = ["subscribe", "publish", "presence"]'}
`;

/** Returns the fenced blocks of a page: `{ name, language, text }`. */
function snippetsOf(file, markdown) {
  const snippets = [];
  let open;
  let heading = '';
  for (const line of markdown.split('\n')) {
    const fence = /^( *)```(\S*)/.exec(line);
    if (open && line.trim() === '```') {
      snippets.push({ ...open, text: `${open.lines.join('\n')}\n` });
      open = undefined;
    } else if (open) {
      open.lines.push(line.slice(open.indent));
    } else if (fence) {
      const name = `${file}, ${heading}: ${fence[2] || 'no language'} ${snippets.length + 1}`;
      open = { file, name, language: fence[2], indent: fence[1].length, lines: [] };
    } else if (/^#+ /.test(line)) {
      heading = line.replace(/^#+ /, '');
    }
  }
  assert.equal(open, undefined, `${file} ends in a block`);
  return snippets;
}

/** A snippet with the addresses of the server of the test. */
function here(text, { encke }) {
  const admin = new URL(encke.admin('api/v1/status'));
  return text
    .replace(/\b(localhost|127\.0\.0\.1):8080\b/g, `127.0.0.1:${encke.port}`)
    .replace(/127\.0\.0\.1:8081\b/g, admin.host)
    .replace(/\?token=TOKEN\b/g, admin.search)
    .replace('https://push.example.org/push/', `${encke.url}push/`);
}

/** The first channel to which a snippet subscribes. Paths with a variable begin with `chat/`. */
function channelOf(text) {
  const found = /(?:subscribe\(\[?'|EventSource\(['`]\/push\/|push\/|useChannel\((?:\(\) => )?`)(chat\/\$\{|[\w~.\-/]+)/.exec(text)?.[1];
  assert.ok(found, 'the snippet names no channel');
  return found === 'chat/${' ? 'chat/lobby' : found;
}

/** Publishes a message, once the server has a subscriber. */
async function probe({ encke }, channel) {
  await becomes(encke, 'encke_push_subscribers', 1);
  await publish(encke.port, channel, 'a probe', tokenOf('server'));
}

/** Sends a live stream until the end of the test. Returns its request, once the server knows the format. */
async function sends({ encke, stack }, name) {
  const url = `${encke.url}live/${name}`;
  const source = stack.ended(request(url, { method: 'PUT' }), () => source.destroy());
  // The end of the test ends it.
  source.on('error', () => {});
  source.write(await readFile(FILM));
  for (;;) {
    const answer = await fetch(`${url}?info`);
    if (answer.ok && (await answer.json()).codecs) return source;
    await new Promise((next) => setTimeout(next, 50));
  }
}

/**
 * Publishes messages until a page shows one. The first may be too early: a poll that asks for the present position is a subscriber, too,
 * and the page subscribes from the position behind the message. So is a stream that the page replaces by one with more channels.
 */
async function probed(at, page, channel) {
  let over = false;
  const shown = shows(at, page).finally(() => (over = true));
  // A failure is reported below.
  shown.catch(() => {});
  while (!over) {
    await probe(at, channel);
    await Promise.race([shown, new Promise((next) => setTimeout(next, 500))]);
  }
  await shown;
}

/** A page of the server, with the functions that the documents take for granted. */
async function pageOf(at, path = 'empty.html') {
  const context = await (await at.stack.browser()).newContext();
  await context.addCookies([{ name: 'session', value: tokenOf('ann'), url: at.encke.url }]);
  const page = await context.newPage();
  at.faults = [];
  page.on('pageerror', (error) => at.faults.push(error.message));
  await page.addInitScript(() => {
    const shown = [];
    const show = (...values) => shown.push(values.map(String).join(' '));
    Object.assign(window, { shown, show, lamp: () => {}, reload: () => {}, failed: false });
    for (const event of ['error', 'unhandledrejection']) addEventListener(event, () => (window.failed = true));
  });
  await page.goto(at.encke.url + path);
  return page;
}

/** Waits until a page shows the probe, or has failed. */
async function shows(at, page) {
  await page.waitForFunction(() => failed || shown.some((one) => one.includes('a probe')) || document.body.innerText.includes('a probe'));
  assert.ok(!(await page.evaluate(() => failed)), at.faults.join());
}

async function inPage(at, text) {
  const page = await pageOf(at);
  await page.addScriptTag({ type: 'module', content: `${here(text, at)}\nwindow.ended = true;` });
  await page.waitForFunction(() => failed || window.ended);
  // A snippet that closes its subscription has run to its end.
  if (!/\.close\(\);/.test(text)) await probed(at, page, channelOf(text));
  assert.ok(!(await page.evaluate(() => failed)), at.faults.join());
}

/** Runs a program that publishes `hello` to `news`. */
async function program(at, words, name, text) {
  await writeFile(join(at.folder, name), here(text, at));
  const said = await ran([...words, name], at.folder, { ...process.env, GO111MODULE: 'off' });
  assert.match(said, /201/);
  assert.match(said, /"id":"[^"]+","subscribers":0/);
  const answer = await fetch(`${at.encke.url}push/news?since=all&wait=0`, { headers: { accept: 'application/json', authorization: `Bearer ${tokenOf('server')}` } });
  assert.deepEqual((await answer.json()).messages.map(({ data }) => data), ['hello']);
}

/** Builds a component of a framework into a page, and mounts it. */
async function component(at, contents, loader) {
  const folder = await project(at.stack);
  await build({ stdin: { contents, resolveDir: folder, loader }, jsx: 'automatic', bundle: true, format: 'esm', outfile: join(at.site, 'app.js'), define: { 'process.env.NODE_ENV': '"production"' }, logLevel: 'error' });
  await writeFile(join(at.site, 'app.html'), '<!doctype html><meta charset="utf-8"><title>app</title><main></main><script type="module" src="app.js"></script>');
  await probed(at, await pageOf(at, 'app.html'), channelOf(contents));
}

/** Checks the types of a snippet in a project with the package. */
async function typed(at, name, text) {
  const folder = await project(at.stack);
  await writeFile(join(folder, name), text);
  const words = '--noEmit --strict --jsx react-jsx --target es2022 --module esnext --moduleResolution bundler --types'.split(' ');
  await ran([process.execPath, installed('typescript/bin/tsc'), ...words, '', name], folder);
}

/** Runs the lines of a shell block. Those that subscribe run until the end of the block, and must receive a probe. */
async function shell(at, text) {
  const env = { ...process.env, PATH: `${join(at.folder, 'bin')}:${process.env.PATH}`, ENCKE_URL: at.encke.url.slice(0, -1) };
  const streams = [];
  const lines = [];
  for (const line of here(text.replace(/\\\n\s*/g, ' '), at).split('\n')) {
    const command = line.replace(/\s+#.*$/, '').replace(/(^|\s|\()target\/\w+\/encke /g, '$1encke ').replace(/&\s*$/, '').trim();
    if (!command || command.startsWith('#') || COMMANDS_NOT_RUN.some(([form]) => form.test(command))) continue;
    if (/^(curl -N|encke sub) /.test(command)) {
      const child = at.stack.ended(spawn('bash', ['-c', `exec ${command.replace('curl -N', 'curl -sN')}`], { cwd: at.folder, env, stdio: ['ignore', 'pipe', 'inherit'] }), () => child.kill('SIGKILL'));
      streams.push({ child, command });
      await becomes(at.encke, 'encke_push_subscribers', streams.length);
    } else {
      lines.push(command);
    }
  }
  if (lines.length > 0) await ran(['bash', '-euo', 'pipefail', '-c', lines.map((line) => line.replace(/\bcurl /g, 'curl --fail-with-body -s ')).join('\n')], at.folder, env);
  for (const { child, command } of streams) {
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (piece) => (said += piece));
    await publish(at.encke.port, /(?:push\/|encke sub )([\w/]+)/.exec(command)[1], 'a probe', tokenOf('server'));
    while (!said.includes('a probe')) await once(child.stdout, 'data');
  }
}

const RUNNERS = {
  js: async (at, text) => (/from 'node:/.test(text) ? program(at, [process.execPath], 'snippet.mjs', text) : inPage(at, text)),
  python: async (at, text) => program(at, ['python3'], 'snippet.py', text),
  php: async (at, text) => program(at, ['php', '-d', 'display_errors=stderr'], 'snippet.php', text),
  go: async (at, text) => program(at, ['go', 'run'], 'snippet.go', text),
  sh: shell,
  async html(at, text) {
    await writeFile(join(at.site, 'snippet.html'), `<!doctype html><meta charset="utf-8"><body>${here(text, at)}`);
    const opened = pageOf(at, 'snippet.html');
    if (/<video /.test(text)) {
      // Chromium begins to play after more bytes than the film has, or at its end.
      await becomes(at.encke, 'encke_live_listeners', 1);
      at.sources.forEach((source) => source.end());
      const page = await opened;
      await page.waitForFunction(() => document.querySelector('video').readyState >= HTMLMediaElement.HAVE_CURRENT_DATA);
      return;
    }
    await probed(at, await opened, channelOf(text));
  },
  ts: async (at, text) => typed(at, 'snippet.ts', `${text}\ndeclare function show(...values: unknown[]): void;\n`),
  async tsx(at, text) {
    await typed(at, 'snippet.tsx', text);
    const name = /export function (\w+)/.exec(text)?.[1];
    const mount = `\nimport { createRoot } from 'react-dom/client';\ncreateRoot(document.querySelector('main')).render(<${name} />);`;
    await component(at, text + mount, 'tsx');
  },
  async vue(at, text) {
    const { descriptor, errors } = parse(text);
    assert.deepEqual(errors, []);
    const { content } = compileScript(descriptor, { id: 'snippet', inlineTemplate: true, genDefaultAs: 'Component' });
    await component(at, `${content}\nimport { createApp } from 'vue';\ncreateApp(Component).mount('main');`, 'js');
  },
};

/** Runs a snippet in a place of its own. */
async function runs({ file, language, text }) {
  if (NOT_RUN.has(language)) return;
  const run = Object.hasOwn(RUNNERS, language) ? RUNNERS[language] : undefined;
  assert.ok(run, `no runner for the language "${language}": add one to tests/browser/docs.test.js, or a reason to NOT_RUN`);
  await staged(async (stack) => {
    // Shell lines see the site of the server as `site`.
    const folder = await stack.folder();
    const site = join(folder, 'site');
    await mkdir(site);
    await writeFile(join(site, 'index.html'), '<!doctype html><title>site</title>');
    await writeFile(join(site, 'token'), tokenOf('ann'));
    await writeFile(join(site, 'empty.html'), '<!doctype html><title>empty</title>');
    await writeFile(join(folder, 'jwt.secret'), `${SECRET}\n`);
    await writeFile(join(folder, 'encke.toml'), settingsOf(file));
    await mkdir(join(folder, 'bin'));
    await symlink(ENCKE, join(folder, 'bin/encke'));
    const encke = await stack.encke({ site, settings: settingsOf(file) });
    const at = { stack, encke, site, folder, sources: [] };
    if (file === 'docs/streams.md') for (const name of ['film', 'cam']) at.sources.push(await sends(at, name));
    await run(at, text);
  });
}

for (const file of PAGES) {
  for (const snippet of snippetsOf(file, await readFile(join(ROOT, file), 'utf8'))) test(snippet.name, () => runs(snippet));
}

test('every page has snippets, and a snippet that fails or that nothing runs is a failure', async () => {
  for (const file of PAGES) assert.ok(snippetsOf(file, await readFile(join(ROOT, file), 'utf8')).length > 0, file);
  const wrong = {
    cobol: 'DISPLAY "hello".\n',
    js: "const news = new EventSource('/push/news');\nnews.onmessage = (event) => unknown(event.data);\n",
    python: "print(201, '{\"id\":\"e-1\",\"subscribers\":0}')\n",
    sh: 'encke pub --token nobody news hello\n',
  };
  for (const [language, text] of Object.entries(wrong)) {
    await assert.rejects(runs({ file: 'docs/tokens.md', language, text }), `${language} passed`);
  }
});
