/** The session: log-in, log-out, role. */

import { ApiError, get, send, useSession } from './api';

export interface Session {
  user: string;
  role: 'view' | 'admin';
  csrf: string;
  ends_ms: number;
}

interface SessionState {
  /** `null`: the log-in page is shown. The hash stays, so that the page appears again after the log-in. */
  session: Session | null;
  /** The reason of the log-in page. */
  reason: 'none' | 'expired' | 'token' | 'ended';
  /** An error other than a missing log-in, for example an unreachable server. */
  error: ApiError | null;
}

export const state: SessionState = $state({ session: null, reason: 'none', error: null });

/** Whether this user may change anything. */
export const isAdmin = (): boolean => state.session?.role === 'admin';

/** Exchanges the one-time token in the address (`#login=TOKEN`), or reads the session of the cookie. */
export async function start(): Promise<void> {
  const token = /^#login=(.+)$/.exec(location.hash)?.[1];
  if (token === undefined) return refresh();
  // The token must not stay in the address bar and in the history, even if the exchange fails.
  history.replaceState(null, '', location.pathname + location.search);
  try {
    await logIn({ token: decodeURIComponent(token) });
  } catch (error) {
    await refresh();
    if (state.session) return;
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) state.reason = 'token';
    else state.error = asApiError(error);
  }
}

/** Reads the session again. */
export async function refresh(): Promise<void> {
  try {
    const { data } = await get<Session | { role: null }>('/session');
    if (data.role === null) leave(state.session ? 'ended' : 'none');
    else enter(data);
  } catch (error) {
    state.error = asApiError(error);
  }
}

/** Logs in with a one-time token, or with user and password. */
export async function logIn(credentials: { token: string } | { user: string; password: string }): Promise<void> {
  enter((await send<Session>('POST', '/session', credentials)).data);
}

/** Ends the session on the server. */
export async function logOut(): Promise<void> {
  await send('DELETE', '/session');
  leave('none');
}

function enter(session: Session): void {
  state.session = session;
  state.reason = 'none';
  state.error = null;
  useSession(session.csrf, () => leave('ended'));
}

function leave(reason: SessionState['reason']): void {
  state.session = null;
  state.reason = reason;
  state.error = null;
  useSession('', () => {});
}

/** Wraps exceptions of other kinds, so that an error box can show them. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, { type: 'about:blank', title: 'page', status: 0, detail: String(error) });
}
