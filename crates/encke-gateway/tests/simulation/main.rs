//! The gateway in the simulator: real workers between clients and applications that break every rule, one seed per run.
//!
//! ```text
//! Visitor ◄─► Fleet at 10.0.0.1: Gateway, with a limit on connections and a queue ◄─► one to three SimApps at 10.0.0.2 and so on
//! ```
//! Each request gets exactly one response: a response of an application to this request, or an error of the gateway. A response
//! breaks off only if the application has broken it off. No application sees a POST twice. When all clients have left, no permit, no
//! request and no connection is left.

mod app;
mod client;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use encke_gateway::{
    Balance, BalanceKey, CheckSettings, Gateway, RouteSettings, SiteRoutes, UpstreamSettings,
};
use encke_io::sim::{SimConditions, World};
use encke_io::testing::Seeds;
use encke_server::testing::{Fleet, Stepped};
use encke_server::{ConnLimits, Exchange, LimitSettings, Mount, Outcome, Reply, Request};
use encke_settings::{Level, Period, TextOrTable, notice};
use encke_stats::Value;

use app::{CHECK, Ledger, SimApp};
use client::{Results, Visitor};

/// The worlds of a complete run.
const SEEDS: u64 = 200;
const CLIENTS: usize = 24;
/// Steps after which an unfinished run counts as stuck.
const STEPS_MAX: usize = 2_000_000;
/// The time in which a free permit reaches a waiting request: two late wake-ups, and the turns of all reactors.
const WAKE_NS: u64 = 10_000_000;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::error(404))
}

fn target_count(seed: u64) -> u64 {
    1 + seed % 3
}

/// Checks that often fail, and that are often late.
fn check(world: &World) -> CheckSettings {
    CheckSettings {
        path: Some(CHECK.into()),
        every: Period::milliseconds(100 + world.chance(200)),
        time: Period::milliseconds(200 + world.chance(200)),
        ..CheckSettings::default()
    }
}

/// The gateway of a seed.
fn gateway(world: &World, seed: u64) -> (Arc<Gateway>, u32) {
    let connections = 1 + world.chance(4) as u32;
    let targets = (0..target_count(seed))
        .map(|target| format!("http://{}", address(2 + target as u8)).parse().expect("a URL"));
    let settings = UpstreamSettings {
        name: "app".into(),
        to: targets.collect(),
        connections,
        queue: 1 + world.chance(20) as u32,
        queue_time: Period::milliseconds(50 + world.chance(2_000)),
        keep: Some([0, 1, 64][world.chance(3) as usize]),
        keep_time: Period::milliseconds(500),
        connect_time: Period::milliseconds(100),
        response_time: Period::milliseconds(300),
        idle_time: Period::milliseconds(200),
        tunnel_time: Period::milliseconds(500),
        balance: match world.chance(4) {
            0 => Balance::Two,
            1 => Balance::Least,
            2 => Balance::RoundRobin,
            _ => Balance::Hash(BalanceKey::Path),
        },
        check: (world.chance(2) == 0).then(|| TextOrTable(check(world))),
        slow_start: Period::milliseconds([0, 700][world.chance(2) as usize]),
        ..UpstreamSettings::default()
    };
    let routes = [RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() }];
    let sites = [SiteRoutes { routes: &routes, ..SiteRoutes::default() }];
    let gateway = Gateway::new(Arc::new(none), &sites, &[settings], &[]).expect("valid settings");
    (Arc::new(gateway), connections)
}

/// The values of a metric of the gateway, in any order.
fn metric(gateway: &Gateway, name: &str) -> Vec<u64> {
    let families = gateway.sources().iter().flat_map(|source| source.families()).collect::<Vec<_>>();
    let family = families.into_iter().find(|family| family.name == name);
    let samples = family.unwrap_or_else(|| panic!("{name} is missing")).samples.into_iter();
    let value =
        |value: Value| if let Value::Count(count) = value { count } else { panic!("{name}: no count") };
    samples.map(|sample| value(sample.value)).collect()
}

/// Asserts that no client has left anything behind.
fn assert_released(gateway: &Gateway, seed: u64) {
    for name in [
        "encke_gateway_target_connections_open",
        "encke_gateway_target_requests_open",
        "encke_gateway_queue_requests",
    ] {
        let values = metric(gateway, name);
        assert!(values.iter().all(|value| *value == 0), "seed {seed}: {name} is {values:?} at rest");
    }
}

/// Asserts that the limit holds, and that no request waits for long while a permit is free.
fn check_limit(gateway: &Gateway, world: &World, seed: u64, most: u64, free_since_ns: &mut Option<u64>) {
    let open = metric(gateway, "encke_gateway_target_connections_open");
    assert!(open.iter().all(|open| *open <= most), "seed {seed}: {open:?} connections");
    // With two targets, the free one may be ejected.
    let waits = metric(gateway, "encke_gateway_queue_requests") != [0];
    if open.len() > 1 || open == [most] || !waits {
        *free_since_ns = None;
        return;
    }
    let now_ns = world.now().mono_ns;
    let free_ns = now_ns - *free_since_ns.get_or_insert(now_ns);
    assert!(free_ns < WAKE_NS, "seed {seed}: a permit was free for {free_ns} ns, and a request waited");
}

