//! Passwords: verifiers made of them, and logins that are checked against these by SCRAM-SHA-256 (RFC 7677).
//!
//! # Invariants
//! - A password is never kept, in memory longer than it takes to make or check a verifier, nor in the lake.
//! - Who has no role of that name hears what one hears who has a wrong password: salt and count of rounds look
//!   like a role's and stay the same, and the answer comes at the end.
//!
//! # Not here
//! Frames of a protocol, who may log in (`model`), channel binding: SCRAM-SHA-256-PLUS is not offered.

use std::fmt;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{
    SCRAM_ITERATIONS, ScramSecret, ScramServerAuth, ScramServerAuthWaitingForClientFinal,
    gen_salted_password,
};
use pgwire::error::PgWireError;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::error::{AccessError, Result};

/// Bytes of a salt, PostgreSQL's.
pub const SALT_BYTES: usize = 16;
/// Of SHA-256.
const KEY_BYTES: usize = 32;
/// More rounds than this hold up each login, and the server's thread for HTTP Basic; PostgreSQL's default
/// is 4,096.
const MAX_ITERATIONS: usize = 1_000_000;
/// Longer ones are work for the server and nothing else.
pub const PASSWORD_MAX_BYTES: usize = 1024;
const MECHANISM: &str = "SCRAM-SHA-256";

/// What is kept of a password, in PostgreSQL's form: `SCRAM-SHA-256$4096:salt$stored:server`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Verifier {
    salt: Vec<u8>,
    iterations: usize,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl Verifier {
    /// Of a new password.
    ///
    /// # Errors
    /// [`AccessError::Value`] for one that is empty or too long.
    pub fn new(password: &str, salt: [u8; SALT_BYTES]) -> Result<Self> {
        if password.is_empty() || password.len() > PASSWORD_MAX_BYTES {
            let text = format!("a password has 1 to {PASSWORD_MAX_BYTES} bytes");
            return Err(AccessError::Value(text));
        }
        Ok(Self::salted(password, salt.to_vec(), SCRAM_ITERATIONS))
    }

    fn salted(password: &str, salt: Vec<u8>, iterations: usize) -> Self {
        let salted = gen_salted_password(password, &salt, iterations);
        let client_key = mac(&salted, &[b"Client Key"]);
        let stored = ring::digest::digest(&ring::digest::SHA256, &client_key);
        let mut stored_key = [0; KEY_BYTES];
        stored_key.copy_from_slice(stored.as_ref());
        Self { stored_key, server_key: mac(&salted, &[b"Server Key"]), salt, iterations }
    }

    /// Of its text, such as PostgreSQL's `pg_authid` has it.
    ///
    /// # Errors
    /// [`AccessError::Value`] if it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || AccessError::Value(format!("a verifier is `{MECHANISM}$4096:salt$key:key`"));
        let mut parts = text.split(['$', ':']);
        let mut next = || parts.next().ok_or_else(bad);
        let (mechanism, iterations) = (next()?, next()?);
        let (salt, stored, server) = (next()?, next()?, next()?);
        let iterations: usize = iterations.parse().map_err(|_| bad())?;
        let key = |text: &str| -> Result<[u8; KEY_BYTES]> {
            let bytes = STANDARD.decode(text).map_err(|_| bad())?;
            bytes.try_into().map_err(|_| bad())
        };
        let salt = STANDARD.decode(salt).map_err(|_| bad())?;
        let (stored_key, server_key) = (key(stored)?, key(server)?);
        let verifier = Self { salt, iterations, stored_key, server_key };
        let fits = (1..=MAX_ITERATIONS).contains(&iterations) && !verifier.salt.is_empty();
        // Each has one form: `+4096` and a mechanism in lower case are not it.
        if !fits || mechanism != MECHANISM || verifier.to_string() != text {
            return Err(bad());
        }
        Ok(verifier)
    }

    fn secret(&self) -> ScramSecret {
        ScramSecret::Verifier {
            salt: self.salt.clone(),
            iterations: self.iterations,
            stored_key: self.stored_key.to_vec(),
            server_key: self.server_key.to_vec(),
        }
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|part| STANDARD.encode(part));
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

/// Logs do not have it.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

impl TryFrom<String> for Verifier {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Verifier> for String {
    fn from(verifier: Verifier) -> Self {
        verifier.to_string()
    }
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// No such role, or not its password: nobody is told which.
    #[error("password authentication failed for user")]
    Wrong,
    /// A message is none of SCRAM's.
    #[error("malformed SCRAM message")]
    Malformed,
}

impl LoginError {
    /// PostgreSQL's code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Wrong => "28P01",
            Self::Malformed => "08P01",
        }
    }
}

/// What a server answers for names that no role has: the same for a name as long as the server runs, and not
/// to be told from a role's.
#[derive(Clone)]
pub struct Strangers(hmac::Key);

