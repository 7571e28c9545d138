//! Quotes and escapes: elements of arrays, strings of JSON, fields of COPY.
//!
//! Functions append to a `Vec` or give pieces to a closure, so that they know nothing of frames.

/// What stands for a digit of bytea and of JSON's `\u`.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Whether an element of an array needs quotes, as `array_out` decides.
pub(super) fn element_needs_quotes(value: &[u8]) -> bool {
    value.is_empty() || value.eq_ignore_ascii_case(b"null") || value.iter().any(is_array_syntax)
}

fn is_array_syntax(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// `"a\"b"`
pub(super) fn quote_element(value: &[u8], into: &mut Vec<u8>) {
    into.push(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            into.push(b'\\');
        }
        into.push(*byte);
    }
    into.push(b'"');
}

/// The inside of a JSON string, in pieces, as `escape_json` has it.
pub(super) fn json_escape(text: &str, mut put: impl FnMut(&[u8])) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..0x20 => b"",
            _ => continue,
        };
        put(&bytes[done..at]);
        if escape.is_empty() {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            put(&[b'\\', b'u', b'0', b'0', high, low]);
        } else {
            put(escape);
        }
        done = at + 1;
    }
    put(&bytes[done..]);
}

/// The digits of bytea, in pieces.
pub(super) fn hex(bytes: &[u8], mut put: impl FnMut(&[u8])) {
    for piece in bytes.chunks(32) {
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(piece) {
            *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        }
        put(&digits[..piece.len() * 2]);
    }
}

/// The letter that COPY's text format writes behind a backslash, or the byte itself.
fn copy_letter(byte: u8, delimiter: u8) -> Option<u8> {
    match byte {
        0x08 => Some(b'b'),
        0x0c => Some(b'f'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        0x0b => Some(b'v'),
        b'\\' => Some(b'\\'),
        byte if byte == delimiter => Some(byte),
        _ => None,
    }
}

/// Whether a field of COPY's text format has something to escape.
pub(super) fn copy_needs_escape(value: &[u8], delimiter: u8) -> bool {
    value.iter().any(|byte| copy_letter(*byte, delimiter).is_some())
}

/// A field of COPY's text format.
pub(super) fn copy_escape(value: &[u8], delimiter: u8, into: &mut Vec<u8>) {
    for byte in value {
        match copy_letter(*byte, delimiter) {
            Some(letter) => into.extend_from_slice(&[b'\\', letter]),
            None => into.push(*byte),
        }
    }
}

/// A field of CSV in quotes.
pub(super) fn csv_quote(value: &[u8], quote: u8, escape: u8, into: &mut Vec<u8>) {
    into.push(quote);
    for byte in value {
        if *byte == quote || *byte == escape {
            into.push(escape);
        }
        into.push(*byte);
    }
    into.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(value: &str) -> String {
        if !element_needs_quotes(value.as_bytes()) {
            return value.to_owned();
        }
        let mut quoted = Vec::new();
        quote_element(value.as_bytes(), &mut quoted);
        String::from_utf8(quoted).unwrap()
    }

    #[test]
    fn elements_are_quoted_as_by_array_out() {
        for (value, expected) in [
            ("a", "a"),
            ("", "\"\""),
            ("NULL", "\"NULL\""),
            ("nUll", "\"nUll\""),
            ("nulls", "nulls"),
            ("a b", "\"a b\""),
            ("a\"b", "\"a\\\"b\""),
            ("a\\b", "\"a\\\\b\""),
            ("{x}", "\"{x}\""),
            ("a,b", "\"a,b\""),
            ("a\tb", "\"a\tb\""),
            ("a;b'é", "a;b'é"),
        ] {
            assert_eq!(element(value), expected);
        }
    }

    #[test]
    fn strings_of_json_have_no_control_characters() {
        let mut found = Vec::new();
        json_escape("x\"y\\z/\u{1}\t\n\r\u{8}\u{c}\u{7f}é", |piece| {
            found.extend_from_slice(piece)
        });
        let expected = "x\\\"y\\\\z/\\u0001\\t\\n\\r\\b\\f\u{7f}é";
        assert_eq!(String::from_utf8(found).unwrap(), expected);
    }

    #[test]
    fn bytes_are_two_digits_each() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut found = Vec::new();
        hex(&bytes, |piece| found.extend_from_slice(piece));
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(String::from_utf8(found).unwrap(), expected);
    }

    #[test]
    fn copy_escapes_its_delimiter_and_control_characters() {
        let mut found = Vec::new();
        assert!(!copy_needs_escape("plain é|".as_bytes(), b'\t'));
        let value = b"a\tb\\c|d\ne\x08\x0c\r\x0b\x01";
        assert!(copy_needs_escape(value, b'|'));
        copy_escape(value, b'|', &mut found);
        assert_eq!(found, b"a\\tb\\\\c\\|d\\ne\\b\\f\\r\\v\x01");
        found.clear();
        csv_quote(b"a\"b'c", b'"', b'"', &mut found);
        assert_eq!(found, b"\"a\"\"b'c\"");
        found.clear();
        csv_quote(b"a\"b'c", b'"', b'\'', &mut found);
        assert_eq!(found, b"\"a'\"b''c\"");
    }
}
