//! The last failure of a target, in words for an operator: `connection refused, or no route to it (3 s ago)`.

use crate::fault::GatewayFault;

/// Why a request to a target, or its check, has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureReason {
    /// A request got no response.
    Request(GatewayFault),
    /// A check got no response.
    Check(GatewayFault),
    /// A check got a response with this status.
    CheckStatus(u16),
}

/// The last failure of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastFailure {
    pub(crate) reason: FailureReason,
    pub(crate) ago_ns: u64,
}

impl LastFailure {
    /// Time since the failure in seconds.
    pub(crate) fn seconds(self) -> f64 {
        self.ago_ns as f64 / 1e9
    }

    /// Describes the failure and its time.
    pub(crate) fn text(self) -> String {
        let reason = match self.reason {
            FailureReason::Request(fault) => fault.sentence().to_owned(),
            FailureReason::Check(fault) => format!("check: {}", fault.sentence()),
            FailureReason::CheckStatus(status) => format!("check: status {status}"),
        };
        let seconds = self.ago_ns / 1_000_000_000;
        let ago = match seconds {
            0..120 => format!("{seconds} s"),
            120..7_200 => format!("{} min", seconds / 60),
            _ => format!("{} h", seconds / 3_600),
        };
        format!("{reason} ({ago} ago)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_its_reason_and_its_age() {
        const SECOND: u64 = 1_000_000_000;
        for (reason, seconds, text) in [
            (
                FailureReason::Request(GatewayFault::Unreachable),
                3,
                "connection refused, or no route to it (3 s ago)",
            ),
            (
                FailureReason::Check(GatewayFault::ConnectTime),
                150,
                "check: no connection within the time limit (2 min ago)",
            ),
            (FailureReason::CheckStatus(503), 7_200, "check: status 503 (2 h ago)"),
        ] {
            let failure = LastFailure { reason, ago_ns: seconds * SECOND + 1 };
            assert_eq!(failure.text(), text);
        }
    }
}
