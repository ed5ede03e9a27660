//! Reasons of refusals and of ends, and the settings of the limits among them.

/// Returns the setting of the limit that a reason names, if it names one.
pub(crate) fn setting_of(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "address_limit" => "limits.connections_per_address",
        "body_rate" => "limits.body_rate",
        "body_too_large" => "limits.body_bytes",
        "handshake_time" => "limits.handshake_time",
        "head_time" => "limits.head_time",
        "head_too_large" => "limits.head_bytes",
        "idle_time" => "limits.idle_time",
        "too_many_fields" => "limits.fields",
        "uri_too_long" => "limits.uri_bytes",
        "write_rate" => "limits.write_rate",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::CloseReason;
    use crate::limits::LimitSettings;
    use encke_wire::http1::Refusal;

    #[test]
    fn a_reason_that_names_a_limit_names_a_setting_that_exists() {
        let settings = serde_json::to_value(LimitSettings::default()).expect("JSON");
        let closes = CloseReason::ALL.iter().map(|reason| reason.name());
        let names =
            Refusal::ALL.iter().map(|refusal| refusal.reason()).chain(closes).chain(["body_too_large"]);
        let mut found = 0;
        for name in names {
            let Some(setting) = setting_of(name) else { continue };
            let key = setting.strip_prefix("limits.").expect("a key of [limits]");
            assert!(settings.get(key).is_some(), "{name}: there is no setting {setting}");
            found += 1;
        }
        assert_eq!(found, 10, "every reason of the table exists");
    }

    #[test]
    fn every_refusal_beyond_a_limit_names_its_setting() {
        for refusal in Refusal::ALL.iter().filter(|refusal| matches!(refusal.status(), 413 | 414 | 431)) {
            let fixed = ["field_name_too_long", "length_overflow", "trailers_too_large"];
            let name = refusal.reason();
            assert_eq!(setting_of(name).is_none(), fixed.contains(&name), "{name}");
        }
    }
}
