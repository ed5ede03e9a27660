/**
 * The wire format: envelopes, event streams, ids. Pure functions and one parser, without I/O and clock.
 *
 * Every transport carries the same envelope:
 *   {"id","channel","event","type","time","data"}   data64 instead of data when the payload is not UTF-8
 */

/** A message. */
export interface Message {
  /** The position in the stream; `since` with this id resumes after the message. */
  id: string;
  channel: string;
  /** The event name. Names that begin with `encke.` come from the server. */
  event?: string;
  /** The media type. */
  type?: string;
  /** The time of publication. */
  time?: Date;
  /** Text, or bytes if it is not UTF-8. */
  data: string | Uint8Array;
}

/** Published messages that are lost. */
export interface Gap {
  /** The last id before the gap. */
  from: string;
  /** The last lost id: messages after it are complete. */
  to: string;
  /** The server's keyword for the reason. */
  reason?: string;
}

/** A unit of a stream. */
export type Word =
  | { kind: 'message'; message: Message }
  | { kind: 'gap'; gap: Gap }
  /** The position of the stream, without a message. */
  | { kind: 'position'; id: string }
  /** A response to a command on a WebSocket. */
  | { kind: 'answer'; id?: string; status?: number; text?: string };

/** Reads an envelope that was parsed from JSON. Returns `undefined`, which callers skip, if it is not one. */
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

/** Reads an event of an event stream of envelopes. */
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

/** Parses a JSON text. Returns `undefined` if it is invalid. */
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
 * Returns the distance by which an id is ahead of another. An id of another epoch is infinitely far ahead.
 *
 * An id has the form `EPOCH-OFFSET`, comma-joined for several streams; offsets grow within an epoch. Ids are opaque to
 * programs, but this client ships with the server.
 */
export function ahead(id: string, of: string): number {
  const others = new Map(of.split(',').map(partsOf));
  const leads = id.split(',').map((position) => {
    const [epoch, offset] = partsOf(position);
    return offset - (others.get(epoch) ?? -Infinity);
  });
  return Math.max(...leads);
}

/** Whether a start position is an id, not a keyword such as `now`, `last:5` or `10m`. */
export function isId(since: string): boolean {
  return /-\d+$/.test(since);
}

function partsOf(id: string): [epoch: string, offset: number] {
  const dash = id.lastIndexOf('-');
  return [id.slice(0, dash), Number(id.slice(dash + 1))];
}

/** An event of an event stream. `data` is missing if only a position (`id:`) was sent. */
export interface StreamEvent {
  id?: string;
  event?: string;
  data?: string;
}

/**
 * Parses text/event-stream (WHATWG HTML, 9.2.6) in pieces of any size.
 *
 * Unlike EventSource the parser also reports blocks without data if they have an id, by which the server sends its position.
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
    // A line ends with LF, CR or both. The LF of "both" may arrive in the piece after the one that ended the line.
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
