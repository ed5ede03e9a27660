//! Seconds since 1970 in the two formats of logs and reports: `21/Nov/2026:21:26:03 +0000` and `2026-11-21T21:26:03`.

/// Length of [`Civil::combined`] in bytes.
const COMBINED_BYTES: usize = 26;
/// Length of [`Civil::rfc3339`] in bytes.
const RFC3339_BYTES: usize = 19;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A date and time of day, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    year: u32,
    /// 1 to 12.
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Civil {
    /// The date `unix_s` seconds after 1970-01-01T00:00:00Z. Dates after the year 9999 become its last second.
    ///
    /// ```
    /// use encke_wire::civil::Civil;
    ///
    /// assert_eq!(&Civil::of(784_111_777).rfc3339(), b"1994-11-06T08:49:37");
    /// ```
    #[must_use]
    pub fn of(unix_s: u64) -> Self {
        let unix_s = unix_s.min(253_402_300_799);
        let (days, second_of_day) = ((unix_s / 86_400) as u32, (unix_s % 86_400) as u32);
        // Days since 0000-03-01, so that the leap day is the last of its year. 400 years are 146,097 days. (Howard Hinnant,
        // "chrono-Compatible Low-Level Date Algorithms", civil_from_days.)
        let day = days + 719_468;
        let (era, day_of_era) = (day / 146_097, day % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: era * 400 + year_of_era + u32::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (second_of_day / 3_600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
        }
    }

    /// The format of the combined log format: `21/Nov/2026:21:26:03 +0000`.
    #[must_use]
    pub fn combined(self) -> [u8; COMBINED_BYTES] {
        let mut text = *b"00/Xxx/0000:00:00:00 +0000";
        put2(&mut text[0..2], self.day);
        text[3..6].copy_from_slice(MONTHS[usize::from(self.month) - 1]);
        put4(&mut text[7..11], self.year);
        self.put_time(&mut text[12..20]);
        text
    }

    /// Parses the combined log format (`21/Nov/2026:21:26:03 +0100`). Returns seconds since 1970, or `None` if the text is
    /// malformed or the date earlier.
    #[must_use]
    pub fn seconds_of_combined(text: &[u8]) -> Option<u64> {
        let text: &[u8; COMBINED_BYTES] = text.try_into().ok()?;
        let marks = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
        if !marks.iter().all(|(at, mark)| text[*at] == *mark) {
            return None;
        }
        let number = |digits: &[u8]| {
            digits
                .iter()
                .try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
        };
        let month = 1 + MONTHS.iter().position(|name| name[..] == text[3..6])? as i64;
        let (day, year) = (number(&text[..2])?, number(&text[7..11])?);
        let (hour, minute, second) = (number(&text[12..14])?, number(&text[15..17])?, number(&text[18..20])?);
        if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let offset = 60 * (60 * number(&text[22..24])? + number(&text[24..])?);
        let offset = match text[21] {
            b'+' => offset,
            b'-' => -offset,
            _ => return None,
        };
        // The inverse of `of`: days since 0000-03-01 (Hinnant, days_from_civil).
        let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days =
            365 * year + year / 4 - year / 100 + year / 400 + (153 * month_from_march + 2) / 5 + day - 1;
        let seconds = (days - 719_468) * 86_400 + 3_600 * hour + 60 * minute + second - offset;
        u64::try_from(seconds).ok()
    }

    /// The format of RFC 3339, without fraction and `Z`: `2026-11-21T21:26:03`.
    #[must_use]
    pub fn rfc3339(self) -> [u8; RFC3339_BYTES] {
        let mut text = *b"0000-00-00T00:00:00";
        put4(&mut text[0..4], self.year);
        put2(&mut text[5..7], self.month);
        put2(&mut text[8..10], self.day);
        self.put_time(&mut text[11..19]);
        text
    }

    fn put_time(self, text: &mut [u8]) {
        put2(&mut text[0..2], self.hour);
        put2(&mut text[3..5], self.minute);
        put2(&mut text[6..8], self.second);
    }
}

fn put2(text: &mut [u8], number: u8) {
    text[0] = b'0' + number / 10;
    text[1] = b'0' + number % 10;
}

fn put4(text: &mut [u8], number: u32) {
    put2(&mut text[0..2], (number / 100) as u8);
    put2(&mut text[2..4], (number % 100) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dates_are_written() {
        let civil = Civil::of(1_795_296_363);
        assert_eq!(&civil.combined(), b"21/Nov/2026:21:26:03 +0000");
        assert_eq!(&civil.rfc3339(), b"2026-11-21T21:26:03");
        assert_eq!(&Civil::of(0).rfc3339(), b"1970-01-01T00:00:00");
        assert_eq!(&Civil::of(951_782_400).rfc3339(), b"2000-02-29T00:00:00");
        assert_eq!(&Civil::of(u64::MAX).rfc3339(), b"9999-12-31T23:59:59");
    }

    #[test]
    fn the_date_of_a_log_is_read_as_it_was_written() {
        for unix_s in (0..253_370_764_799).step_by(86_399 * 31) {
            assert_eq!(Civil::seconds_of_combined(&Civil::of(unix_s).combined()), Some(unix_s));
        }
        let of = |text: &str| Civil::seconds_of_combined(text.as_bytes());
        assert_eq!(of("21/Nov/2026:22:26:03 +0100"), Some(1_795_296_363));
        assert_eq!(of("21/Nov/2026:18:56:03 -0230"), Some(1_795_296_363));
        for text in [
            "",
            "21/Nov/2026:21:26:03",
            "21/Nov/2026:21:26:03 +00000",
            "21/Xov/2026:21:26:03 +0000",
            "00/Nov/2026:21:26:03 +0000",
            "21/Nov/2026:24:26:03 +0000",
            "21/Nov/2026:21:26:03 *0000",
            "21/Nov/2026:21:26:0x +0000",
            "21/Nov/1969:21:26:03 +0000",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT` comes from another implementation.
    #[test]
    fn every_date_agrees_with_the_one_in_answers() {
        for unix_s in (0..253_370_764_799).step_by(86_399 * 31) {
            let fixdate = crate::date::imf_fixdate(unix_s);
            let combined = Civil::of(unix_s).combined();
            assert_eq!(combined[0..2], fixdate[5..7], "{unix_s}");
            assert_eq!(combined[3..6], fixdate[8..11], "{unix_s}");
            assert_eq!(combined[7..11], fixdate[12..16], "{unix_s}");
            assert_eq!(combined[12..20], fixdate[17..25], "{unix_s}");
        }
    }
}
