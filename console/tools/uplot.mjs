/** Removes parts of uPlot that the console does not use: a fifth of its code. */

/** Each text must occur exactly once, so that a new version of uPlot cannot pass unnoticed. */
const CUTS = [
  // The console draws lines; other kinds of paths are then unreachable.
  ['(paths.stepped = stepped);', ''],
  ['(paths.bars    = bars);', ''],
  ['(paths.spline  = monotoneCubic);', ''],
  // Graph.svelte has a legend of its own.
  ['const showLegend = legend.show;', 'const showLegend = false;'],
  // Functions for other users of the package.
  ['uPlot.join = join;', ''],
  ['uPlot.rangeLog = rangeLog;', ''],
  ['uPlot.rangeAsinh = rangeAsinh;', ''],
];

export function smallUplot() {
  return {
    name: 'small-uplot',
    transform(code, id) {
      if (!id.endsWith('/uPlot.esm.js')) return null;
      let text = code;
      for (const [from, to] of CUTS) {
        const at = text.indexOf(from);
        if (at < 0 || text.indexOf(from, at + 1) >= 0) throw new Error(`uPlot has "${from}" not exactly once: adapt tools/uplot.mjs`);
        text = text.slice(0, at) + to + text.slice(at + from.length);
      }
      return { code: text, map: null };
    },
  };
}
