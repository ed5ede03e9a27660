/**
 * Publishing: a POST that is retried until it is known to have succeeded, without duplicates.
 *
 * Each message has a key that the server remembers for two minutes, so that a retry after a lost response publishes nothing. An
 * outbox sends one message at a time, in the order of the calls.
 */

import type { TokenSource } from './line.js';
import { addressOf, endOf, fieldsOf, textOf, wishOf, type World } from './transports.js';
import { isRecord, parsed } from './wire.js';

/** Optional properties of a message. */
export interface PublishOptions {
  /** The channel; by default the first one subscribed to. */
  channel?: string;
  /** The event name, by which readers distinguish messages. Names that begin with `encke.` are reserved for the server. */
  event?: string;
  /** The media type; by default text, bytes, or that of the Blob. */
  type?: string;
  /** The idempotency key: the server ignores a repeated key within two minutes. By default a new one for each message. */
  key?: string;
}

const PUBLISH_OPTIONS: Record<keyof PublishOptions, true> = { channel: true, event: true, type: true, key: true };

/** A published message. */
export interface Published {
  /** Empty if the server has queued the message and assigns its id later: in a cluster that cannot be reached. */
  id: string;
  /** Number of subscribers, as far as the responding server knows. */
  subscribers: number;
}

/** The server rejected the message, or could not be reached for too long. */
export class PublishError extends Error {
  constructor(
    /** The status of the response, or 0 without a response. */
    readonly status: number,
    text: string,
  ) {
    super(text);
    this.name = 'PublishError';
  }
}

/** Text, bytes (Blob, ArrayBuffer, typed array), or a value that is sent as JSON: an object, list, number, boolean or null. */
export type Payload = string | number | boolean | null | object;

/** A message to publish. */
interface PublishRequest extends Content {
  channel: string;
  options: PublishOptions;
  token: TokenSource;
}

interface Content {
  body: BodyInit;
  /** The media type; empty for bytes, whose type the browser knows. */
  type: string;
}

/** A server remembers keys for 120 s. A retry may take 15 s, and another 5 s are a margin. */
const REPEAT_MS = 100_000;
const ANSWER_MS = 15_000;
const RETRY_MS = 500;
const RETRY_MS_MAX = 8_000;

export class Outbox {
  private last: Promise<unknown> = Promise.resolve();
  private endPause: () => void = () => {};
  private count = 0;

  constructor(
    private readonly world: World,
    private readonly url: string,
  ) {}

  /** Publishes after all earlier messages. The payload is read at once: an object may change later. */
  publish(channel: string, data: Payload, options: PublishOptions, token: TokenSource): Promise<Published> {
    const unknown = unknownOption('publish', options, PUBLISH_OPTIONS);
    if (unknown) return Promise.reject(unknown);
    const content = contentOf(data);
    if (content instanceof TypeError) return Promise.reject(content);
    const request: PublishRequest = { channel, ...content, options: { ...options, key: options.key ?? this.newKey() }, token };
    const published = this.last.then(() => this.deliver(request));
    this.last = published.catch(() => {});
    return published;
  }

  /** Ends the wait before a retry: the network is back. */
  wake(): void {
    this.endPause();
  }

  private async deliver(request: PublishRequest): Promise<Published> {
    const since = this.world.now();
    let refused = false;
    for (let failures = 0; ; ) {
      const answer = await this.send(request, refused).catch(() => undefined);
      if (answer?.ok) {
        const body = parsed(await answer.text().catch(() => ''));
        if (isRecord(body)) return { id: String(body['id'] ?? ''), subscribers: Number(body['subscribers'] ?? 0) };
      }
      const end = answer && (await endOf(answer.bodyUsed ? answer : answer.clone()));
      if (answer && end?.why === 'token' && !refused) {
        refused = true;
        continue;
      }
      const late = this.world.now() - since > REPEAT_MS;
      if (answer && (end?.why !== 'over' || late)) throw await failureOf(answer);
      if (late) throw new PublishError(0, 'no answer: the server cannot be reached');
      const wish = end?.why === 'over' ? wishOf(end.retryMs, failures) : undefined;
      const grown = Math.min(RETRY_MS * 2 ** failures++, RETRY_MS_MAX);
      await this.pause(wish ?? grown * (0.5 + this.world.random()));
    }
  }

  private async send({ channel, body, type, options, token }: PublishRequest, fresh: boolean): Promise<Response> {
    const fields = fieldsOf('application/json', await token(fresh));
    fields['idempotency-key'] = options.key ?? '';
    if (options.type ?? type) fields['content-type'] = options.type ?? type;
    if (options.event) fields['encke-event'] = options.event;
    const abort = new AbortController();
    const forget = this.world.later(ANSWER_MS, () => abort.abort());
    const { signal } = abort;
    const url = addressOf(this.url, [channel], {});
    return this.world.fetch(url, { method: 'POST', headers: fields, body, signal }).finally(forget);
  }

  /** Returns a unique key: 52 random bits, and a count. */
  private newKey(): string {
    return `${this.world.random().toString(36).slice(2)}-${this.count++}`;
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const forget = this.world.later(ms, resolve);
      this.endPause = () => {
        forget();
        resolve();
      };
    });
  }
}

/** Returns an error for the first option that a function does not have: a misspelled name would be ignored. */
export function unknownOption(of: string, options: object, known: object): TypeError | undefined {
  const name = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  return name === undefined ? undefined : new TypeError(`${of}: unknown option "${name}": expected ${Object.keys(known).join(', ')}`);
}

function contentOf(data: Payload): Content | TypeError {
  if (typeof data === 'string') return { body: data, type: 'text/plain;charset=utf-8' };
  if (data instanceof Blob || data instanceof ArrayBuffer) return { body: data, type: '' };
  if (ArrayBuffer.isView(data)) return { body: data as ArrayBufferView<ArrayBuffer>, type: '' };
  // JSON.stringify makes `{}` of a Map, a FormData, or a promise that was not awaited.
  const kind = Object.prototype.toString.call(data).slice(8, -1);
  const json = /^(Object|Array|Number|Boolean|Null|Date)$/.test(kind) ? JSON.stringify(data) : undefined;
  if (json === undefined) return new TypeError(`publish: cannot send a value of type ${kind}: expected text, bytes, or a value for JSON`);
  return { body: json, type: 'application/json' };
}

async function failureOf(answer: Response): Promise<PublishError> {
  return new PublishError(answer.status, (await textOf(answer)) || `refused with ${answer.status}`);
}
