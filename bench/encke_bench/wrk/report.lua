-- Prints the result of a run of wrk as a line of JSON that starts with "@ ". Defines no request() and no response(), so wrk
-- stays on its fast path.
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '@ {"requests":%d,"bytes":%d,"us":%d,"p50_us":%d,"p99_us":%d,"errors":%d}\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
