//! What a statement is a part of, in a trace of its client: W3C's `traceparent`.
//!
//! It comes as a header of HTTP or Flight, by `SET uplake.traceparent`, and in a comment as SQLCommenter writes it, at
//! the statement's beginning or end, which wins. What is none is as if nothing came, as W3C has it.

use crate::labels::Labels;

/// The name of the header, and in a comment.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// Bytes of the end of a statement that are looked at for a comment.
const COMMENT_BYTES: usize = 4096;

/// A span of a client, of which a statement is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub trace: u128,
    pub span: u64,
    /// The lowest bit: it is sampled.
    pub flags: u8,
}

impl TraceParent {
    /// `00-<trace>-<span>-<flags>` in hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut digits = |count: usize| {
            let part = parts.next()?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (part.len() == count && part.bytes().all(is_hex)).then_some(part)
        };
        let (version, trace, span, flags) = (digits(2)?, digits(32)?, digits(16)?, digits(2)?);
        // Later versions may have more behind.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        Some(Self { trace, span, flags: u8::from_str_radix(flags, 16).ok()? })
    }

    /// That of a statement. It is no label.
    pub fn take(labels: &mut Labels, text: &str) -> Option<Self> {
        let label = labels.remove(TRACEPARENT);
        appended(text).or_else(|| label.as_deref().and_then(Self::parse))
    }
}

/// What a comment at the end of a statement says.
fn appended(text: &str) -> Option<TraceParent> {
    let text = text.trim_end().trim_end_matches(';').trim_end().strip_suffix("*/")?;
    let (from, bytes) = (text.len().saturating_sub(COMMENT_BYTES), text.as_bytes());
    let at = bytes[from..].windows(2).rposition(|pair| pair == b"/*")?;
    let comment = text.get(from + at + 2..)?;
    comment.split(',').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim().trim_matches('\'');
        (name.trim() == TRACEPARENT).then(|| TraceParent::parse(value))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn expected() -> TraceParent {
        let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        TraceParent { trace, span: 0x00f0_67aa_0ba9_02b7, flags: 1 }
    }

    #[test]
    fn parents_are_read_as_w3c_writes_them() {
        assert_eq!(TraceParent::parse(TEXT), Some(expected()));
        assert_eq!(TraceParent::parse(&format!("cc{}-more", &TEXT[2..])), Some(expected()));
        let with = |from: &str, to: &str| TEXT.replace(from, to);
        for wrong in [
            "",
            "00",
            &TEXT[..54],
            &format!("{TEXT}-more"),
            &format!("ff{}", &TEXT[2..]),
            &with("4bf9", "4BF9"),
            &with("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &with("00f067aa0ba902b7", &"0".repeat(16)),
            &with("-01", "-0g"),
            "éé-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_statements_own_comment_wins_and_is_no_label() {
        let other = TEXT.replace("4bf9", "1234");
        let take = |label: &str, text: &str| {
            let mut labels = crate::labels::of_statement(&Labels::new(), text);
            if !label.is_empty() {
                labels.insert(TRACEPARENT.to_owned(), label.to_owned());
            }
            let found = TraceParent::take(&mut labels, text);
            assert!(!labels.contains_key(TRACEPARENT), "{text}");
            found
        };
        assert_eq!(take("", "SELECT 1"), None);
        assert_eq!(take(TEXT, "SELECT 1"), Some(expected()));
        assert_eq!(take("", &format!("/*traceparent='{TEXT}'*/ SELECT 1")), Some(expected()));
        for end in ["", ";", " ;\n"] {
            let text = format!("SELECT 1 /*db_driver='x%20y',traceparent='{TEXT}'*/{end}");
            assert_eq!(take(&other, &text), Some(expected()), "{text}");
        }
        let long = format!("SELECT '{}' /*traceparent='{TEXT}'*/", "ä".repeat(10_000));
        assert_eq!(take("", &long), Some(expected()));
        for text in ["/*", "*/", "SELECT 1 */", "/**/", "SELECT 1 /* traceparent */"] {
            assert_eq!(take(TEXT, text), Some(expected()), "{text}");
        }
    }
}
