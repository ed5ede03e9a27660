/**
 * The comet chat: rooms are channels, people are their members, history comes from the server.
 *
 *   chat/ROOM   messages {"name","text","nonce"}; joins and leaves as the events encke.join and encke.leave
 *
 * Messages of others are inserted as text, never as HTML.
 */

import { subscribe } from '/encke.js';

const CHANNELS = '/push/';
const HISTORY = 'last:60';
const ROOMS = ['lobby', 'comets', 'tea'];
const NAMES = ['Halley', 'Biela', 'Faye', 'Brorsen', 'Tuttle', 'Wolf', 'Holmes', 'Borrelly', 'Swift', 'Honda', 'Ikeya', 'Seki', 'Lovejoy', 'Hyakutake'];
/** Messages of one person within this time are grouped. */
const TOGETHER_MS = 3 * 60_000;
/** Older lines are removed from the log. */
const LINES_MAX = 500;

const TEXTS = {
  en: {
    title: 'Comet chat', lead: 'It stays connected.', rooms: 'Rooms', newRoom: 'Another room', enter: 'Enter the room', people: 'Here now',
    name: 'Your name', forcePoll: 'Long polls only', menu: 'Rooms and people', say: 'Say something', send: 'Send', you: 'you', other: '日本語',
    connecting: 'connecting', open: 'live', waiting: 'reconnecting', denied: 'not allowed', closed: 'closed',
    sse: 'event stream', ws: 'WebSocket', poll: 'long poll', ms: (ms) => `${ms} ms`, here: (n) => `${n} here`,
    joined: (name) => `${name} came in`, left: (name) => `${name} left`, gap: 'Some messages are gone: the server no longer keeps them.',
    empty: 'Nobody has said anything yet.', curl: 'From a terminal:', newer: (n) => `${n} new ↓`, someone: 'a terminal', failed: 'not delivered',
  },
  ja: {
    title: 'コメットチャット', lead: 'つながり続けます。', rooms: 'ルーム', newRoom: '別のルーム', enter: '入る', people: '在室者',
    name: 'あなたの名前', forcePoll: 'ロングポーリングのみ', menu: 'ルームと在室者', say: 'メッセージを書く', send: '送信', you: 'あなた', other: 'English',
    connecting: '接続中', open: '接続済み', waiting: '再接続中', denied: '許可されていません', closed: '切断',
    sse: 'イベントストリーム', ws: 'WebSocket', poll: 'ロングポーリング', ms: (ms) => `${ms} ms`, here: (n) => `${n}人`,
    joined: (name) => `${name} さんが入室しました`, left: (name) => `${name} さんが退室しました`, gap: '一部のメッセージは、サーバーに残っていません。',
    empty: 'まだ発言はありません。', curl: 'ターミナルから:', newer: (n) => `新着 ${n} 件 ↓`, someone: 'ターミナル', failed: '送信できませんでした',
  },
};

const at = (id) => document.getElementById(id);
const log = at('log');

/** Storage for browsers without local storage. */
const notes = {};

/** The user's choices, stored between visits. */
const kept = {
  get name() { return recall('name') || (this.name = `${NAMES[Math.floor(Math.random() * NAMES.length)]} ${Math.floor(Math.random() * 90) + 10}`); },
  set name(name) { keep('name', name); },
  get language() { return recall('language') ?? (navigator.language.startsWith('ja') ? 'ja' : 'en'); },
  set language(language) { keep('language', language); },
  get poll() { return recall('poll') === 'yes'; },
  set poll(poll) { keep('poll', poll ? 'yes' : ''); },
  get rooms() { return (recall('rooms') ?? '').split('/').filter(Boolean); },
  set rooms(rooms) { keep('rooms', rooms.join('/')); },
};

let texts = TEXTS[kept.language] ?? TEXTS.en;
/** The room on the screen, and its state. */
let place = { room: '', stream: undefined, members: new Set(), subscribers: 0, passed: 0, unsent: new Map() };
let unread = 0;

/* Rooms */

/** A room's channel: encodes names in any script with the characters that channel names allow. */
function channelOf(room) {
  const escaped = encodeURIComponent(room).replace(/[!'()*~.]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
  return `chat/${escaped.replaceAll('%', '~')}`;
}

function enter(room) {
  place.stream?.close();
  place = { room, stream: undefined, members: new Set(), subscribers: 0, passed: 0, unsent: new Map() };
  log.replaceChildren(emptiness());
  unread = 0;
  const present = place;
  const channel = channelOf(room);
  const mine = (run) => (...given) => present === place && run(...given);
  present.stream = subscribe(channel, mine(hear), {
    url: CHANNELS,
    since: HISTORY,
    name: kept.name,
    transport: kept.poll ? 'poll' : undefined,
    onGap: mine(() => add(line('notice gap', texts.gap))),
    onState: mine((state, { transport }) => {
      showState(state, transport);
      if (state === 'open') void census(present, channel);
    }),
  });
  showRooms();
  showPeople();
  showNewer();
  document.title = `${room} · ${texts.title}`;
}

function roomOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1)).trim() || ROOMS[0];
  } catch {
    return ROOMS[0];
  }
}