impl fmt::Debug for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Strangers(..)")
    }
}

impl Strangers {
    /// `secret`: random, this server's own, and better the same when it is started again.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// No password fits it but by finding what hashes to a given value.
    fn verifier(&self, name: &str) -> Verifier {
        let part = |what: &[u8]| {
            let mut context = hmac::Context::with_key(&self.0);
            context.update(what);
            context.update(name.as_bytes());
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(context.sign().as_ref());
            key
        };
        Verifier {
            salt: part(b"salt\0")[..SALT_BYTES].to_vec(),
            iterations: SCRAM_ITERATIONS,
            stored_key: part(b"stored\0"),
            server_key: part(b"server\0"),
        }
    }
}

/// A login by SCRAM of which the server has answered the first message.
#[derive(Debug)]
pub struct Login {
    waiting: ScramServerAuthWaitingForClientFinal,
    is_known: bool,
}

impl Login {
    /// Answers the client's first message: what to send, and what waits for the second. `known`: the role's
    /// verifier; `None` if no such role can log in by a password.
    ///
    /// # Errors
    /// [`LoginError::Malformed`].
    pub fn begin(
        name: &str,
        known: Option<&Verifier>,
        strangers: &Strangers,
        client_first: &[u8],
    ) -> Result<(String, Self), LoginError> {
        // Made for each, so that it takes the same time.
        let fake = strangers.verifier(name);
        let secret = known.unwrap_or(&fake).secret();
        let answer =
            ScramServerAuth::new().on_client_first_message_with_secret(client_first, secret);
        let (server_first, waiting) = answer.map_err(|_| LoginError::Malformed)?;
        Ok((server_first, Self { waiting, is_known: known.is_some() }))
    }

    /// Answers the client's second message: what to send when it is let in.
    ///
    /// # Errors
    /// [`LoginError::Wrong`] and [`LoginError::Malformed`].
    pub fn finish(self, client_final: &[u8]) -> Result<String, LoginError> {
        let answer = self.waiting.on_client_final_message(client_final);
        let server_final = answer.map_err(|error| match error {
            PgWireError::InvalidPassword(_) => LoginError::Wrong,
            _ => LoginError::Malformed,
        })?;
        if self.is_known { Ok(server_final) } else { Err(LoginError::Wrong) }
    }
}

/// Is it the password? Takes as long for a name that no role has: some milliseconds of a core.
pub fn check_plain(
    name: &str,
    password: &str,
    known: Option<&Verifier>,
    strangers: &Strangers,
) -> bool {
    if password.len() > PASSWORD_MAX_BYTES {
        return false;
    }
    let fake = strangers.verifier(name);
    let expected = known.unwrap_or(&fake);
    let found = Verifier::salted(password, expected.salt.clone(), expected.iterations);
    let same = equal(&found.stored_key, &expected.stored_key)
        & equal(&found.server_key, &expected.server_key);
    same && known.is_some()
}

