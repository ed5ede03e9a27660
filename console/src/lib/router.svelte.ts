/** Hash routes: `#/connections?sort=-age_s`. */

export interface Route {
  page: string;
  query: URLSearchParams;
}

const route = $state<{ now: Route }>({ now: parse(location.hash) });
addEventListener('hashchange', () => {
  route.now = parse(location.hash);
});

/** The current route. */
export const current = (): Route => route.now;

/** The address of a page, for `href`. Empty values are left out. */
export function href(page: string, query: Record<string, string | number | null | undefined> = {}): string {
  const text = encode(query);
  return `#/${page}${text ? `?${text}` : ''}`;
}

/** Opens a page. */
export function go(page: string, query: Record<string, string | number | null | undefined> = {}): void {
  location.hash = href(page, query);
}

/** Changes the query of the current page without a new entry in the history. `null` removes a parameter. */
export function setQuery(change: Record<string, string | number | null | undefined>): void {
  const query = Object.fromEntries(route.now.query);
  const text = encode({ ...query, ...change });
  history.replaceState(null, '', `#/${route.now.page}${text ? `?${text}` : ''}`);
  route.now = parse(location.hash);
}

function encode(query: Record<string, string | number | null | undefined>): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') text.set(name, String(value));
  }
  return text.toString();
}

function parse(hash: string): Route {
  const [, page = '', query = ''] = /^#\/([^?]*)\??(.*)$/.exec(hash) ?? [];
  return { page: page || 'overview', query: new URLSearchParams(query) };
}
