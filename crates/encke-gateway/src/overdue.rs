//! Limits in time of connections to applications.
//!
//! ```text
//!  dialed ─ connect_time, or 250 ms if the name has other addresses ─► another attempt, or 504
//!  sent ─┬─ 100 ms without a response, on a new connection ─► idle connections to the application are closed, up to 1 s
//!        └─ response_time ─► 504
//!  begun ─ idle_time without a byte ─► the client's connection is reset
//! ```

use std::sync::Arc;

use encke_server::UpstreamId;

use crate::fault::GatewayFault;
use crate::proxy::Proxy;
use crate::release::release_idle;

impl Proxy {
    /// Handles a deadline of a connection.
    pub(crate) fn overdue(&mut self, id: UpstreamId) {
        let Some(conn) = self.conns.get(&id) else { return };
        let Some(upstream) = self.upstreams.get(conn.upstream).map(Arc::clone) else { return };
        let settings = &upstream.settings;
        let now_ns = self.context.now().mono_ns;
        let Some(key) = conn.request else {
            self.drop_conn(id);
            return;
        };
        if !conn.connected {
            return self.fail(id, GatewayFault::ConnectTime);
        }
        let request = self.requests.get_mut(&key);
        if let Some(request) = &request
            && request.exchange.is_some()
            && !conn.reused
        {
            let wait_ns = request.wait_ns(settings);
            let left_ns = conn.active_ns.saturating_add(wait_ns).saturating_sub(now_ns);
            if left_ns > 0 {
                let next_ns = if request.body_is_whole {
                    release_idle(&upstream, wait_ns.saturating_sub(left_ns), now_ns)
                } else {
                    u64::MAX
                };
                return self.context.deadline(id, left_ns.min(next_ns));
            }
        }
        if let Some(request) = request
            && !request.body_is_whole
            && !request.full
        {
            // The client is slow with its body, which the worker's own limit bounds. Or it waits for a consent that the application
            // does not give, as applications of HTTP/1.0 do not: RFC 9110 §10.1.1 lets it send its body after some time.
            request.awaits_continue = false;
            self.context.deadline(id, settings.response_time.nanoseconds());
            return self.read_body(key);
        }
        if conn.flow.paused {
            // The client is slow, which the worker's own limit bounds, and the application waits for it.
            return self.context.deadline(id, settings.idle_time.nanoseconds());
        }
        let has_begun = self.requests.get(&key).is_some_and(|request| request.exchange.is_none());
        let (limit_ns, fault) = if has_begun {
            (settings.idle_time.nanoseconds(), GatewayFault::IdleTime)
        } else {
            (settings.response_time.nanoseconds(), GatewayFault::ResponseTime)
        };
        // Activity does not move the deadline. An expired deadline checks the time of the last activity.
        let left_ns = conn.active_ns.saturating_add(limit_ns).saturating_sub(now_ns);
        if left_ns == 0 { self.fail(id, fault) } else { self.context.deadline(id, left_ns) }
    }
}
