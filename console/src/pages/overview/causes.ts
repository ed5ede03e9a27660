/** What is wrong, in words: the rules of the overview's first panel. */

import { latency, known, number, percent, rate, relative, t } from '../../lib/i18n.svelte';
import type { Overview } from '../../lib/overview';
import { href } from '../../lib/router.svelte';
import { mean, median, type Recent } from './recent';

export interface Cause {
  /** The rule, and what it is about. */
  id: string;
  level: 'bad' | 'warn';
  text: string;
  /** What helps, or the source of the cause. */
  more?: string;
  href?: string;
}

/** A row of the list `gateway`. */
export interface Target {
  upstream: string;
  target: string;
  state: string;
}

/** Rates are means of this number of seconds, so that one bad second does not come and go. */
const WINDOW_S = 10;
/** Failed requests: from this share on, and from this rate on. */
const FAILED = { ratio: 0.01, rate: 0.1 };
const FAILED_BAD = 0.05;
/** The rate of refusals from which on they are reported, per second. */
const REFUSED_RATE = 1;
const CERTIFICATE_WARN_MS = 14 * 86_400_000;
const CERTIFICATE_BAD_MS = 3 * 86_400_000;
/** Of descriptors, of connections, and of a worker's time. */
const NEARLY_FULL = { warn: 0.8, bad: 0.92 };
const BUSY = { warn: 0.85, bad: 0.95 };
/** The 99th percentile against its median of the hour; small latencies vary. */
const SLOW = { times: 5, atLeast: 0.05, samples: 60 };

/** The share of requests that fail: of the same window wherever it is shown. */
export function failedShare(recent: Recent): number {
  const now = (name: 'requests' | 'errors_5xx'): number => mean(recent.seconds.values[name], WINDOW_S) ?? 0;
  const failed = now('errors_5xx');
  return failed / Math.max(1e-9, failed, now('requests'));
}

