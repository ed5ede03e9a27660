//! Ranges of IP addresses in CIDR notation: `10.0.0.0/8`, `::1`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::written::Written;
use crate::{ValueError, written};

/// A range of IP addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address in the range; the first one after parsing.
    pub address: IpAddr,
    /// The length of the prefix, in bits.
    pub prefix: u8,
}

impl Network {
    /// Whether the range contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    ///
    /// ```
    /// use encke_settings::Network;
    ///
    /// let network: Network = "10.0.0.0/8".parse()?;
    /// assert!(network.contains([10, 1, 2, 3].into()));
    /// assert!(!network.contains([192, 168, 0, 1].into()));
    /// # Ok::<(), encke_settings::ValueError>(())
    /// ```
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("address range", text, Self::EXPECTED);
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix
                .parse::<u8>()
                .ok()
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(|| ValueError::Prefix { text: text.into(), bits_max: bits })?,
        };
        let network = Self { address, prefix };
        // 10.0.0.1/8 is more likely a mistake than a way to say 10.0.0.0/8.
        let first = network.first();
        if first == address {
            Ok(network)
        } else {
            Err(ValueError::HostBits { text: text.into(), network: Self { address: first, prefix } })
        }
    }
}

impl Network {
    /// The first address of the range.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Written for Network {
    const NAME: &'static str = "Network";
    const EXPECTED: &'static str = "expected an address or a range such as 10.0.0.0/8 or ::1";
    const EXAMPLES: &'static [&'static str] = &["10.0.0.0/8", "::1"];
}

written! { Network }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_addresses_are_read() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("::1", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(
                text.parse::<Network>().map(|network| network.to_string()),
                Ok(shown.into()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_range_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "invalid address range"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("10.0.0.0/", "from 0 to 32"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/32", "write 2001:db8::/32"),
            ("example.org", "invalid address range"),
        ] {
            let error = text.parse::<Network>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        let network = |text: &str| {
            let (address, prefix) = text.split_once('/').expect("a slash");
            Network {
                address: address.parse().expect("an address"),
                prefix: prefix.parse().expect("a number"),
            }
        };
        for (range, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("192.0.2.7/32", "192.0.2.7", true),
            ("192.0.2.7/32", "192.0.2.6", false),
            ("192.0.2.0/24", "::ffff:192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "10.0.0.1", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(network(range).contains(address), expected, "{address} in {range}");
        }
    }
}
