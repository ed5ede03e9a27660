/**
 * Publishing: a POST that is repeated until it is known to have arrived, and arrives once.
 *
 * Each message has a key that the server remembers for two minutes, so that a repeat after a lost answer is no second
 * message. One outbox sends one message after another: what was published first is published first.
 */

import type { TokenSource } from './line.js';
import { addressOf, endOf, fieldsOf, type World } from './transports.js';
import { isRecord, parsed } from './wire.js';

/** What a message may have beside its data. */
export interface PublishOptions {
  /** Which of the channels; by default the first one subscribed to. */
  channel?: string;
  /** A name for readers to tell messages apart. Those that begin with `encke.` are the server's. */
  event?: string;
  /** Its media type; by default text, bytes, or what the Blob says. */
  type?: string;
  /** Publishing the same key again within two minutes is no second message. By default a new one each time. */
  key?: string;
}

/** A published message. */
export interface Published {
  /** Empty if the server has taken it and will only later give it its place: in a cluster that cannot be reached. */
  id: string;
  /** How many were there to receive it, as far as the answering server knows. */
  subscribers: number;
}

/** The server does not take this message, or could not be reached for too long. */
export class PublishError extends Error {
  constructor(
    /** What the server answered; 0: nothing. */
    readonly status: number,
    text: string,
  ) {
    super(text);
    this.name = 'PublishError';
  }
}

export type Payload = string | Blob | ArrayBuffer | ArrayBufferView<ArrayBuffer>;

/** A server remembers keys for 120 s; a repeat that may take 15 s must begin 5 s before that less 15. */
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

  /** Publishes after everything before it has been. */
  publish(channel: string, data: Payload, options: PublishOptions): Promise<Published> {
    const published = this.last.then(() => this.deliver(channel, data, options));
    this.last = published.catch(() => {});
    return published;
  }

  /** The network is back. */
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

  /** A key that nobody else will choose: 52 bits of chance, and a count. */
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
