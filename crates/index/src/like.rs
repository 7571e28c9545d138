//! LIKE patterns: what they say literally.

/// The literal parts of a LIKE pattern.
pub(crate) fn pieces(pattern: &str, escape: Option<char>) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            // An escape at the end stands for itself.
            _ if Some(c) == escape => Some(chars.next().unwrap_or(c)),
            '%' | '_' => None,
            _ => Some(c),
        };
        match (literal, pieces.last_mut()) {
            (Some(c), Some(piece)) => piece.push(c),
            _ => pieces.push(String::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_cut_at_their_wildcards() {
        for (pattern, expected) in [
            ("", vec![]),
            ("%", vec![]),
            ("%shop%", vec!["shop"]),
            ("a_b%c", vec!["a", "b", "c"]),
            (r"100\%%", vec!["100%"]),
            (r"a\\b\_", vec![r"a\b_"]),
            (r"a\", vec![r"a\"]),
        ] {
            assert_eq!(pieces(pattern, Some('\\')), expected, "{pattern}");
        }
        assert_eq!(pieces(r"a\%", None), [r"a\"]);
    }
}
