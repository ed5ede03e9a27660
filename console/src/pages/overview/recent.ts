/** The figures of the last five minutes (each second) and of the last hour (each 10 s): rings of fixed lengths. */

import { SERIES, type Figures, type History, type Overview, type SeriesName } from '../../lib/overview';

/** A sequence of samples, oldest first. */
export interface Samples {
  /** Unix seconds. */
  times: number[];
  values: Record<SeriesName, (number | null)[]>;
}

const SECONDS_MAX = 300;
const STEPS_MAX = 360;
/** The largest value of an interval stands for it, instead of the mean. */
const PEAKS: ReadonlySet<SeriesName> = new Set(['latency_max', 'latency_p99', 'fanout_p99', 'busy_ratio']);

export const emptySamples = (): Samples => ({
  times: [],
  values: Object.fromEntries(SERIES.map((name) => [name, []])) as unknown as Samples['values'],
});

/** Appends a sample and drops the oldest one if there are more than `max`. */
function push(samples: Samples, time: number, figures: Figures, max: number): void {
  samples.times.push(time);
  for (const name of SERIES) samples.values[name].push(figures[name] ?? null);
  if (samples.times.length <= max) return;
  samples.times.shift();
  for (const name of SERIES) samples.values[name].shift();
}

/** The samples of a response of `/history`; at most the newest `max`. */
export function samplesOf(history: History, max = Infinity): Samples {
  const samples = emptySamples();
  // A server without samples yet has no end.
  if (!(history.end_ms > 0)) return samples;
  const length = Math.max(0, ...SERIES.map((name) => history.series[name]?.length ?? 0));
  const first = Math.max(0, length - max);
  for (let i = first; i < length; i++) samples.times.push(history.end_ms / 1000 - (length - 1 - i) * history.step_s);
  for (const name of SERIES) {
    const values = history.series[name];
    samples.values[name] = samples.times.map((_, i) => values?.[first + i] ?? null);
  }
  return samples;
}

export class Recent {
  seconds = emptySamples();
  steps = emptySamples();
  #stepS = 10;
  /** The overviews since the last step. */
  #pending: Figures[] = [];

  /** Starts again from the server's history: when the page opens, and after a gap. */
  load(history: History): void {
    this.#stepS = history.step_s;
    this.steps = samplesOf(history, STEPS_MAX);
    this.#pending = [];
    // Where there is no live sample, the last five minutes have one sample in 10 s.
    const live = this.seconds;
    const from = Math.max(history.end_ms / 1000, live.times.at(-1) ?? 0) - SECONDS_MAX;
    const gaps = this.steps.times.flatMap((time, i) =>
      time >= from && !live.times.some((other) => Math.abs(other - time) < history.step_s) ? [{ time, figures: at(this.steps, i) }] : [],
    );
    const kept = live.times.map((time, i) => ({ time, figures: at(live, i) })).filter(({ time }) => time >= from);
    this.seconds = emptySamples();
    for (const { time, figures } of [...gaps, ...kept].sort((a, b) => a.time - b.time)) push(this.seconds, time, figures, SECONDS_MAX);
  }

  /** Returns whether the hour has a new step. */
  add(overview: Overview): boolean {
    const time = overview.time_ms / 1000;
    if (time <= (this.seconds.times.at(-1) ?? 0)) return false;
    push(this.seconds, time, overview.figures, SECONDS_MAX);
    while ((this.seconds.times[0] ?? time) < time - SECONDS_MAX) {
      this.seconds.times.shift();
      for (const name of SERIES) this.seconds.values[name].shift();
    }
    this.#pending.push(overview.figures);
    const last = this.steps.times.at(-1);
    if (last !== undefined && time < last + this.#stepS) return false;
    // After a gap the steps start again from now.
    const end = last !== undefined && time < last + 2 * this.#stepS ? last + this.#stepS : time;
    push(this.steps, end, merge(this.#pending), STEPS_MAX);
    this.#pending = [];
    return true;
  }
}

const at = (samples: Samples, i: number): Figures => Object.fromEntries(SERIES.map((name) => [name, samples.values[name][i] ?? null]));

function merge(figures: Figures[]): Figures {
  const merged: Figures = {};
  for (const name of SERIES) {
    const values = figures.map((each) => each[name]).filter((value): value is number => typeof value === 'number');
    if (values.length === 0) merged[name] = null;
    else if (PEAKS.has(name)) merged[name] = Math.max(...values);
    else merged[name] = values.reduce((sum, value) => sum + value, 0) / values.length;
  }
  return merged;
}

/** The mean of a series' newest `count` values; `null` if all are unknown. */
export function mean(values: (number | null)[], count: number): number | null {
  const known = values.slice(-count).filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

/** The median of a series; `null` if all values are unknown. */
export function median(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  return known[known.length >> 1] ?? null;
}
