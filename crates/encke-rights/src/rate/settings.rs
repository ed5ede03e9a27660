//! `[[rate]]`: limits of requests, as written in the settings file.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use encke_settings::{Contradiction, Period, Section, ValueError, Written, written};
use encke_wire::field;
use encke_wire::method::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::scope_errors;

/// Maximum of `keys`: half a GiB for a rule.
const KEYS_MAX: u32 = 1 << 24;
/// Methods that Encke rejects before guards.
const REJECTED: [Method; 3] = [Method::Other, Method::Connect, Method::Trace];
/// Maximum of `delay`. A client that waits longer has usually given up.
const DELAY_MAX: Period = Period::seconds(60);
/// Maximum time in which a used burst is free again, in ns: ten years. Times of the table are within it.
const FULL_BURST_NS_MAX: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A limit of requests by host and path. All limits that match a request must admit it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateSettings {
    /// Host names of the requests: `"example.org"`, or `"*.example.org"` for every name below it. Without any, the limit applies
    /// to every host.
    pub host: Vec<String>,
    /// Paths of the requests, as in `access`: `/login`, or `/api/**` for everything below `/api/`. Encke compares the decoded path.
    pub pattern: String,
    /// Methods of the requests, such as `["POST"]`; `GET` includes `HEAD`. Without any, the limit applies to every method.
    pub methods: Vec<String>,
    /// Requests in a time: `"10/s"`, `"5/m"` or `"100/h"`. Further requests get 429 with `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<RequestRate>,
    /// Requests that may come at once, before the others keep the distance of `limit`. The default is the number in `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// Open requests: further ones get 429. A request is open until its response is sent, and an event stream or a WebSocket until
    /// its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<NonZeroU32>,
    /// The requests that share a limit: of a client `"address"`; of a `"user"`, as `access` has identified it; with the same value of
    /// a header field, `"field:X-Api-Key"`; or `"all"`. Requests without a user or field share the limit of their address. The
    /// limits of users come after `access`, all others before it.
    pub by: RateBy,
    /// Bits of an IPv6 address that identify a client: a network usually gets 64.
    pub ipv6_prefix: u8,
    /// Maximum time for which Encke holds a request above the burst until its turn, at most `"1m"`. `"0s"` rejects these requests.
    pub delay: Period,
    /// Maximum number of requests that each worker holds until their turn. Further ones get 429.
    pub delayed: NonZeroU32,
    /// Users, addresses or values that the rule distinguishes. Each takes 32 bytes. Beyond it, the one that has used its limit
    /// least is forgotten.
    pub keys: u32,
}

impl Default for RateSettings {
    fn default() -> Self {
        Self {
            host: Vec::new(),
            pattern: "/**".into(),
            methods: Vec::new(),
            limit: None,
            burst: None,
            at_once: None,
            by: RateBy::Address,
            ipv6_prefix: 64,
            delay: Period::seconds(0),
            delayed: NonZeroU32::MIN.saturating_add(999),
            keys: 65_536,
        }
    }
}

impl RateSettings {
    /// Whether the rule limits anything.
    pub(crate) fn limits(&self) -> bool {
        self.limit.is_some() || self.at_once.is_some()
    }
}

impl Section for RateSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = scope_errors(&self.host, &self.pattern);
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        for (place, method) in self.methods.iter().enumerate() {
            let place = place.to_string();
            if !field::is_token(method.as_bytes()) {
                wrong(&["methods", &place], format!("{method:?} is no method: methods = [\"POST\"]"));
            } else if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let upper = method.to_ascii_uppercase();
                wrong(&["methods", &place], format!("methods are in upper case: write {upper:?}"));
            } else if REJECTED.contains(&Method::of(method.as_bytes())) {
                let text =
                    format!("Encke rejects every {method} request before it counts: remove {method:?}");
                wrong(&["methods", &place], text);
            }
        }
        if self.limit.is_none() && self.burst.is_some() {
            wrong(&["burst"], "burst has no effect without limit: set limit = \"10/s\"".into());
        }
        if self.limit.is_none() && self.delay != Period::seconds(0) {
            wrong(&["delay"], "delay has no effect without limit: set limit = \"10/s\"".into());
        }
        if self.delay > DELAY_MAX {
            let text = format!(
                "delay is {}: expected at most {DELAY_MAX}, because each waiting request keeps its connection",
                self.delay
            );
            wrong(&["delay"], text);
        }
        if let (Some(limit), Some(burst)) = (self.limit, self.burst)
            && limit.interval_ns().saturating_mul(u64::from(burst.get())) > FULL_BURST_NS_MAX
        {
            let text = format!(
                "at {limit}, a burst of {burst} requests would be free again after more than ten years: expected at most {}",
                FULL_BURST_NS_MAX / limit.interval_ns()
            );
            wrong(&["burst"], text);
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            let text =
                format!("ipv6_prefix is {}: expected 1 to 128; 64 is a usual network", self.ipv6_prefix);
            wrong(&["ipv6_prefix"], text);
        }
        if !(1..=KEYS_MAX).contains(&self.keys) {
            wrong(&["keys"], format!("keys is {}: expected 1 to {KEYS_MAX}", self.keys));
        }
        found
    }

    fn warnings(&self) -> Vec<Contradiction> {
        if self.limits() || *self == Self::default() {
            return Vec::new();
        }
        vec![Contradiction::at(
            &["pattern"],
            "this rule limits nothing: set limit = \"10/s\" or at_once = 10",
        )]
    }
}