export function causes(overview: Overview, recent: Recent, targets: Target[], nowMs: number): Cause[] {
  const found: Cause[] = [];
  const values = recent.seconds.values;
  const now = (name: keyof typeof values): number => mean(values[name], WINDOW_S) ?? 0;

  if (overview.state !== 'serving') {
    found.push({ id: 'state', level: 'bad', text: t('overview.cause.state', { state: stateText(overview.state) }) });
  }

  const [requests, failed] = [now('requests'), now('errors_5xx')];
  const upstreamFailures = now('upstream_failures');
  const down = targets.filter(({ state }) => state !== 'up' && state !== 'slow start' && state !== 'drained');
  const topFailure = (overview.refusals ?? []).filter(({ metric, rate }) => metric.startsWith('encke_gateway') && rate > 0).sort((a, b) => b.rate - a.rate)[0];
  const why =
    down.length > 0
      ? down.slice(0, 3).map(({ upstream, target, state }) => t('overview.cause.target', { target: upstream === target ? target : `${upstream}, ${target}`, state: known(`overview.target.${state.replaceAll(' ', '_')}`, state) })).join(' ')
      : topFailure ? reasonText(topFailure.reason) : undefined;
  if (failed >= FAILED.rate && failed >= requests * FAILED.ratio) {
    const ratio = failedShare(recent);
    const byUpstream = upstreamFailures > failed / 2;
    found.push({
      id: 'failed',
      level: ratio >= FAILED_BAD ? 'bad' : 'warn',
      text: t(byUpstream ? 'overview.cause.failed_upstream' : 'overview.cause.failed', { percent: percent(ratio, ratio < 0.1 ? 1 : 0) }),
      more: byUpstream ? why : undefined,
      href: byUpstream ? href('upstreams') : href('log', { status: 5 }),
    });
  } else if (upstreamFailures >= FAILED.rate) {
    found.push({ id: 'upstream', level: 'warn', text: t('overview.cause.upstream', { rate: rate(upstreamFailures) }), more: why, href: href('upstreams') });
  } else if (down.length > 0) {
    found.push({ id: 'target', level: 'warn', text: t('overview.cause.targets', { n: down.length }), more: why, href: href('upstreams') });
  }
  const waiting = now('upstream_waiting');
  if (waiting >= 1) found.push({ id: 'waiting', level: 'warn', text: t('overview.cause.waiting', { n: Math.round(waiting) }), href: href('upstreams') });

  const drops = now('listen_drops');
  if (drops > 0) found.push({ id: 'drops', level: 'bad', text: t('overview.cause.drops', { rate: rate(drops) }), more: t('overview.cause.drops_more') });

  const [used, free] = [overview.figures.descriptors, overview.figures.descriptors_free];
  if (typeof used === 'number' && typeof free === 'number') full('descriptors', used / (used + free));
  const limit = overview.connections_limit;
  if (limit && typeof overview.figures.connections === 'number') full('connections', overview.figures.connections / limit);
  function full(what: 'descriptors' | 'connections', ratio: number): void {
    if (!(ratio >= NEARLY_FULL.warn)) return;
    found.push({
      id: what,
      level: ratio >= NEARLY_FULL.bad ? 'bad' : 'warn',
      text: t(`overview.cause.${what}`, { percent: percent(ratio) }),
      more: t(`overview.cause.${what}_more`),
    });
  }

  for (const { number: worker, busy_ratio: busy } of overview.workers ?? []) {
    if (busy === null || busy < BUSY.warn) continue;
    found.push({ id: `busy ${worker}`, level: busy >= BUSY.bad ? 'bad' : 'warn', text: t('overview.cause.busy', { worker: String(worker), percent: percent(Math.min(1, busy)) }) });
  }

  for (const certificate of overview.certificates ?? []) {
    const { name, expires_ms: expires } = certificate;
    if (expires === null || expires - nowMs > CERTIFICATE_WARN_MS) continue;
    const when = relative(expires, nowMs);
    found.push({
      id: `certificate ${name}`,
      level: expires - nowMs < CERTIFICATE_BAD_MS ? 'bad' : 'warn',
      text: t(expires < nowMs ? 'overview.cause.expired' : 'overview.cause.expires', { name, when }),
    });
  }

  const usual = recent.steps.times.length >= SLOW.samples ? median(recent.steps.values.latency_p99) : null;
  const p99 = mean(values.latency_p99, WINDOW_S);
  if (usual !== null && p99 !== null && p99 >= SLOW.atLeast && p99 >= usual * SLOW.times) {
    found.push({ id: 'slow', level: 'warn', text: t('overview.cause.slow', { p99: latency(p99), usual: latency(usual) }), href: href('connections', { sort: '-age_s' }) });
  }

  const refused = (overview.refusals ?? []).filter(({ metric, rate }) => !/^encke_(gateway|listen_drops_total$)/.test(metric) && rate >= REFUSED_RATE);
  // Several metrics may count refusals for one reason.
  const reasons = new Map<string, number>();
  for (const { reason, rate: each } of refused) reasons.set(reasonText(reason), (reasons.get(reasonText(reason)) ?? 0) + each);
  for (const [reason, perSecond] of [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 3)) {
    found.push({ id: `refused ${reason}`, level: 'warn', text: t('overview.cause.refused', { rate: rate(perSecond), reason }) });
  }
  // The server's own warnings repeat, for example one for each attempt.
  for (const text of new Set(overview.warnings ?? [])) found.push({ id: `warning ${text}`, level: 'warn', text, href: href('log', { tab: 'notices' }) });
  // The newest of those that differ in a time only.
  return [...new Map(found.reverse().map((cause) => [cause.text.replace(/[\d.]+ m?s\b/g, ''), cause])).values()].reverse().sort((a, b) => Number(b.level === 'bad') - Number(a.level === 'bad'));
}

export const stateText = (state: string): string => known(`overview.state.${state}`, state);

/** A refusal's label in words. Labels without an entry appear as they are, as in the metrics. */
export const reasonText = (reason: string): string => known(`overview.reason.${reason}`, reason.replaceAll('_', ' '));

/** A number of connections or events for a table. */
export const count = (value: number): string => number(Math.round(value));
