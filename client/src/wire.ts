/**
 * What goes over the wire: envelopes, event streams, ids. Pure functions and one parser; no I/O, no clock.
 *
 * Every transport carries the same envelope:
 *   {"id","channel","event","type","time","data"}   data64 instead of data when the payload is not UTF-8
 */

/** A message as readers get it. */
export interface Message {
  /** Where it stands in the stream; to resume after it, give it as `since`. */
  id: string;
  channel: string;
  /** The name it was published under. Those that begin with `encke.` come from the server. */
  event?: string;
  /** Its media type. */
  type?: string;
  /** When it was published. */
  time?: Date;
  /** Text, or bytes if it is not UTF-8. */
  data: string | Uint8Array;
}

/** Messages that were published and cannot be had any more. */
export interface Gap {
  /** The last id before it. */
  from: string;
  /** What comes after this id is whole again. */
  to: string;
  /** Why, in a word of the server. */
  reason?: string;
}

/** What a server says on a stream. */
export type Word =
  | { kind: 'message'; message: Message }
  | { kind: 'gap'; gap: Gap }
  /** Everything up to here is known; it says nothing else. */
  | { kind: 'position'; id: string }
  /** An answer to something asked on a WebSocket. */
  | { kind: 'answer'; id?: string; status?: number; text?: string };

/** Reads an envelope that has been parsed from JSON; `undefined`: it is none, and is passed over. */
export function wordOf(envelope: unknown): Word | undefined {
  if (!isRecord(envelope)) return undefined;
  switch (envelope['op']) {
    case 'gap':
      return gapOf(envelope);
    case 'ok':
    case 'error':
      return answerOf(envelope);
    case undefined:
    case 'message':
      return messageOf(envelope);
    default:
      return undefined;
  }
}

/** Reads what an event of an event stream says, in a stream of envelopes. */
export function wordOfEvent(event: StreamEvent): Word | undefined {
  if (event.data === undefined) {
    return event.id === undefined ? undefined : { kind: 'position', id: event.id };
  }
  const value = parsed(event.data);
  if (event.event === 'encke.gap') return isRecord(value) ? gapOf(value) : undefined;
  return wordOf(value);
}

function messageOf(envelope: Record<string, unknown>): Word | undefined {
  const id = text(envelope['id']);
  const channel = text(envelope['channel']);
  const data = payloadOf(envelope);
  if (id === undefined || channel === undefined || data === undefined) return undefined;
  const message: Message = { id, channel, data };
  const event = text(envelope['event']);
  const type = text(envelope['type']);
  const time = timeOf(envelope['time']);
  if (event !== undefined) message.event = event;
  if (type !== undefined) message.type = type;
  if (time !== undefined) message.time = time;
  return { kind: 'message', message };
}

function payloadOf(envelope: Record<string, unknown>): string | Uint8Array | undefined {
  const { data, data64 } = envelope;
  if (typeof data64 === 'string') return bytesOf(data64);
  return text(data);
}

function gapOf(envelope: Record<string, unknown>): Word | undefined {
  const from = text(envelope['from']) ?? '';
  const to = text(envelope['to']);
  const reason = text(envelope['reason']);
  if (to === undefined) return undefined;
  return { kind: 'gap', gap: reason === undefined ? { from, to } : { from, to, reason } };
}

function answerOf(envelope: Record<string, unknown>): Word {
  const answer: Word = { kind: 'answer' };
  const id = text(envelope['id']);
  const said = text(envelope['text']);
  if (id !== undefined) answer.id = id;
  if (said !== undefined) answer.text = said;
  if (envelope['op'] === 'error') answer.status = Number(envelope['status']) || 400;
  return answer;
}

function timeOf(value: unknown): Date | undefined {
  if (typeof value !== 'string' && typeof value !== 'number') return undefined;
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? undefined : time;
}

function bytesOf(base64: string): Uint8Array | undefined {
  try {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** The value of a JSON text; `undefined`: it is not JSON. */
export function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * By how much an id is ahead of another; an id of another epoch is ahead by any measure.
 *
 * Ids are `EPOCH-OFFSET`, one for each stream and comma-joined; offsets grow within an epoch. To programs they are opaque;
 * this one ships with the server.
 */
export function ahead(id: string, of: string): number {
  const others = new Map(of.split(',').map(partsOf));
  const leads = id.split(',').map((position) => {
    const [epoch, offset] = partsOf(position);
    return offset - (others.get(epoch) ?? -Infinity);
  });
  return Math.max(...leads);
}

/** Whether a place to begin is an id, not a wish such as `now`, `last:5` or `10m`. */
export function isId(since: string): boolean {
  return /-\d+$/.test(since);
}

function partsOf(id: string): [epoch: string, offset: number] {
  const dash = id.lastIndexOf('-');
  return [id.slice(0, dash), Number(id.slice(dash + 1))];
}

/** An event of an event stream. `data` is missing where only a position (`id:`) was sent. */
export interface StreamEvent {
  id?: string;
  event?: string;
  data?: string;
}

/**
 * Reads text/event-stream (WHATWG HTML, 9.2.6) in whatever pieces it comes.
 *
 * Unlike EventSource it also tells of blocks without data, if they have an id: the server says its position so.
 */
export class EventStream {
  private rest = '';
  private begun = false;
  private afterCr = false;
  private lines: string[] = [];
  private event: string | undefined;
  private id: string | undefined;

  constructor(
    private readonly onEvent: (event: StreamEvent) => void,
    private readonly onRetry: (ms: number) => void,
  ) {}

  push(piece: string): void {
    if (piece === '') return;
    // A line ends with LF, CR or both; the LF of "both" may come a piece later than its line was read.
    const skip = (this.afterCr && piece.startsWith('\n')) || (!this.begun && piece.startsWith('\uFEFF')) ? 1 : 0;
    this.begun = true;
    this.afterCr = piece.endsWith('\r');
    const lines = (this.rest + piece.slice(skip)).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? '';
    for (const line of lines) this.line(line);
  }

  private line(line: string): void {
    if (line === '') return this.dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'data') this.lines.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.onRetry(Number(value));
  }

  private dispatch(): void {
    const event: StreamEvent = {};
    if (this.id !== undefined) event.id = this.id;
    if (this.event) event.event = this.event;
    if (this.lines.length > 0) event.data = this.lines.join('\n');
    this.lines = [];
    this.event = undefined;
    this.id = undefined;
    if (event.id !== undefined || event.data !== undefined) this.onEvent(event);
  }
}
