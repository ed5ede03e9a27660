//! The target that a request prefers: by a hash of a part of the request, or by a cookie of an earlier response.

use encke_server::{Fields, Request};
use encke_wire::field::Known;

use crate::balance_settings::{Balance, BalanceKey};
use crate::upstream::NamedUpstream;

/// The targets that a request has tried, and the one that it prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TargetWish {
    /// The targets that have failed, as a bit mask.
    pub(crate) tried: u64,
    /// The target that the client's cookie names.
    pub(crate) sticky: Option<u8>,
    /// The hash that decides on the target.
    pub(crate) key: Option<u64>,
}

impl TargetWish {
    pub(crate) const fn has_tried(&self, target: usize) -> bool {
        self.tried & (1 << target) != 0
    }

    pub(crate) const fn add_tried(&mut self, target: usize) {
        self.tried |= 1 << target;
    }
}

impl NamedUpstream {
    /// The wish of a new request.
    pub(crate) fn wish(&self, request: &Request<'_>) -> TargetWish {
        if !self.has_wishes() {
            return TargetWish::default();
        }
        let sticky = self.settings.sticky.as_ref();
        let sticky = sticky.and_then(|name| {
            cookies(request, name).find_map(|value| self.targets.find_digest(parse_digest(value)?))
        });
        let key = match &self.settings.balance {
            Balance::Hash(key) => hash_of(key, request),
            Balance::Two | Balance::Least | Balance::RoundRobin => None,
        };
        TargetWish { tried: 0, sticky, key }
    }

    /// Whether requests prefer targets.
    fn has_wishes(&self) -> bool {
        self.targets.len() > 1
            && (self.settings.sticky.is_some() || matches!(self.settings.balance, Balance::Hash(_)))
    }

    /// The cookie for a client whose request another target has served than its cookie names.
    pub(crate) fn sticky_cookie(&self, wish: &TargetWish, target: usize, secure: bool) -> Option<Fields> {
        let name = self.settings.sticky.as_ref().filter(|_| self.targets.len() > 1)?;
        if wish.sticky.map(usize::from) == Some(target) {
            return None;
        }
        let digest = self.targets.get(target)?.digest();
        let secure = if secure { "; Secure" } else { "" };
        let cookie = format!("{name}={digest:016x}; Path=/; HttpOnly; SameSite=Lax{secure}");
        let mut fields = Fields::new();
        // The settings admit only names of cookies.
        fields.push("Set-Cookie", cookie.as_bytes()).ok()?;
        Some(fields)
    }
}

/// The hash of a part of a request; `None` if the request lacks it.
fn hash_of(key: &BalanceKey, request: &Request<'_>) -> Option<u64> {
    match key {
        BalanceKey::Address => match request.origin().client?.to_canonical() {
            std::net::IpAddr::V4(address) => Some(stable_hash(&address.octets())),
            std::net::IpAddr::V6(address) => Some(stable_hash(&address.octets())),
        },
        BalanceKey::Path => Some(stable_hash(request.path())),
        BalanceKey::Field(name) => field(request, name).map(stable_hash),
        BalanceKey::Cookie(name) => cookies(request, name).next().map(stable_hash),
    }
}

/// The first value of a field, as applications get it: a client does not choose the value of a field that guards reserve.
fn field<'a>(request: &Request<'a>, name: &str) -> Option<&'a [u8]> {
    let Some(passed) = request.passed_fields() else { return request.field(name) };
    passed.fields.value(name).or_else(|| request.field(name).filter(|_| !passed.removes(name.as_bytes())))
}

/// The values of a cookie (RFC 6265 §4.2) that are not empty.
fn cookies<'a>(request: &Request<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = request.all(Known::Cookie).flat_map(|field| field.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value).filter(|value| !value.is_empty())
    })
}

fn parse_digest(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() == 16)?;
    u64::from_str_radix(text, 16).ok()
}

/// A hash that is the same on all nodes, and in all versions: FNV-1a, then the finalizer of SplitMix64, because FNV leaves the
/// upper bits of short texts similar.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(fnv)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use encke_server::Kept;

    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut fields = Fields::new();
        for value in ["a=1; app=x; b=app=3", "bapp=4;app=;app = 5", "app=y"] {
            fields.push("Cookie", value.as_bytes()).expect("a value");
        }
        let kept = Kept::sample("GET", "/", "example.org", &fields).expect("a request");
        let found: Vec<_> = cookies(&kept.view(), "app").collect();
        assert_eq!(found, [b"x", b"y"]);
    }

    #[test]
    fn a_part_of_a_request_has_the_same_hash_on_all_nodes() {
        let mut fields = Fields::new();
        fields.push("X-User", b"ann").expect("a value");
        fields.push("Cookie", b"sid=ann").expect("a value");
        let kept = Kept::sample("GET", "/ann?b", "example.org", &fields).expect("a request");
        let hash = |key: BalanceKey| hash_of(&key, &kept.view());
        // A change of this value moves all clients of all nodes.
        let ann = 0x8096_e52a_d559_ed80;
        assert_eq!(hash(BalanceKey::Field("x-user".into())), Some(ann));
        assert_eq!(hash(BalanceKey::Cookie("sid".into())), Some(ann));
        assert_eq!(hash(BalanceKey::Path), Some(stable_hash(b"/ann")));
        assert_eq!(hash(BalanceKey::Field("x-other".into())), None);
        assert_eq!(hash(BalanceKey::Cookie("other".into())), None);
    }
}
