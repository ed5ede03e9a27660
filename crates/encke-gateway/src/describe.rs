//! Descriptions of forwarded requests and WebSockets for the operator's list of connections: their paths, and the causes of waits.

use encke_server::{ConnDescription, ExchangeKey};

use crate::proxied_request::ProxiedRequest;
use crate::proxy::Proxy;
use crate::upstream::NamedUpstream;

impl Proxy {
    /// Describes a request; `None` if it is not forwarded.
    pub(crate) fn describe(&self, key: ExchangeKey) -> Option<ConnDescription> {
        let request = self.requests.get(&key)?;
        let upstream = self.upstreams.get(request.upstream)?;
        Some(ConnDescription {
            waits: Some(self.waits_of(request, upstream)),
            path: request.client.as_ref().map_or_else(
                || path_of(&request.head),
                |client| Some(String::from_utf8_lossy(&client.target).into_owned()),
            ),
            since_ns: Some(request.started.mono_ns),
            ..ConnDescription::default()
        })
    }

    fn waits_of(&self, request: &ProxiedRequest, upstream: &NamedUpstream) -> String {
        let name = &upstream.settings.name;
        if request.wait.is_some() {
            return format!(
                "waits for a free connection to upstream {name} ({} requests wait)",
                upstream.queue.len()
            );
        }
        let target = request.conn.and_then(|id| self.conns.get(&id)).and_then(|conn| {
            let url = upstream.targets.get(conn.target)?.url();
            Some(format!(" at {url}"))
        });
        let target = target.unwrap_or_default();
        if request.exchange.is_none() {
            return format!("receives the response of upstream {name}{target}");
        }
        if !request.body_is_whole {
            return format!("sends the request body to upstream {name}{target}");
        }
        format!("waits for upstream {name}{target}")
    }
}

/// The target in the head of a request that was written for an application.
pub(crate) fn path_of(head: &[u8]) -> Option<String> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let target = line.split(|byte| *byte == b' ').nth(1)?;
    Some(String::from_utf8_lossy(target).into_owned())
}
