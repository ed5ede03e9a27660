/** Calls of the API under `/api/v1`, relative to the page, so that a proxy may add a prefix. */

import { known } from './i18n.svelte';

/** The code and the parameters of a text of the server. */
export interface Reason {
  code: string;
  params: Record<string, string>;
}

/** One error of a request's field (RFC 9457 `errors`). */
export interface ProblemError {
  pointer: string;
  detail: string;
  reason?: Reason;
}

/** An error report of the server (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail?: string;
  /** The code of `detail`; texts without one exist in English only. */
  reason?: Reason;
  errors?: ProblemError[];
  /** With `/problems/conflict`: the newest version, its user and its time. */
  etag?: string;
  user?: string;
  time_ms?: number;
  [more: string]: unknown;
}

/** A request that failed. `status` 0: no response arrived. */
export class ApiError extends Error {
  readonly status: number;
  readonly problem: Problem;
  /** Seconds after which a retry makes sense (`Retry-After`). */
  readonly retryAfter: number | null;

  constructor(status: number, problem: Problem, retryAfter: number | null = null) {
    super(problem.detail ?? problem.title);
    this.name = 'ApiError';
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

/** A response: its JSON, and the version that a change must name in `If-Match`. */
export interface Answer<T> {
  data: T;
  etag: string | null;
}

export const API = 'api/v1';

let csrf = '';
let onUnauthorized: () => void = () => {};

/** Sets the value of the field `Encke-Csrf`, and the reaction to a session that ended. */
export function useSession(token: string, unauthorized: () => void): void {
  csrf = token;
  onUnauthorized = unauthorized;
}

/** Returns the resource at `path` (without `/api/v1`). Throws {@link ApiError}. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<Answer<T>> {
  return call<T>('GET', path, undefined, undefined, signal);
}

/**
 * Sends a change. `etag`: the version that the change was made for. Throws {@link ApiError}.
 *
 * A response without a body returns `data: null`.
 */
export async function send<T = null>(
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
  etag?: string | null,
): Promise<Answer<T>> {
  return call<T>(method, path, body, etag);
}

async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  etag?: string | null,
  signal?: AbortSignal,
): Promise<Answer<T>> {
  const headers: Record<string, string> = { accept: 'application/json, application/problem+json' };
  if (method !== 'GET' && csrf) headers['encke-csrf'] = csrf;
  if (etag) headers['if-match'] = etag;
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(`${API}${path.startsWith('/') ? path : `/${path}`}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { type: 'about:blank', title: 'unreachable', status: 0 });
  }
  const text = await response.text();
  const data = parse(text);
  if (response.ok) return { data: data as T, etag: response.headers.get('etag') };
  if (response.status === 401 && path !== '/session') onUnauthorized();
  const seconds = Number(response.headers.get('retry-after') ?? NaN);
  throw new ApiError(response.status, problem(response, data, text), Number.isFinite(seconds) ? seconds : null);
}

function parse(text: string): unknown {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A text of the server in the language of the pages, or in English. */
export const spoken = (text: string, reason?: Reason | null): string => (reason ? known(`server.${reason.code}`, text, reason.params) : text);

/** Translates the texts of an error. */
export function translated(problem: Problem): Problem {
  const { detail, reason, errors } = problem;
  return {
    ...problem,
    detail: detail === undefined ? undefined : spoken(detail, reason),
    errors: errors?.map((each) => ({ ...each, detail: spoken(each.detail, each.reason) })),
  };
}

/** Errors without problem details, such as those of a proxy, keep their status and text. */
function problem(response: Response, data: unknown, text: string): Problem {
  if (data !== null && typeof data === 'object' && 'title' in data) return translated(data as Problem);
  return {
    type: 'about:blank',
    title: response.statusText || String(response.status),
    status: response.status,
    detail: text.length > 0 && text.length < 500 && !text.startsWith('<') ? text.trim() : undefined,
  };
}
