//! Reports in the layout of other tools, for scripts that parse their output.
//!
//! Words and columns match the tools' output; the values are measured as elsewhere in this crate. Values that are unknown here
//! (the name of the server's software) are left out with their line.

use std::fmt::Write as _;

use encke_stats::Distribution;

use encke_io::socket::Address;

use super::Report;

impl Report {
    /// The report in the layout of `ab` (version 2.3).
    pub fn ab(&self) -> String {
        let mut text = String::new();
        self.put_ab(&mut text).expect("a String takes everything");
        text
    }

    /// The report in the layout of `htstress`.
    pub fn htstress(&self) -> String {
        let totals = &self.outcome.totals;
        let ended = totals.finished + totals.failed;
        let share = |count: u64| count * 100 / ended.max(1);
        let good = totals.finished - totals.wrong;
        format!(
            "\nrequests:      {ended}\ngood requests: {good} [{}%]\nbad requests:  {} [{}%]\nsocket errors: {} [{}%]\n\
             seconds:       {:.3}\nrequests/sec:  {:.3}\n\n",
            share(good),
            totals.wrong,
            share(totals.wrong),
            totals.failed,
            share(totals.failed),
            self.outcome.elapsed.as_secs_f64(),
            self.rate(),
        )
    }

    fn put_ab(&self, out: &mut String) -> std::fmt::Result {
        let totals = &self.outcome.totals;
        let seconds = self.outcome.elapsed.as_secs_f64();
        let rate = self.rate();
        let connections = self.plan.connections;
        writeln!(out, "This is encke load, in the layout of ApacheBench, Version 2.3\n\n")?;
        let (name, port) = match &self.plan.server {
            Address::Inet(server) => (server.ip().to_string(), server.port()),
            Address::Unix(path) => (path.display().to_string(), 0),
        };
        writeln!(out, "Server Hostname:        {name}")?;
        writeln!(out, "Server Port:            {port}\n")?;
        writeln!(out, "Document Path:          {}", self.urls.first().map_or("/", |url| path(url)))?;
        writeln!(out, "Document Length:        {} bytes\n", totals.body_bytes / totals.finished.max(1))?;
        writeln!(out, "Concurrency Level:      {connections}")?;
        writeln!(out, "Time taken for tests:   {seconds:.3} seconds")?;
        writeln!(out, "Complete requests:      {}", totals.finished)?;
        writeln!(out, "Failed requests:        {}", totals.failed)?;
        let others = totals.finished - totals.statuses.class(2);
        if others > 0 {
            writeln!(out, "Non-2xx responses:      {others}")?;
        }
        if !self.plan.one_shot() {
            writeln!(out, "Keep-Alive requests:    {}", totals.finished)?;
        }
        writeln!(out, "Total transferred:      {} bytes", totals.received_bytes)?;
        writeln!(out, "HTML transferred:       {} bytes", totals.body_bytes)?;
        writeln!(out, "Requests per second:    {rate:.2} [#/sec] (mean)")?;
        let each = if rate > 0.0 { 1_000.0 / rate } else { 0.0 };
        writeln!(out, "Time per request:       {:.3} [ms] (mean)", each * f64::from(connections))?;
        writeln!(out, "Time per request:       {each:.3} [ms] (mean, across all concurrent requests)")?;
        let kilobytes = if seconds > 0.0 { totals.received_bytes as f64 / 1024.0 / seconds } else { 0.0 };
        writeln!(out, "Transfer rate:          {kilobytes:.2} [Kbytes/sec] received\n")?;
        writeln!(out, "Connection Times (ms)\n              min  mean[+/-sd] median   max")?;
        put_times(out, "Connect:", &totals.connect)?;
        put_times(out, "Waiting:", &totals.first_byte)?;
        put_times(out, "Total:", &totals.service)?;
        writeln!(out, "\nPercentage of the requests served within a certain time (ms)")?;
        for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
            let ns = totals.service.quantile_ns(f64::from(percent) / 100.0).unwrap_or(0);
            writeln!(out, "{percent:>4}% {:>6}", milliseconds(ns))?;
        }
        writeln!(out, " 100% {:>6} (longest request)", milliseconds(totals.service.max_ns()))
    }
}

/// The path of a URL.
fn path(url: &str) -> &str {
    let server = url.find("://").map_or(0, |at| at + 3);
    url[server..].find('/').map_or("/", |slash| &url[server + slash..])
}

fn put_times(out: &mut String, name: &str, times: &Distribution) -> std::fmt::Result {
    let count = times.count().max(1) as f64;
    let mean = times.mean_ns().unwrap_or(0.0);
    let squares: f64 = times
        .buckets()
        .map(|(first, last, held)| (first.midpoint(last) as f64 - mean).powi(2) * held as f64)
        .sum();
    let least = times.buckets().next().map_or(0, |(first, _, _)| first);
    writeln!(
        out,
        "{name:<12}{:>5} {:>5.0} {:>5.1} {:>6} {:>7}",
        milliseconds(least),
        mean / 1e6,
        (squares / count).sqrt() / 1e6,
        milliseconds(times.quantile_ns(0.5).unwrap_or(0)),
        milliseconds(times.max_ns()),
    )
}

fn milliseconds(ns: u64) -> u64 {
    (ns + 500_000) / 1_000_000
}
