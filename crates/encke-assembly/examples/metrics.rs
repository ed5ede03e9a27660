//! A custom metric in `/metrics` of the admin listener.
//!
//! `cargo run -p encke-assembly --example metrics`, then `curl http://127.0.0.1:9090/metrics | grep shop`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_console::{Console, ConsoleOptions};
use encke_server::{Mount, Options, Outcome, Reply, Request, Running, Server, ServerError};
use encke_stats::{Family, Source};

/// The figures of a shop. Any thread may count.
#[derive(Default)]
struct Shop {
    orders: AtomicU64,
}

impl Source for Shop {
    fn name(&self) -> &'static str {
        "shop"
    }

    fn families(&self) -> Vec<Family> {
        let orders = self.orders.load(Ordering::Relaxed);
        vec![Family::counter("shop_orders_total", "Orders placed.").value(orders)]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(Options::default()).listen("127.0.0.1:8080".parse()?);
    let running = start(server, "127.0.0.1:9090".parse()?)?;
    println!("http://{}/metrics", running.admin_addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn start(server: Server, admin: SocketAddr) -> Result<Running, ServerError> {
    let shop = Arc::<Shop>::default();
    let counted = Arc::clone(&shop);
    let order = move |_: &Request<'_>, _| {
        counted.orders.fetch_add(1, Ordering::Relaxed);
        Outcome::Now(Reply::text(201, "ordered\n"))
    };
    let admin = Server::bind_admin(&admin.into(), 128)?;
    server.mount("/order", order).source(shop).admin(admin).start_with(|board| {
        // Metrics are open; the status needs the token.
        let options =
            ConsoleOptions { token: "secret".into(), metrics_open: true, ..ConsoleOptions::default() };
        let console = Console::start(Arc::clone(board), options)?;
        Ok(vec![("/".to_owned(), Arc::new(console) as Arc<dyn Mount>)])
    })
}
