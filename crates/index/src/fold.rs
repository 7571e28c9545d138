//! Case: one spelling for all that a comparison without case takes for the same.

/// `c` without case: lower, upper and lower again, so that ſ and s, ς and σ, ẞ and ss agree.
///
/// Each character is folded alone, so a part of a text folds to a part of the folded text.
pub(crate) fn fold(c: char, mut each: impl FnMut(char)) {
    match c {
        '\0'..='\x7f' => each(c.to_ascii_lowercase()),
        // Han, kana and what lies between have no case; asking takes a search of a table.
        '\u{2e80}'..='\u{a63f}' => each(c),
        _ => {
            let upper = c.to_lowercase().flat_map(char::to_uppercase);
            upper.flat_map(char::to_lowercase).for_each(each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: impl Iterator<Item = char>) -> String {
        let mut out = String::new();
        text.for_each(|c| fold(c, |c| out.push(c)));
        out
    }

    #[test]
    fn a_character_folds_like_its_upper_and_lower_case() {
        // No script with case lies beyond the second plane.
        for c in '\0'..='\u{1ffff}' {
            let all = folded(std::iter::once(c));
            assert_eq!(all, folded(c.to_lowercase()), "{c:?}");
            // Where upper case is a character of its own; ŉ becomes two that stand for it.
            if c.to_uppercase().count() == 1 {
                assert_eq!(all, folded(c.to_uppercase()), "{c:?}");
            }
        }
        assert_eq!(folded("Straße ΣΑΣ ſet".chars()), folded("STRASSE σας SET".chars()));
    }
}
