//! `encke status`: queries the admin listener of a running server.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use crate::admin_target::AdminTarget;
use crate::arguments::Status;
use crate::client;
use crate::error::CommandResult;
use crate::output::print;

/// Time between two queries with `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Status) -> CommandResult {
    let admin = AdminTarget::of(&arguments.admin)?;
    let mut before: Option<Value> = None;
    loop {
        let answer = admin.ask()?;
        if arguments.json {
            print(&format!("{}\n", answer.trim_end()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let status: Value = serde_json::from_str(&answer).unwrap_or_default();
        let clear = if arguments.watch { "\x1b[H\x1b[2J" } else { "" };
        print(&format!("{clear}{}", format_status(&status, before.as_ref())))?;
        if !arguments.watch {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(status);
        client::pause(WATCH_PAUSE);
    }
}

/// Formats a status in a few lines. With the previous status, also the change since then.
fn format_status(status: &Value, before: Option<&Value>) -> String {
    let text = |key: &str| status[key].as_str().unwrap_or("?").to_owned();
    let number = |key: &str| status[key].as_u64();
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "?".into(), |value| value.to_string());
    let list = |key: &str| {
        let items = status[key].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let mut lines = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(lines, "{name:<12} {value}").expect("a String takes everything");
    };
    line("encke", format!("{}, {}, pid {}", text("version"), text("state"), or_unknown(number("pid"))));
    line("listening", list("listen"));
    line("back end", text("backend"));
    line("workers", or_unknown(number("workers")));
    let (open, limit) = (or_unknown(number("connections")), or_unknown(number("connections_limit")));
    line("connections", format!("{open} of {limit}"));
    let requests = number("requests");
    let since = before.and_then(|before| requests?.checked_sub(before["requests"].as_u64()?));
    let rate = since.map_or_else(String::new, |since| format!(", {since} since the last update"));
    line("requests", format!("{}{rate}", or_unknown(requests)));
    if let Some(latency) = family(status, "encke_http_request_seconds") {
        let part = |key: &str| latency[key].as_u64().map_or_else(|| "–".into(), duration);
        line("latency", format!("p50 {}, p99 {}, max {}", part("p50_ns"), part("p99_ns"), part("max_ns")));
    }
    let push = |key: &str| status["push"][key].as_u64();
    if let Some(subscribers) = push("subscribers").filter(|subscribers| *subscribers > 0) {
        let part = |key: &str| or_unknown(push(key));
        line(
            "subscribers",
            format!(
                "{subscribers}, {} B each in the process and {} B in kernel buffers",
                part("subscriber_user_bytes"),
                part("subscriber_kernel_bytes")
            ),
        );
        let age = push("queue_age_ns").map_or_else(|| "–".into(), duration);
        let (mean, most) = (part("unsent_bytes"), part("unsent_bytes_max"));
        line("messages", format!("queued for at most {age}; unsent {mean} B on average, at most {most} B"));
    }
    if let Some(store) = store(status) {
        line("store", store);
    }
    for (name, all) in [("nodes", nodes(status)), ("targets", targets(status)), ("apps", apps(status))] {
        for (place, text) in all.into_iter().enumerate() {
            line(if place == 0 { name } else { "" }, text);
        }
    }
    if let Some(bytes) = number("resident_bytes") {
        line("memory", format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    }
    line("descriptors", or_unknown(number("descriptors")));
    lines
}

/// Summarizes the commits of durable channels, if there were any.
fn store(status: &Value) -> Option<String> {
    let families = status["families"].as_array()?;
    let commits = families.iter().find(|family| family["name"] == "encke_push_commits_total")?;
    let count = |outcome: &str| {
        let samples = commits["samples"].as_array().into_iter().flatten();
        samples
            .filter(|one| one["labels"]["outcome"] == outcome)
            .find_map(|one| one["value"].as_u64())
            .unwrap_or(0)
    };
    let (stored, full, failed) = (count("stored"), count("full"), count("failed"));
    if stored + full + failed == 0 {
        return None;
    }
    let p99 = family(status, "encke_push_commit_seconds").and_then(|lasted| lasted["p99_ns"].as_u64());
    let lasted = p99.map_or_else(|| "–".into(), duration);
    let refused = if full + failed == 0 {
        String::new()
    } else {
        format!(", {full} rejected as full, {failed} failed")
    };
    Some(format!("{stored} commits{refused}; p99 {lasted}"))
}

/// Describes the nodes of a cluster, one line each.
fn nodes(status: &Value) -> Vec<String> {
    let cluster = &status["cluster"];
    let nodes = cluster["nodes"].as_array().into_iter().flatten();
    let mut lines: Vec<String> = nodes
        .map(|node| {
            let number = |key: &str| node[key].as_u64().unwrap_or(0);
            let mut line = format!(
                "{} {}, {} subscriptions to {} channels",
                node["name"].as_str().unwrap_or("?"),
                node["version"].as_str().unwrap_or("?"),
                number("subscriptions"),
                number("channels")
            );
            match number("behind") {
                0 => {}
                behind => line.push_str(&format!(", {behind} messages of lag")),
            }
            match number("silent_ms") {
                _ if node["here"] == true => line.push_str(" (this node)"),
                ..2_000 => {}
                silent_ms => line.push_str(&format!(", silent for {} s", silent_ms / 1_000)),
            }
            line
        })
        .collect();
    if cluster["up"] == false {
        lines.insert(0, "NATS cannot be reached; last known state:".into());
    }
    lines
}

/// Lines of targets, and of applications.
const LINES_MAX: usize = 10;

/// Cuts lines to [`LINES_MAX`], and says how many are missing.
fn first_lines(mut lines: Vec<String>) -> Vec<String> {
    if let Some(more) = lines.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Describes the targets of the gateway, one line each: first targets that are not up.
fn targets(status: &Value) -> Vec<String> {
    let mut targets: Vec<&Value> = status["gateway"]["targets"].as_array().into_iter().flatten().collect();
    targets.sort_by_key(|target| target["state"] == "up");
    let line = |target: &&Value| {
        let text = |key: &str| target[key].as_str().unwrap_or("?");
        let state = text("state");
        let failure = target["last_failure"].as_str().filter(|_| state != "up");
        let failure = failure.map_or_else(String::new, |failure| format!(": {failure}"));
        format!("{} {}, {state}{failure}", text("upstream"), text("target"))
    };
    first_lines(targets.iter().map(line).collect())
}

/// Describes the supervised applications, one line each: first applications with a process that does not respond.
fn apps(status: &Value) -> Vec<String> {
    let all = status["apps"].as_object().into_iter().flatten();
    let mut apps: Vec<(bool, String)> = all
        .map(|(name, app)| {
            let number = |key: &str| app[key].as_u64();
            let (ready, processes) = (number("ready"), number("processes"));
            let of = processes.map_or_else(String::new, |processes| format!(" of {processes}"));
            let mut line = format!("{name}, {}{of} ready", ready.unwrap_or(0));
            if let Some(restarts) = number("restarts").filter(|restarts| *restarts > 0) {
                let end =
                    app["last_end"].as_str().map_or_else(String::new, |end| format!(", the last one {end}"));
                line += &format!("; {restarts} unexpected ends{end}");
            }
            (ready.is_some() && ready == processes, line)
        })
        .collect();
    apps.sort();
    first_lines(apps.into_iter().map(|(_, line)| line).collect())
}

/// Returns the value of the first sample of a metric family.
fn family<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    let families = status["families"].as_array()?;
    let family = families.iter().find(|family| family["name"] == name)?;
    Some(&family["samples"].as_array()?.first()?["value"])
}

/// Formats nanoseconds for people.
fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_is_told_in_a_few_lines() {
        let latency = json!({"p50_ns": 900, "p99_ns": 2_500_000, "max_ns": 3_000_000_000u64});
        let status = json!({
            "version": "0.1.0", "state": "serving", "pid": 7, "listen": ["127.0.0.1:8080", "[::1]:8080"],
            "backend": "poll", "workers": 2, "connections": 3, "connections_limit": 100, "requests": 50,
            "resident_bytes": 6_291_456, "descriptors": 12,
            "push": {
                "subscribers": 18_000, "queue_age_ns": 1_200_000, "unsent_bytes": 0, "unsent_bytes_max": 71,
                "subscriber_user_bytes": 144, "subscriber_kernel_bytes": 768,
            },
            "families": [
                {"name": "encke_http_request_seconds", "samples": [{"labels": {}, "value": latency}]},
                {"name": "encke_push_commits_total", "samples": [
                    {"labels": {"outcome": "stored"}, "value": 7},
                    {"labels": {"outcome": "full"}, "value": 2},
                    {"labels": {"outcome": "failed"}, "value": 0},
                ]},
                {"name": "encke_push_commit_seconds", "samples": [{"labels": {}, "value": {"p99_ns": 4_000_000}}]},
            ],
        });
        let lines = format_status(&status, Some(&json!({"requests": 20})));
        for part in [
            "0.1.0, serving, pid 7",
            "127.0.0.1:8080, [::1]:8080",
            "workers      2\n",
            "3 of 100",
            "50, 30 since the last update",
            "p50 900 ns, p99 2.5 ms, max 3.0 s",
            "store        7 commits, 2 rejected as full, 0 failed; p99 4.0 ms\n",
            "18000, 144 B each in the process and 768 B in kernel buffers",
            "queued for at most 1.2 ms; unsent 0 B on average, at most 71 B",
            "6.0 MiB",
        ] {
            assert!(lines.contains(part), "{part} is missing in\n{lines}");
        }
        // A server of another version may omit any field.
        assert!(format_status(&json!({}), None).contains('?'));
    }

    #[test]
    fn targets_and_applications_have_a_line_each_and_those_in_trouble_come_first() {
        let target = |number: usize, state: &str, failure: Option<&str>| {
            let url = format!("http://127.0.0.1:{number}");
            json!({"upstream": "app", "target": url, "state": state, "requests": 0, "last_failure": failure})
        };
        let mut targets: Vec<Value> =
            (1..=11).map(|number| target(number, "up", Some("refused (9 s ago)"))).collect();
        targets.push(target(12, "ejected", Some("refused (3 s ago)")));
        let status = json!({
            "gateway": {"targets": targets},
            "apps": {
                "blog": {"ready": 2, "processes": 2, "restarts": 0},
                "shop": {"ready": 0, "processes": 1, "restarts": 4, "last_end": "exited with status 1"},
            },
        });
        let lines = format_status(&status, None);
        for part in [
            "targets      app http://127.0.0.1:12, ejected: refused (3 s ago)\n",
            "             app http://127.0.0.1:1, up\n",
            "             and 2 more\n",
            "apps         shop, 0 of 1 ready; 4 unexpected ends, the last one exited with status 1\n",
            "             blog, 2 of 2 ready\n",
        ] {
            assert!(lines.contains(part), "{part} is missing in\n{lines}");
        }
        assert!(!lines.contains("127.0.0.1:10,"), "at most ten targets:\n{lines}");
        let none = format_status(&json!({}), None);
        assert!(!none.contains("targets") && !none.contains("apps"), "{none}");
    }
}
