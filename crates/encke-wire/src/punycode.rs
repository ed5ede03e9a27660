//! The ASCII form of host names with other letters: Punycode (RFC 3492), with the prefix `xn--` (RFC 5890 §2.3.2.1).
//!
//! This is for messages that propose a name. Letters are changed to lower case, and nothing else is mapped (UTS 46).

// The parameters of RFC 3492 §5.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const BIAS_INITIAL: u32 = 72;
const N_INITIAL: u32 = 128;

/// Maximum length of a label, in bytes (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// The ASCII form of a host name. `None` if a label is too long, or if the name has characters that no host name has.
///
/// ```
/// use encke_wire::punycode::to_ascii;
///
/// assert_eq!(to_ascii("Bücher.test").as_deref(), Some("xn--bcher-kva.test"));
/// assert_eq!(to_ascii("a b.test"), None);
/// ```
pub fn to_ascii(host: &str) -> Option<String> {
    let labels: Option<Vec<String>> = host.split('.').map(label_to_ascii).collect();
    labels.map(|labels| labels.join("."))
}

/// The end of an error about a URL, an address or a host name: its host in the ASCII form. Empty if the host is ASCII.
///
/// ```
/// use encke_wire::punycode::remark;
///
/// assert!(remark("http://bücher.test:80/").ends_with("is written xn--bcher-kva.test"));
/// assert_eq!(remark("http://a.test/ü"), "");
/// ```
pub fn remark(text: &str) -> String {
    let (_, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.split(['/', ':', '?', '#']).next().unwrap_or_default();
    match to_ascii(host).filter(|_| !host.is_ascii() && host.contains('.')) {
        Some(ascii) => format!("; a name with other letters than ASCII is written {ascii}"),
        None => String::new(),
    }
}

fn label_to_ascii(label: &str) -> Option<String> {
    let lower: Vec<char> = label.chars().flat_map(char::to_lowercase).collect();
    let is_letter = |letter: &char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '*');
    let text = if !lower.iter().all(is_letter) {
        return None;
    } else if lower.iter().all(char::is_ascii) {
        lower.into_iter().collect()
    } else {
        format!("xn--{}", encode(&lower)?)
    };
    (text.len() <= LABEL_BYTES_MAX).then_some(text)
}

/// Encodes a label (RFC 3492 §6.3).
fn encode(label: &[char]) -> Option<String> {
    let mut output: String = label.iter().filter(|letter| letter.is_ascii()).collect();
    let basic = u32::try_from(output.len()).ok()?;
    let mut handled = basic;
    if basic > 0 {
        output.push('-');
    }
    let (mut n, mut delta, mut bias) = (N_INITIAL, 0_u32, BIAS_INITIAL);
    while (handled as usize) < label.len() {
        let next = label.iter().map(|&letter| u32::from(letter)).filter(|&code| code >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for code in label.iter().map(|&letter| u32::from(letter)) {
            if code < n {
                delta = delta.checked_add(1)?;
            } else if code == n {
                let mut rest = delta;
                for k in (BASE..).step_by(BASE as usize) {
                    let threshold = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
                    if rest < threshold {
                        break;
                    }
                    output.push(digit(threshold + (rest - threshold) % (BASE - threshold)));
                    rest = (rest - threshold) / (BASE - threshold);
                }
                output.push(digit(rest));
                bias = adapted(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(output)
}

/// The letter of a digit: `a` to `z` for 0 to 25, `0` to `9` for 26 to 35.
fn digit(value: u32) -> char {
    char::from_digit((value + 10) % BASE, BASE).map_or('a', |letter| {
        // `from_digit` has the numbers first.
        if value < 26 { letter } else { char::from_digit(value - 26, 10).unwrap_or('0') }
    })
}

/// Adapts the bias (RFC 3492 §6.1).
fn adapted(delta: u32, points: u32, is_first: bool) -> u32 {
    let mut delta = delta / if is_first { DAMP } else { 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_ascii_form_of_other_programs() {
        // By Python's codec `idna`.
        for (name, expected) in [
            ("bücher.test", "xn--bcher-kva.test"),
            ("münchen.de", "xn--mnchen-3ya.de"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("пример.испытание", "xn--e1afmkfd.xn--80akhbyknj4f"),
            ("ü", "xn--tda"),
            ("*.Bücher.test", "*.xn--bcher-kva.test"),
            ("a.test", "a.test"),
        ] {
            assert_eq!(to_ascii(name).as_deref(), Some(expected), "{name}");
        }
        let long = "ü".repeat(64);
        for name in ["a b", "http://ü", "ü:80", &long] {
            assert_eq!(to_ascii(name), None, "{name}");
        }
    }
}
