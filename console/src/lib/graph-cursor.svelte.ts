/** The moment that all graphs of a page show: one object per page, passed to each Graph. */

export class GraphCursor {
  /** Unix seconds; `null`: the newest values. */
  at: number | null = $state(null);
}
