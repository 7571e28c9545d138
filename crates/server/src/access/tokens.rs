//! Tokens for programs: 32 random bytes that stand for a role, of which the lake has the SHA-256 alone.
//!
//! No salt and no rounds: 256 random bits are not guessed, and a token is looked up at each request.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::passwords::equal;

/// Random bytes of a token.
pub const TOKEN_BYTES: usize = 32;
/// What tokens begin with, so that those that look for leaked ones find them.
pub const TOKEN_PREFIX: &str = "uplake_";
/// What clocks of two machines may differ by.
pub const CLOCK_MILLIS: i64 = 5 * 60 * 1000;

/// SHA-256 of a token's text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Of a token as it is shown to the server.
    pub fn of(token: &str) -> Self {
        let mut hash = [0; 32];
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        URL_SAFE_NO_PAD.encode(hash.0)
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "a token's hash is no base64")?;
        bytes.try_into().map(Self).map_err(|_| "a token's hash has 32 bytes")
    }
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// What its owner calls it.
    pub name: String,
    /// Whose rights it has.
    pub role: String,
    pub hash: TokenHash,
    /// Milliseconds since 1970, UTC.
    pub made_at: i64,
    /// The last moment, milliseconds since 1970, UTC; no end without.
    #[serde(default)]
    pub valid_until: Option<i64>,
}

/// The text of a new token, which is shown once, of random bytes.
pub fn token_text(random: &[u8; TOKEN_BYTES]) -> String {
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// The token that a text is, if it is valid now; each is compared to its end.
pub fn find<'a>(tokens: &'a [Token], text: &str, now: i64) -> Option<&'a Token> {
    let hash = TokenHash::of(text);
    let mut found = None;
    for token in tokens {
        if equal(&token.hash.0, &hash.0) {
            found = Some(token);
        }
    }
    found.filter(|token| is_valid(token, now))
}

/// One that ended or was made within [`CLOCK_MILLIS`] may be valid by another machine's clock.
pub fn is_valid(token: &Token, now: i64) -> bool {
    let has_ended = token.valid_until.is_some_and(|end| now > end.saturating_add(CLOCK_MILLIS));
    !has_ended && now >= token.made_at.saturating_sub(CLOCK_MILLIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(random: u8, valid_until: Option<i64>) -> (String, Token) {
        let text = token_text(&[random; TOKEN_BYTES]);
        let (name, role) = (format!("token {random}"), "ann".to_owned());
        let hash = TokenHash::of(&text);
        (text, Token { name, role, hash, made_at: 1_000_000_000, valid_until })
    }

    #[test]
    fn a_token_is_found_by_its_text_alone() {
        let (one, first) = token(1, None);
        let (two, second) = token(2, None);
        assert_eq!(one.len(), "uplake_".len() + 43);
        let tokens = [first.clone(), second.clone()];
        let now = 1_000_000_000;
        assert_eq!(find(&tokens, &one, now), Some(&first));
        assert_eq!(find(&tokens, &two, now), Some(&second));
        let hash = String::from(first.hash);
        for other in ["", "uplake_", &one[..one.len() - 1], &format!("{one} "), &hash] {
            assert_eq!(find(&tokens, other, now), None, "{other}");
        }
    }

    #[test]
    fn a_token_ends_five_minutes_after_its_time() {
        let end = 2_000_000_000;
        let (_, until) = token(1, Some(end));
        for (now, valid) in [
            (1_000_000_000 - CLOCK_MILLIS - 1, false),
            (1_000_000_000 - CLOCK_MILLIS, true),
            (end, true),
            (end + CLOCK_MILLIS, true),
            (end + CLOCK_MILLIS + 1, false),
        ] {
            assert_eq!(is_valid(&until, now), valid, "{now}");
        }
        assert!(is_valid(&token(1, None).1, i64::MAX));
        assert!(is_valid(&token(1, Some(i64::MAX)).1, i64::MAX));
    }

    #[test]
    fn what_is_kept_does_not_have_the_token() {
        let (text, token) = token(1, None);
        let json = serde_json::to_string(&token).unwrap();
        assert!(!json.contains(&text["uplake_".len()..]));
        assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
        assert!(!format!("{token:?}").contains(&String::from(token.hash)));
        assert!(serde_json::from_str::<Token>(&json.replace("made_at", "born")).is_err());
        assert!(TokenHash::try_from("AAAA".to_owned()).is_err());
    }
}