/** Updates the count of members and the latency of a request. */
async function census(present, channel) {
  const { passed } = present;
  const asked = performance.now();
  const answer = await fetch(`${CHANNELS}${channel}?info`, { cache: 'no-store' }).catch(() => undefined);
  if (!answer?.ok || present !== place) return;
  showLatency(performance.now() - asked);
  const { members = [], subscribers = 0 } = await answer.json();
  // The answer may be older than a join or leave that was heard meanwhile.
  if (present.passed !== passed) return census(present, channel);
  present.members = new Set(members);
  present.subscribers = subscribers;
  showPeople();
}

/* Messages */

function hear(data, { event, time = new Date(), type }) {
  if (event === 'encke.join' || event === 'encke.leave') return passBy(event === 'encke.join', data, time);
  const { name, text, nonce } = said(data, type);
  const own = place.unsent.get(nonce);
  if (own) {
    place.unsent.delete(nonce);
    showLatency(performance.now() - own.sent);
    own.element.remove();
  }
  const mine = name === kept.name;
  add(message(name, text, time, mine), mine);
}

/** A message: in the chat's own format, or as published with curl. */
function said(data, type) {
  if (typeof data !== 'string') return { name: texts.someone, text: `(${type ?? 'bytes'}, ${data.length})` };
  try {
    const { name, text, nonce } = JSON.parse(data);
    if (typeof name === 'string' && typeof text === 'string') return { name: name.slice(0, 24), text, nonce };
  } catch {
    // Plain text is accepted, too.
  }
  return { name: texts.someone, text: data };
}

function passBy(joined, data, time) {
  const { name } = JSON.parse(data);
  place.passed++;
  if (joined) place.members.add(name);
  else place.members.delete(name);
  showPeople();
  // Old joins and leaves are not shown.
  const recent = Date.now() - time < 60_000;
  if (recent && name !== kept.name) add(line('notice', joined ? texts.joined(name) : texts.left(name)));
}

function say(text) {
  const nonce = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 10)}`;
  const { stream, unsent } = place;
  const element = message(kept.name, text, new Date(), true);
  element.classList.add('unsent');
  unsent.set(nonce, { element, sent: performance.now() });
  add(element, true);
  const body = JSON.stringify({ name: kept.name, text, nonce });
  stream.publish(body, { type: 'application/json' }).catch((error) => {
    element.querySelector('time').textContent = `${texts.failed} (${error.status || '–'})`;
  });
}

function message(name, text, time, mine) {
  const element = part('li', mine ? 'message mine' : 'message');
  const bubble = part('div', 'bubble');
  const clock = part('time', '', time.toLocaleTimeString(document.documentElement.lang, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }));
  clock.dateTime = time.toISOString();
  bubble.append(...linked(text), clock);
  element.append(face(name), part('div', 'who', name), bubble);
  return Object.assign(element, { name, time });
}

/** Text, with its URLs as links. */
function linked(text) {
  return text.split(/(https?:\/\/[^\s<>"']+[^\s<>"'.,;:!?)])/).map((piece, at) => {
    if (at % 2 === 0) return piece;
    const link = part('a', '', piece);
    Object.assign(link, { href: piece, target: '_blank', rel: 'noopener noreferrer' });
    return link;
  });
}

/** Adds a line to the log. Undelivered messages stay at the end, because they have no position yet. */
function add(element, jump = false) {
  const low = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  const heard = element.matches('.message:not(.unsent)');
  const below = element.matches('.unsent') ? null : log.querySelector('.unsent');
  log.querySelector('.empty')?.remove();
  if (heard) {
    const before = [...log.children].findLast((one) => !one.matches('.unsent'));
    const day = dayOf(element.time);
    if (day !== (before?.time ? dayOf(before.time) : dayOf(new Date()))) log.insertBefore(line('day', day), below);
    else if (before?.name === element.name && element.time - before.time < TOGETHER_MS) element.classList.add('more');
  }
  log.insertBefore(element, below);
  while (log.children.length > LINES_MAX) log.firstElementChild.remove();
  if (low || jump) log.scrollTop = log.scrollHeight;
  else if (heard) unread++;
  if (document.hidden && heard) document.title = `● ${place.room} · ${texts.title}`;
  showNewer();
}

function dayOf(time) {
  return time.toLocaleDateString(document.documentElement.lang, { dateStyle: 'full' });
}

/* Display */

function part(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const line = (className, text) => part('li', className, text);

function face(name) {
  const element = part('span', 'face', [...name][0]?.toUpperCase() ?? '?');
  let hue = 0;
  for (const char of name) hue = (hue * 31 + char.codePointAt(0)) % 360;
  element.style.setProperty('--hue', hue);
  element.ariaHidden = 'true';
  return element;
}

function emptiness() {
  const element = line('empty', texts.empty);
  element.append(document.createElement('br'), part('code', '', `curl -d hello ${location.origin}${CHANNELS}${channelOf(place.room)}`));
  return element;
}

function showState(state, transport) {
  const status = at('status');
  status.className = state;
  status.dataset.state = state;
  status.dataset.transport = transport;
  at('state').textContent = texts[state];
  at('transport').textContent = state === 'open' ? texts[transport] : '';
  at('latency').hidden = at('here').hidden = state !== 'open';
}

function showLatency(ms) {
  at('latency').textContent = texts.ms(ms < 10 ? ms.toFixed(1) : Math.round(ms));
}

function showPeople() {
  const names = [...place.members].sort((a, b) => a.localeCompare(b));
  const count = names.length || place.subscribers;
  at('people').replaceChildren(...names.map((name) => {
    const element = part('li');
    element.append(face(name), part('span', '', name));
    if (name === kept.name) element.append(part('span', 'you', texts.you));
    return element;
  }));
  at('people-count').textContent = count || '';
  at('here').textContent = count ? texts.here(count) : '';
}

function showRooms() {
  const rooms = [...new Set([...ROOMS, ...kept.rooms, place.room])];
  at('room').textContent = place.room;
  at('rooms').replaceChildren(...rooms.map((room) => {
    const link = part('a', '', room);
    link.href = `#${encodeURIComponent(room)}`;
    if (room === place.room) link.ariaCurrent = 'page';
    const element = part('li');
    element.append(link);
    return element;
  }));
}

