/** The resources `/overview` and `/history`. */

/** The series of the contract; `null`: unknown on this system. */
export const SERIES = [
  'requests', 'bytes_out', 'bytes_in', 'latency_p50', 'latency_p90', 'latency_p99', 'latency_max',
  'connections', 'connections_idle', 'connections_active', 'connections_streaming', 'accepts',
  'subscribers', 'publishes', 'deliveries', 'fanout_p50', 'fanout_p99', 'errors_4xx', 'errors_5xx', 'refusals',
  'cpu_ratio', 'busy_ratio', 'resident_bytes', 'connection_bytes', 'kernel_bytes', 'descriptors', 'descriptors_free',
  'listen_drops', 'upstream_requests', 'upstream_failures', 'upstream_waiting',
] as const;
export type SeriesName = (typeof SERIES)[number];
export type Figures = Partial<Record<SeriesName, number | null>>;

export interface WorkerLoad {
  number: number;
  cpu_ratio: number | null;
  busy_ratio: number | null;
  connections: number;
}
export interface Refusal {
  reason: string;
  metric: string;
  count: number;
  rate: number;
}
export interface Certificate {
  name: string;
  expires_ms: number | null;
}
export interface Overview {
  time_ms: number;
  version: string;
  state: string;
  pid: number;
  started_s: number;
  backend: string;
  workers: WorkerLoad[];
  figures: Figures;
  refusals: Refusal[];
  certificates: Certificate[];
  warnings: string[];
  connections_limit?: number;
}
export interface History {
  step_s: number;
  end_ms: number;
  series: Partial<Record<SeriesName, (number | null)[]>>;
}
