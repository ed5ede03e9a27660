/**
 * Publishing: a POST that is retried until it is known to have succeeded, without duplicates.
 *
 * Each message has a key that the server remembers for two minutes, so that a retry after a lost response publishes nothing. An
 * outbox sends one message at a time, in the order of the calls.
 */

import type { TokenSource } from './line.js';
import { addressOf, endOf, fieldsOf, type World } from './transports.js';
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

export type Payload = string | Blob | ArrayBuffer | ArrayBufferView<ArrayBuffer>;

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
    private readonly token: TokenSource,
  ) {}

  /** Publishes after all earlier messages. */
  publish(channel: string, data: Payload, options: PublishOptions): Promise<Published> {
    const published = this.last.then(() => this.deliver(channel, data, options));
    this.last = published.catch(() => {});
    return published;
  }

  /** Ends the wait before a retry: the network is back. */
  wake(): void {
    this.endPause();
  }

  private async deliver(channel: string, data: Payload, options: PublishOptions): Promise<Published> {
    const key = options.key ?? this.newKey();
    const since = this.world.now();
    let refused = false;
    for (let failures = 0; ; ) {
      const answer = await this.send(channel, data, { ...options, key }, refused).catch(() => undefined);
      if (answer?.ok) {
        const body = parsed(await answer.text().catch(() => ''));
        if (isRecord(body)) return { id: String(body['id'] ?? ''), subscribers: Number(body['subscribers'] ?? 0) };
      }
      const end = answer && endOf(answer.clone());
      if (answer && end?.why === 'token' && !refused) {
        refused = true;
        continue;
      }
      const late = this.world.now() - since > REPEAT_MS;
      if (answer && (end?.why !== 'over' || late)) throw await failureOf(answer);
      if (late) throw new PublishError(0, 'no answer: the server cannot be reached');
      const wish = end?.why === 'over' ? end.retryMs : undefined;
      await this.pause(wish ?? Math.min(RETRY_MS * 2 ** failures++, RETRY_MS_MAX) * (0.5 + this.world.random()));
    }
  }

  private async send(channel: string, data: Payload, options: PublishOptions, fresh: boolean): Promise<Response> {
    const fields = fieldsOf('application/json', await this.token(fresh));
    fields['idempotency-key'] = options.key ?? '';
    const type = options.type ?? (typeof data === 'string' ? 'text/plain;charset=utf-8' : '');
    if (type) fields['content-type'] = type;
    if (options.event) fields['encke-event'] = options.event;
    const abort = new AbortController();
    const forget = this.world.later(ANSWER_MS, () => abort.abort());
    const { signal } = abort;
    const url = addressOf(this.url, [channel], {});
    return this.world.fetch(url, { method: 'POST', headers: fields, body: data, signal }).finally(forget);
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

async function failureOf(answer: Response): Promise<PublishError> {
  const said = (await answer.text().catch(() => '')).trim().slice(0, 200);
  return new PublishError(answer.status, said || `refused with ${answer.status}`);
}