/// Compares in a time that says nothing of where they differ.
pub(super) fn equal(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> bool {
    let differ = |all: u8, (a, b): (&u8, &u8)| black_box(all | (a ^ b));
    black_box(a.iter().zip(b).fold(0, differ)) == 0
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    let mut tag = [0; KEY_BYTES];
    tag.copy_from_slice(context.sign().as_ref());
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    /// A client: its last message for a server's first, and what the server then has to say.
    fn client_final(bare: &str, server_first: &str, password: &str) -> (String, String) {
        let part = |name: &str| {
            server_first.split(',').find_map(|part| part.strip_prefix(name)).unwrap().to_owned()
        };
        let salt = STANDARD.decode(part("s=")).unwrap();
        let salted = gen_salted_password(password, &salt, part("i=").parse().unwrap());
        let client_key = mac(&salted, &[b"Client Key"]);
        let stored = ring::digest::digest(&ring::digest::SHA256, &client_key);
        let without_proof = format!("c=biws,r={}", part("r="));
        let message = format!("{bare},{server_first},{without_proof}");
        let signature = mac(stored.as_ref(), &[message.as_bytes()]);
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let server = mac(&mac(&salted, &[b"Server Key"]), &[message.as_bytes()]);
        let proof = format!("{without_proof},p={}", STANDARD.encode(proof));
        (proof, format!("v={}", STANDARD.encode(server)))
    }

    fn log_in(known: Option<&Verifier>, password: &str) -> (String, Result<String, LoginError>) {
        let strangers = Strangers::new(&SECRET);
        let bare = "n=,r=fyko";
        let first = format!("n,,{bare}");
        let (server_first, login) =
            Login::begin("ann", known, &strangers, first.as_bytes()).unwrap();
        let (last, expected) = client_final(bare, &server_first, password);
        let answer = login.finish(last.as_bytes());
        if let Ok(answer) = &answer {
            assert_eq!(*answer, expected, "the server knows the password, too");
        }
        (server_first, answer)
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_vector_of_the_rfc_comes_out() {
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let bare = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        let (last, server_final) = client_final(bare, server_first, "pencil");
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(last, expected);
        assert_eq!(server_final, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");

        // Of the RFC's proof the verifier's stored key comes out.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::new("pencil", salt.try_into().unwrap()).unwrap();
        let (without_proof, proof) = expected.split_once(",p=").unwrap();
        let message = format!("{bare},{server_first},{without_proof}");
        let signature = mac(&verifier.stored_key, &[message.as_bytes()]);
        let proof = STANDARD.decode(proof).unwrap();
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let stored = ring::digest::digest(&ring::digest::SHA256, &client_key);
        assert_eq!(stored.as_ref(), verifier.stored_key);
        let server = mac(&verifier.server_key, &[message.as_bytes()]);
        assert_eq!(format!("v={}", STANDARD.encode(server)), server_final);
    }

    #[test]
    fn a_verifier_is_its_text() {
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        let text = verifier.to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:AQEBAQEBAQEBAQEBAQEBAQ==$"), "{text}");
        assert_eq!(Verifier::parse(&text).unwrap(), verifier);
        let json = serde_json::to_string(&verifier).unwrap();
        assert_eq!(serde_json::from_str::<Verifier>(&json).unwrap(), verifier);
        assert!(!format!("{verifier:?}").contains("AQEB"));
        for bad in [
            "",
            "pencil",
            "md5abc",
            &text[..text.len() - 4],
            &text.replace("4096", "0"),
            &text.replace("4096", "99999999"),
            &text.replace("SHA-256", "SHA-512"),
            &format!("{text}:x"),
        ] {
            assert_eq!(Verifier::parse(bad).unwrap_err().code(), "22023", "{bad}");
        }
        assert!(Verifier::new("", [1; 16]).is_err());
        assert!(Verifier::new(&"x".repeat(1025), [1; 16]).is_err());
    }

    #[test]
    fn the_password_lets_in_and_another_does_not() {
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        assert!(log_in(Some(&verifier), "pencil").1.unwrap().starts_with("v="));
        assert_eq!(log_in(Some(&verifier), "pencils").1, Err(LoginError::Wrong));
        assert_eq!(LoginError::Wrong.code(), "28P01");
    }

    #[test]
    fn a_stranger_hears_what_a_wrong_password_hears() {
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        let (known_first, known_last) = log_in(Some(&verifier), "wrong");
        let (first, last) = log_in(None, "wrong");
        assert_eq!(last, known_last);
        assert_eq!(last, Err(LoginError::Wrong));
        let shape = |first: &str| -> Vec<(String, usize)> {
            first.split(',').map(|part| (part[..2].to_owned(), part.len())).collect()
        };
        assert_eq!(shape(&first), shape(&known_first));
        let salt = |first: &str| first.split(',').nth(1).unwrap().to_owned();
        assert_eq!(salt(&first), salt(&log_in(None, "other").0), "the salt stays");
        let strangers = Strangers::new(&SECRET);
        assert_ne!(strangers.verifier("ann"), strangers.verifier("bob"));
        assert_ne!(strangers.verifier("ann"), Strangers::new(&[8; 32]).verifier("ann"));
    }

    #[test]
    fn messages_that_are_none_are_refused() {
        let strangers = Strangers::new(&SECRET);
        for first in ["", "x", "n,,n=a", "p=tls-unique,,n=a,r=b", "n,,m=x,n=a,r=b"] {
            let error = Login::begin("ann", None, &strangers, first.as_bytes()).unwrap_err();
            assert_eq!(error, LoginError::Malformed, "{first}");
        }
        assert!(Login::begin("ann", None, &strangers, &[0xff, 0xfe]).is_err());
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        for last in ["", "c=biws", "c=biws,r=other,p=AAAA", "c=eSws,r=other,p=AAAA"] {
            let begin = || Login::begin("ann", Some(&verifier), &strangers, b"n,,n=a,r=b");
            let error = begin().unwrap().1.finish(last.as_bytes()).unwrap_err();
            assert_eq!(error.code(), "08P01", "{last}");
        }
    }

    #[test]
    fn a_plain_password_is_compared_with_the_verifier() {
        let strangers = Strangers::new(&SECRET);
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        let check = |password: &str| check_plain("ann", password, Some(&verifier), &strangers);
        assert!(check("pencil"));
        assert!(!check("pencils") && !check("") && !check(&"x".repeat(2000)));
        assert!(!check_plain("ann", "pencil", None, &strangers));
    }

    #[test]
    fn keys_that_differ_anywhere_are_not_equal() {
        let key = [5; 32];
        assert!(equal(&key, &key));
        for byte in 0..32 {
            let mut other = key;
            other[byte] ^= 0x80;
            assert!(!equal(&key, &other), "byte {byte}");
        }
    }
}