struct Simulation {
    world: World,
    seed: u64,
    fleet: Fleet,
    apps: Vec<SimApp>,
    ledger: Ledger,
}

impl Simulation {
    /// Runs the next turn of a worker or an application. Returns false if no event is left.
    fn step(&mut self) -> bool {
        let Some(reactor) = self.world.step() else { return false };
        if self.fleet.turn(reactor, self.seed) == Stepped::NotHere
            && let Some(app) = self.apps.iter_mut().find(|app| app.number() == reactor)
        {
            app.turn(&self.world, &mut self.ledger);
        }
        true
    }
}

/// Runs a seed. Returns the world's trace and the number of deaths of applications.
fn run(seed: u64, results: &mut Results) -> (u64, u64) {
    let fouls = !seed.is_multiple_of(3);
    let world = World::with(seed, if fouls { SimConditions::harsh() } else { SimConditions::default() });
    let (gateway, connections) = gateway(&world, seed);
    let workers = 1 + (seed % 4) as usize;
    let limits =
        LimitSettings { upstreams: NonZeroU32::new(1_000).expect("not 0"), ..LimitSettings::default() };
    let policy = ConnLimits { limits, connections: 1_000, ..ConnLimits::default() };
    let mount: Arc<dyn Mount> = Arc::clone(&gateway) as Arc<dyn Mount>;
    let fleet = Fleet::start(&world, 0, workers, address(1), policy, vec![("/".into(), mount)]);
    let apps =
        (0..target_count(seed)).map(|target| SimApp::start(&world, address(2 + target as u8))).collect();
    let mut simulation = Simulation { world: world.clone(), seed, fleet, apps, ledger: Ledger::default() };
    let (mut visitors, mut next_number) = (Vec::new(), 0);
    let (mut steps, mut free_since_ns) = (0, None);
    loop {
        steps += 1;
        assert!(steps < STEPS_MAX, "seed {seed}: stuck");
        if visitors.len() < CLIENTS && world.chance(12) == 0 {
            visitors.push(Visitor::new(&world, &mut next_number, address(1)));
        }
        let mut is_waiting = visitors.len() < CLIENTS;
        for visitor in &mut visitors {
            is_waiting |= visitor.visit(&world);
        }
        let happens = simulation.step();
        if steps % 4 == 0 {
            check_limit(&gateway, &world, seed, u64::from(connections), &mut free_since_ns);
        }
        if !is_waiting && (!happens || steps % 64 == 0 && is_at_rest(&gateway)) {
            break;
        }
    }
    assert_released(&gateway, seed);
    for (place, count) in metric(&gateway, "encke_gateway_target_checks_total").into_iter().enumerate() {
        results.checks[place % 2] += count;
    }
    simulation.fleet.drain(Duration::ZERO, Duration::from_secs(5));
    while simulation.fleet.is_up() {
        assert!(simulation.step(), "seed {seed}: a worker did not end");
    }
    for visitor in &visitors {
        visitor.judge(seed, fouls, &simulation.ledger, results);
        for request in visitor.script.iter().filter(|request| request.is_post) {
            let seen = simulation.ledger.seen.get(&request.number).copied().unwrap_or_default();
            assert!(seen <= 1, "seed {seed}: the POST {} was sent {seen} times", request.number);
        }
    }
    (world.trace(), simulation.ledger.deaths)
}

fn is_at_rest(gateway: &Gateway) -> bool {
    metric(gateway, "encke_gateway_target_connections_open").iter().all(|open| *open == 0)
}

#[test]
fn every_request_gets_its_response_or_an_error_exactly_once() {
    notice::set_level(Level::Error);
    let mut results = Results::default();
    let seeds = Seeds::of(SEEDS);
    let deaths: u64 = seeds.range().map(|seed| run(seed, &mut results).1).sum();
    println!("{results:?}, {deaths} deaths of applications in {seeds:?}");
    if seeds.is_single() {
        return;
    }
    let checks = results.checks;
    assert!(checks.iter().all(|count| *count > seeds.count()), "{checks:?} good and bad checks");
    let Results { gets, posts, sockets, bad, late, queue, resets, .. } = results;
    for (kind, count, least) in [
        ("responses to GET", gets, 2_000),
        ("responses to POST", posts, 300),
        ("WebSockets", sockets, 100),
        ("bad responses of applications", bad, 200),
        ("late responses", late, 10),
        ("refusals of the queue", queue, 100),
        ("resets", resets, 20),
        ("deaths of applications", deaths as usize, 50),
    ] {
        let (of, all) = (seeds.count() as usize, SEEDS as usize);
        assert!(count * all > least * of, "{count} {kind}: too few to mean anything");
    }
}

#[test]
fn one_seed_is_one_run() {
    notice::set_level(Level::Error);
    for seed in [1, 2, 3] {
        let trace = |_| run(seed, &mut Results::default()).0;
        let traces = [0, 1].map(trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}
