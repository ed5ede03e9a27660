/** Removes parts of uPlot that the console does not use: a third of its code. */

/** Each text must occur exactly once, so that a new version of uPlot cannot pass unnoticed. */
const CUTS = [
  // The console draws lines; other kinds of paths are then unreachable.
  ['(paths.stepped = stepped);', ''],
  ['(paths.bars    = bars);', ''],
  ['(paths.spline  = monotoneCubic);', ''],
  // Graph.svelte has a legend of its own.
  ['const showLegend = legend.show;', 'const showLegend = false;'],
  // All scales are linear: no logarithms.
  ['(sc.distr == 3 ? snapLogX : sc.distr == 4 ? snapAsinhX : snapNumX) :', 'snapNumX :'],
  ['(sc.distr == 3 ? snapLogY : sc.distr == 4 ? snapAsinhY : snapNumY)', 'snapNumY'],
  ['sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : numAxisSplits', 'numAxisSplits'],
  ['sc.distr >= 3 && sc.log == 10 ? log10AxisValsFilt : sc.distr == 3 && sc.log == 2 ? log2AxisValsFilt : retArg1', 'retArg1'],
  ['if (xScaleDistr == 3)\n\t\t\t\t\t\t[_min, _max] = rangeLog(_min, _min, scaleX.log, false);\n\t\t\t\t\telse if (xScaleDistr == 4)\n\t\t\t\t\t\t[_min, _max] = rangeAsinh(_min, _min, scaleX.log, false);\n\t\t\t\t\telse if', 'if'],
  ['distr == 3 ? log10(sc.min) : distr == 4 ? asinh(sc.min, sc.asinh) : distr == 100 ? sc.fwd(sc.min) : sc.min', 'sc.min'],
  ['distr == 3 ? log10(sc.max) : distr == 4 ? asinh(sc.max, sc.asinh) : distr == 100 ? sc.fwd(sc.max) : sc.max', 'sc.max'],
  ['const getVal = (\n\t\t\tsc.distr == 3   ? val => log10(val > 0 ? val : sc.clamp(self, val, sc.min, sc.max, sc.key)) :\n\t\t\tsc.distr == 4   ? val => asinh(val, sc.asinh) :\n\t\t\tsc.distr == 100 ? val => sc.fwd(val) :\n\t\t\tval => val\n\t\t);', 'const getVal = val => val;'],
  ['distr == 3 ? pow(10, sv) :\n\t\t\tdistr == 4 ? sinh(sv, sc.asinh) :\n\t\t\tdistr == 100 ? sc.bwd(sv) :', ''],
  // Graph.svelte writes the times of the axis.
  ['\t\t_timeAxisStamps,\n', '\t\t0,\n'],
  ['const _timeAxisVals   = timeAxisVals(_tzDate, timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate));', ''],
  ['const _timeSeriesVal  = timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate));', ''],
  ['isTime ? (isStr(sv) ? timeSeriesVal(_tzDate, timeSeriesStamp(sv, _fmtDate)) : sv || _timeSeriesVal) : sv || numSeriesVal', 'sv || numSeriesVal'],
  ['isTime ? (\n\t\t\t\t\t// config array of fmtDate string tpls\n\t\t\t\t\tisArr(av) ?\n\t\t\t\t\t\ttimeAxisVals(_tzDate, timeAxisStamps(av, _fmtDate)) :\n\t\t\t\t\t// fmtDate string tpl\n\t\t\t\t\tisStr(av) ?\n\t\t\t\t\t\ttimeAxisVal(_tzDate, av) :\n\t\t\t\t\tav || _timeAxisVals\n\t\t\t\t) : av', 'av'],
  ['const _fmtDate = (opts.fmtDate || fmtDate);', ''],
  ['uPlot.fmtDate = fmtDate;', ''],
  // A drag selects nothing.
  ['events.mousedown = mouseDown;', ''],
  ['events.mouseup = mouseUp;', ''],
  ['events.dblclick = dblClick;', ''],
  ['onMouse(mousedown,  over, mouseDown);', ''],
  ['onMouse(dblclick, over, dblClick);', ''],
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