/// Requests in a time: `10/s`, `5/m`, `100/h`.
///
/// ```
/// use encke_rights::RequestRate;
///
/// let rate: RequestRate = "5/m".parse()?;
/// assert_eq!(rate.interval_ns(), 12_000_000_000);
/// assert_eq!(rate.to_string(), "5/m");
/// # Ok::<(), encke_settings::ValueError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRate {
    count: NonZeroU32,
    unit: RateUnit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RateUnit {
    Second,
    Minute,
    Hour,
}

/// Rates above this number a second are no limit for a server, and nearly the resolution of the clock.
const PER_SECOND_MAX: u32 = 1_000_000;

impl RequestRate {
    /// The number of requests in the unit of time.
    pub const fn count(self) -> NonZeroU32 {
        self.count
    }

    /// The mean distance of two requests, in nanoseconds.
    pub const fn interval_ns(self) -> u64 {
        let seconds: u64 = match self.unit {
            RateUnit::Second => 1,
            RateUnit::Minute => 60,
            RateUnit::Hour => 3600,
        };
        seconds * 1_000_000_000 / self.count.get() as u64
    }
}

impl FromStr for RequestRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("rate", text, Self::EXPECTED);
        let (count, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let unit = match unit.trim_start() {
            "s" => RateUnit::Second,
            "m" => RateUnit::Minute,
            "h" => RateUnit::Hour,
            _ => return Err(wrong()),
        };
        let count = count.trim_end();
        if !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let count: NonZeroU32 = count.parse().map_err(|_| wrong())?;
        if count.get() > PER_SECOND_MAX {
            return Err(ValueError::invalid("rate", text, "expected at most 1000000 requests"));
        }
        Ok(Self { count, unit })
    }
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            RateUnit::Second => "s",
            RateUnit::Minute => "m",
            RateUnit::Hour => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Written for RequestRate {
    const NAME: &'static str = "RequestRate";
    const EXPECTED: &'static str = "expected requests in a time, such as 10/s, 5/m or 100/h";
    const EXAMPLES: &'static [&'static str] = &["10/s", "5/m", "100/h"];
}

/// The requests that share a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RateBy {
    /// `address`: requests of one client.
    Address,
    /// `user`: requests of one user.
    User,
    /// `all`: all requests of the rule.
    All,
    /// `field:NAME`: requests with the same value of a header field.
    Field(String),
}

impl FromStr for RateBy {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "address" => Ok(Self::Address),
            "user" => Ok(Self::User),
            "all" => Ok(Self::All),
            _ => match text.strip_prefix("field:").map(str::trim) {
                Some(name) if field::is_token(name.as_bytes()) => Ok(Self::Field(name.to_owned())),
                _ => Err(ValueError::invalid("choice", text, Self::EXPECTED)),
            },
        }
    }
}

impl fmt::Display for RateBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::User => f.write_str("user"),
            Self::All => f.write_str("all"),
            Self::Field(name) => write!(f, "field:{name}"),
        }
    }
}

impl Written for RateBy {
    const NAME: &'static str = "RateBy";
    const EXPECTED: &'static str =
        "expected address, user, all, or field: and the name of a header field, such as field:X-Api-Key";
    const EXAMPLES: &'static [&'static str] = &["address", "user", "all", "field:X-Api-Key"];
}

written! { RequestRate, RateBy }
