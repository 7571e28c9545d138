//! Until when a certificate is good: the one thing of it that is read here.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbs SEQUENCE { [0] version, serial INTEGER, algorithm SEQUENCE, issuer SEQUENCE,
//!                                           validity SEQUENCE { from Time, until Time }, … }, … }
//! ```
//! RFC 5280, sections 4.1 and 4.1.2.5, in DER.
//!
//! # Not here
//! Whether anybody vouches for it, which its clients ask.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Seconds since 1970, UTC, when a certificate ends; `None` if these bytes are none.
pub(crate) fn expires(der: &[u8]) -> Option<i64> {
    let (mut certificate, _) = inside(der, SEQUENCE)?;
    let (mut body, _) = inside(certificate, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        (_, body) = next(body)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        (_, body) = next(body)?;
    }
    (certificate, _) = inside(body, SEQUENCE)?;
    let (_, until) = next(certificate)?;
    let kind = *until.first()?;
    let (text, _) = inside(until, kind)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    match kind {
        // Years are those from 1950 to 2049.
        UTC_TIME if text.len() == 12 => {
            let year: i64 = number(text, 0, 2)?;
            seconds(year + if year < 50 { 2000 } else { 1900 }, &text[2..])
        }
        GENERALIZED_TIME if text.len() == 14 => seconds(number(text, 0, 4)?, &text[4..]),
        _ => None,
    }
}

/// What is in the value that these bytes begin with, if it is of that kind, and the bytes behind it.
fn inside(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    (bytes.first() == Some(&kind)).then(|| next(bytes)).flatten()
}

/// What is in the value that these bytes begin with, and the bytes behind it.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.get(1..)?.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(short), rest),
        // More than 4 GiB are none of ours.
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn number(text: &str, at: usize, length: usize) -> Option<i64> {
    text.get(at..at + length)?.parse().ok()
}

/// Of a year and `MMDDhhmmss`.
fn seconds(year: i64, rest: &str) -> Option<i64> {
    let part = |at: usize| number(rest, at * 2, 2);
    let (month, day) = (part(0)?, part(1)?);
    // Days since 1970 in the calendar that begins each year in March, so that its leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(kind: u8, parts: &[Vec<u8>]) -> Vec<u8> {
        let inside = parts.concat();
        let length = inside.len() as u32;
        let mut bytes = vec![kind];
        match length {
            0..128 => bytes.push(length as u8),
            _ => {
                bytes.push(0x84);
                bytes.extend(length.to_be_bytes());
            }
        }
        bytes.extend(inside);
        bytes
    }

    fn certificate(kind: u8, until: &str) -> Vec<u8> {
        let from = der(UTC_TIME, &[b"240101000000Z".to_vec()]);
        let validity = der(SEQUENCE, &[from, der(kind, &[until.as_bytes().to_vec()])]);
        let (serial, empty) = (der(2, &[vec![7]]), der(SEQUENCE, &[]));
        let issuer = der(SEQUENCE, &[vec![0; 300]]);
        let version = der(VERSION, &[der(2, &[vec![2]])]);
        let body = der(SEQUENCE, &[version, serial, empty, issuer, validity]);
        der(SEQUENCE, &[body])
    }

    /// Expected by `date -u -d … +%s`.
    #[test]
    fn the_end_is_read_in_both_forms() {
        for (kind, until, expected) in [
            (UTC_TIME, "270115080910Z", Some(1_800_000_550)),
            (UTC_TIME, "240229235959Z", Some(1_709_251_199)),
            (UTC_TIME, "700101000000Z", Some(0)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20000301000000Z", Some(951_868_800)),
            (UTC_TIME, "2701150809Z", None),
            (4, "270115080910Z", None),
        ] {
            assert_eq!(expires(&certificate(kind, until)), expected, "{until}");
        }
    }

    #[test]
    fn bytes_that_are_cut_are_none() {
        let whole = certificate(UTC_TIME, "270115080910Z");
        for end in 0..whole.len() {
            assert_eq!(expires(&whole[..end]), None, "{end}");
        }
    }
}