function showNewer() {
  at('newer').hidden = unread === 0;
  at('newer').textContent = texts.newer(unread);
}

function speak(language) {
  kept.language = language;
  texts = TEXTS[language];
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll('[data-t]')) element.textContent = texts[element.dataset.t];
  for (const element of document.querySelectorAll('[data-t-placeholder]')) element.placeholder = texts[element.dataset.tPlaceholder];
  for (const element of document.querySelectorAll('[data-t-label]')) element.ariaLabel = texts[element.dataset.tLabel];
  at('language').textContent = texts.other;
}

function openSide(open) {
  document.body.classList.toggle('side', open);
  at('menu').ariaExpanded = String(open);
}

/* Input */

at('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const box = at('text');
  const text = box.value.trim();
  box.value = '';
  box.style.height = '';
  box.focus();
  if (text) say(text);
});

at('text').addEventListener('keydown', (event) => {
  // An Enter that ends a composition of kana does not send.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  at('composer').requestSubmit();
});

at('text').addEventListener('input', ({ target }) => {
  target.style.height = '';
  target.style.height = `${target.scrollHeight + 2}px`;
});

at('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const room = at('room-name').value.trim().replaceAll('/', ' ');
  at('room-name').value = '';
  if (!room) return;
  kept.rooms = [...new Set([...kept.rooms, room])];
  location.hash = encodeURIComponent(room);
});

at('name').addEventListener('change', ({ target }) => {
  const name = target.value.trim();
  if (name && name !== kept.name) {
    kept.name = name;
    enter(place.room);
  }
  target.value = kept.name;
});

at('poll').addEventListener('change', ({ target }) => {
  kept.poll = target.checked;
  enter(place.room);
});

at('language').addEventListener('click', () => {
  speak(document.documentElement.lang === 'ja' ? 'en' : 'ja');
  enter(place.room);
});

at('menu').addEventListener('click', () => openSide(!document.body.classList.contains('side')));
at('veil').addEventListener('click', () => openSide(false));
addEventListener('keydown', ({ key }) => key === 'Escape' && openSide(false));
addEventListener('hashchange', () => {
  openSide(false);
  enter(roomOfAddress());
});

at('newer').addEventListener('click', () => (log.scrollTop = log.scrollHeight));
log.addEventListener('scroll', () => {
  if (log.scrollHeight - log.scrollTop - log.clientHeight > 80) return;
  unread = 0;
  showNewer();
});
document.addEventListener('visibilitychange', () => document.hidden || (document.title = `${place.room} · ${texts.title}`));

function recall(key) {
  try {
    return localStorage.getItem(`chat.${key}`);
  } catch {
    return notes[key] ?? null;
  }
}

function keep(key, value) {
  notes[key] = value;
  try {
    localStorage.setItem(`chat.${key}`, value);
  } catch {
    // Stored only until the page closes.
  }
}

speak(kept.language in TEXTS ? kept.language : 'en');
at('name').value = kept.name;
at('poll').checked = kept.poll;
enter(roomOfAddress());
