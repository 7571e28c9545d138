//! Frames of clients: how long they may be, that they are what they say, and the messages in them.
//!
//! The library's messages read counts and texts as they come: short ones panic, and text that is no UTF-8 is changed
//! without a word. So a frame is walked through first, and given to them once it is known to be whole.
//!
//! # Invariants
//! - Nothing is kept of a frame whose length is over its limit.
//! - No bytes make [`decode`] or [`first`] panic.

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::copy::CopyFail;
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use pgwire::messages::simplequery::Query;
use pgwire::messages::startup::Startup;
use pgwire::messages::{DecodeContext, Message, ProtocolVersion};

use crate::failure::Failure;

/// The first message, and every one until the login is done; as in Postgres.
pub(crate) const LOGIN_BYTES: usize = 10_000;
/// A text of statements.
pub(crate) const TEXT_BYTES: usize = 16 << 20;
/// All values of a statement.
pub(crate) const BIND_BYTES: usize = 64 << 20;
/// A piece of COPY: psycopg sends up to 4 MiB at once.
pub(crate) const COPY_BYTES: usize = 8 << 20;
/// All others: a name or two.
const SMALL_BYTES: usize = 10_000;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// The key of a CancelRequest.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// What a client says once it is logged in.
#[derive(Debug)]
pub(crate) enum Frontend {
    Query(String),
    Parse(Parse),
    Bind(Bind),
    Describe(Describe),
    Execute(Execute),
    Close(Close),
    Sync,
    Flush,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
}

/// What a client says first.
#[derive(Debug)]
pub(crate) enum First {
    Ssl,
    Gss,
    Cancel { process: i32, key: Bytes },
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

fn broken(message: impl Into<String>) -> Failure {
    Failure::new("08P01", message)
}

/// The type of the frame that begins with these bytes, and its bytes in all; `None` if they are too few to say.
///
/// # Errors
/// 08P01 for a type that there is not, and for a length that is too large, or too small for itself.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<(u8, usize)>, Failure> {
    let Some(kind) = bytes.first().copied() else { return Ok(None) };
    let most = match kind {
        b'Q' | b'P' => TEXT_BYTES,
        b'B' => BIND_BYTES,
        b'd' => COPY_BYTES,
        b'D' | b'E' | b'C' | b'S' | b'H' | b'X' | b'c' | b'f' => SMALL_BYTES,
        b'F' => return Err(Failure::new("0A000", "function calls are not supported")),
        _ => return Err(broken(format!("invalid frontend message type {kind}"))),
    };
    length(bytes, 1, most).map(|length| length.map(|length| (kind, length + 1)))
}

/// The same of an answer to a question of the login, which has the type `p`.
///
/// # Errors
/// As [`head`].
pub(crate) fn login_head(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    match bytes.first() {
        None => Ok(None),
        Some(b'p') => length(bytes, 1, LOGIN_BYTES).map(|length| length.map(|length| length + 1)),
        Some(kind) => Err(broken(format!("expected a password, got message type {kind}"))),
    }
}

/// The bytes of the first message; `None` if these are too few to say.
///
/// # Errors
/// As [`head`].
pub(crate) fn first_length(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let length = length(bytes, 0, LOGIN_BYTES)?;
    if length.is_some_and(|length| length < 8) {
        return Err(broken("invalid length of startup packet"));
    }
    Ok(length)
}

fn length(bytes: &[u8], at: usize, most: usize) -> Result<Option<usize>, Failure> {
    let Some(length) = bytes.get(at..at + 4) else { return Ok(None) };
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length < 4 || length > most {
        return Err(broken(format!("invalid message length {length}; at most {most} are taken")));
    }
    Ok(Some(length))
}

/// A walk through a frame's body.
struct Walk<'a>(&'a [u8]);

impl<'a> Walk<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Failure> {
        let taken =
            self.0.get(..bytes).ok_or_else(|| broken("insufficient data left in message"))?;
        self.0 = &self.0[bytes..];
        Ok(taken)
    }

    fn text(&mut self) -> Result<&'a str, Failure> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| broken("invalid string in message"))?;
        let text = self.take(end)?;
        self.take(1)?;
        let not = |error: std::str::Utf8Error| {
            let at = error.valid_up_to();
            let bytes: Vec<String> =
                text[at..].iter().take(4).map(|byte| format!("0x{byte:02x}")).collect();
            let bytes = bytes.join(" ");
            Failure::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {bytes}"))
        };
        std::str::from_utf8(text).map_err(not)
    }

    fn count(&mut self) -> Result<usize, Failure> {
        let count = self.take(2)?;
        Ok(usize::from(u16::from_be_bytes([count[0], count[1]])))
    }

    fn int(&mut self) -> Result<i32, Failure> {
        let int = self.take(4)?;
        Ok(i32::from_be_bytes([int[0], int[1], int[2], int[3]]))
    }

    fn end(self) -> Result<(), Failure> {
        match self.0 {
            [] => Ok(()),
            _ => Err(broken("invalid message format: there is more in it than it may hold")),
        }
    }
}

/// Is the body of a frame what its type says?
fn check(kind: u8, body: &[u8]) -> Result<(), Failure> {
    let mut walk = Walk(body);
    match kind {
        b'Q' | b'f' => drop(walk.text()?),
        b'P' => {
            walk.text()?;
            walk.text()?;
            let types = walk.count()?;
            walk.take(types * 4)?;
        }
        b'B' => {
            walk.text()?;
            walk.text()?;
            let formats = walk.count()?;
            walk.take(formats * 2)?;
            for _ in 0..walk.count()? {
                match walk.int()? {
                    -1 => {}
                    length => {
                        let length = usize::try_from(length);
                        walk.take(length.map_err(|_| broken("invalid length of a value"))?)?;
                    }
                }
            }
            let formats = walk.count()?;
            walk.take(formats * 2)?;
        }
        b'D' | b'C' => {
            if !matches!(walk.take(1)?, b"S" | b"P") {
                return Err(broken("it is neither a statement (S) nor a portal (P)"));
            }
            walk.text()?;
        }
        b'E' => {
            walk.text()?;
            walk.take(4)?;
        }
        b'd' => return Ok(()),
        _ => {}
    }
    walk.end()
}

/// The message in a whole frame, of which [`head`] said type and length.
///
/// # Errors
/// 08P01 if it is not what its type says, 22021 for text that is no UTF-8.
pub(crate) fn decode(mut frame: BytesMut) -> Result<Frontend, Failure> {
    let Some((kind, length)) = head(&frame)? else { return Err(broken("a frame is cut off")) };
    if frame.len() != length {
        return Err(broken("a frame is cut off"));
    }
    check(kind, &frame[5..])?;
    let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_2);
    Ok(match kind {
        b'Q' => Frontend::Query(read::<Query>(frame, &context)?.query),
        b'P' => Frontend::Parse(read(frame, &context)?),
        b'B' => Frontend::Bind(read(frame, &context)?),
        b'D' => Frontend::Describe(read(frame, &context)?),
        b'E' => Frontend::Execute(read(frame, &context)?),
        b'C' => Frontend::Close(read(frame, &context)?),
        b'S' => Frontend::Sync,
        b'H' => Frontend::Flush,
        b'X' => Frontend::Terminate,
        b'd' => {
            frame.advance(5);
            Frontend::CopyData(frame.freeze())
        }
        b'c' => Frontend::CopyDone,
        _ => Frontend::CopyFail(read::<CopyFail>(frame, &context)?.message),
    })
}

fn read<M: Message>(mut frame: BytesMut, context: &DecodeContext) -> Result<M, Failure> {
    let message = M::decode(&mut frame, context).map_err(|error| broken(error.to_string()))?;
    message.ok_or_else(|| broken("a frame is cut off"))
}

/// The mechanism and the first message of SASL in a whole answer to a question of the login.
///
/// # Errors
/// 08P01 if it is none, 22021 for text that is no UTF-8.
pub(crate) fn sasl_first(frame: &[u8]) -> Result<(&str, &[u8]), Failure> {
    let mut walk = Walk(sasl_next(frame)?);
    let mechanism = walk.text()?;
    let length = usize::try_from(walk.int()?).map_err(|_| broken("a SASL message is missing"))?;
    let message = walk.take(length)?;
    walk.end()?;
    Ok((mechanism, message))
}

/// The later message of SASL in a whole answer.
///
/// # Errors
/// 08P01 if it is none.
pub(crate) fn sasl_next(frame: &[u8]) -> Result<&[u8], Failure> {
    frame.get(5..).ok_or_else(|| broken("a frame is cut off"))
}

/// The first message, of which [`first_length`] said the length.
///
/// # Errors
/// 08P01 if it is none, 0A000 for another major version, 22021 for text that is no UTF-8.
pub(crate) fn first(mut packet: BytesMut) -> Result<First, Failure> {
    if first_length(&packet)? != Some(packet.len()) {
        return Err(broken("invalid length of startup packet"));
    }
    let mut walk = Walk(&packet[4..]);
    let code = walk.int()? as u32;
    match code {
        SSL_REQUEST | GSS_REQUEST => {
            walk.end()?;
            return Ok(if code == SSL_REQUEST { First::Ssl } else { First::Gss });
        }
        CANCEL_REQUEST => {
            let process = walk.int()?;
            let key = Bytes::copy_from_slice(walk.0);
            if !KEY_BYTES.contains(&key.len()) {
                return Err(broken("invalid length of a cancel key"));
            }
            return Ok(First::Cancel { process, key });
        }
        _ => {}
    }
    let (major, minor) = (code >> 16, code as u16);
    if major != 3 {
        let message =
            format!("unsupported frontend protocol {major}.{minor}: 3.0 to 3.2 are spoken");
        return Err(Failure::new("0A000", message));
    }
    while walk.0 != [0] {
        walk.text()?;
        walk.text()?;
    }
    if packet.len() == 9 {
        // The library takes no packet that small.
        return Ok(First::Startup { minor, parameters: Vec::new() });
    }
    let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_2);
    let startup = Startup::decode(&mut packet, &context).map_err(|e| broken(e.to_string()))?;
    let startup = startup.ok_or_else(|| broken("invalid startup packet"))?;
    Ok(First::Startup { minor, parameters: startup.parameters.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use pgwire::messages::terminate::Terminate;

    use super::*;

    fn encoded(message: &impl Message) -> BytesMut {
        let mut frame = BytesMut::new();
        message.encode(&mut frame).unwrap();
        frame
    }

    fn frames() -> Vec<BytesMut> {
        let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        vec![
            encoded(&Query::new("SELECT 'ä'".into())),
            encoded(&Parse::new(Some("s".into()), "SELECT $1".into(), vec![20, 0])),
            encoded(&Bind::new(
                None,
                Some("s".into()),
                vec![0, 1],
                vec![bytes("7"), None],
                vec![1],
            )),
            encoded(&Describe::new(b'S', Some("s".into()))),
            encoded(&Execute::new(None, 10)),
            encoded(&Close::new(b'P', None)),
            encoded(&CopyFail::new("no".into())),
            encoded(&Terminate::new()),
        ]
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        for frame in frames() {
            let kind = frame[0];
            assert_eq!(head(&frame).unwrap(), Some((kind, frame.len())));
            match (kind, decode(frame).unwrap()) {
                (b'Q', Frontend::Query(text)) => assert_eq!(text, "SELECT 'ä'"),
                (b'P', Frontend::Parse(parse)) => assert_eq!(parse.type_oids, [20, 0]),
                (b'B', Frontend::Bind(bind)) => assert_eq!(bind.parameters[1], None),
                (b'D', Frontend::Describe(describe)) => assert_eq!(describe.target_type, b'S'),
                (b'E', Frontend::Execute(execute)) => assert_eq!(execute.max_rows, 10),
                (b'C', Frontend::Close(_))
                | (b'f', Frontend::CopyFail(_))
                | (b'X', Frontend::Terminate) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        let refused = |bytes: &[u8]| head(bytes).unwrap_err().code;
        assert_eq!(refused(b"Q\x01\x00\x00\x05"), "08P01");
        assert_eq!(refused(b"Q\xff\xff\xff\xff"), "08P01");
        assert_eq!(refused(b"S\0\0\0\x03"), "08P01");
        assert_eq!(refused(b"z\0\0\0\x04"), "08P01");
        assert_eq!(head(b"Q\x00\x00").unwrap(), None);
        assert_eq!(first_length(&[0, 0, 0x27, 0x11]).unwrap_err().code, "08P01");
        let text = BytesMut::from(&b"Q\0\0\0\x07a\xff\0"[..]);
        assert_eq!(decode(text).unwrap_err().code, "22021");
        let short = BytesMut::from(&b"P\0\0\0\x08\0\0\0\x05"[..]);
        assert_eq!(decode(short).unwrap_err().code, "08P01");
    }

    #[test]
    fn messages_of_sasl_are_read() {
        let frame = [&b"p\0\0\0\0SCRAM-SHA-256\0"[..], &[0, 0, 0, 2], b"n,"].concat();
        assert_eq!(sasl_first(&frame).unwrap(), ("SCRAM-SHA-256", &b"n,"[..]));
        for end in 0..frame.len() {
            assert_eq!(sasl_first(&frame[..end]).unwrap_err().code, "08P01", "{end}");
        }
        assert_eq!(sasl_next(b"p\0\0\0\x05x").unwrap(), b"x");
    }

    #[test]
    fn the_first_message_is_read() {
        let mut packet = BytesMut::new();
        packet.put_slice(b"\0\0\0\0\0\x03\0\x02user\0admin\0database\0lake\0\0");
        let length = packet.len() as u32;
        packet[..4].copy_from_slice(&length.to_be_bytes());
        let First::Startup { minor: 2, parameters } = first(packet).unwrap() else { panic!() };
        assert!(parameters.contains(&("user".into(), "admin".into())));
        let ssl = BytesMut::from(&[0, 0, 0, 8, 4, 210, 22, 47][..]);
        assert!(matches!(first(ssl).unwrap(), First::Ssl));
        let cancel = BytesMut::from(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 1, 2, 3, 4][..]);
        let First::Cancel { process: 7, key } = first(cancel).unwrap() else { panic!() };
        assert_eq!(&key[..], [1, 2, 3, 4]);
        let old = BytesMut::from(&[0, 0, 0, 9, 0, 2, 0, 0, 0][..]);
        assert_eq!(first(old).unwrap_err().code, "0A000");
    }

    #[test]
    fn mutated_frames_make_no_panic() {
        // Ten millions where there is time.
        let rounds = if std::env::var_os("UPLAKE_SOAK").is_some() { 10_000_000 } else { 200_000 };
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let frames = frames();
        let startup = BytesMut::from(&b"\0\0\0\0\0\x03\0\0user\0admin\0a\0b\0\0"[..]);
        let mut whole = 0;
        for round in 0..rounds {
            let is_first = round % 8 == 0;
            let mut frame = match is_first {
                true => startup.clone(),
                false => frames[random() % frames.len()].clone(),
            };
            for _ in 0..=random() % 4 {
                let at = random() % frame.len();
                match random() % 4 {
                    0 => frame[at] = random() as u8,
                    1 => frame[at] ^= 1 << (random() % 8),
                    2 => frame.truncate(at.max(1)),
                    _ => frame.put_u8(random() as u8),
                }
            }
            // Most keep their length right, so that what is behind it is looked at.
            let at = usize::from(!is_first);
            if random() % 8 != 0 && frame.len() >= at + 4 {
                let length = (frame.len() - at) as u32;
                frame[at..at + 4].copy_from_slice(&length.to_be_bytes());
            }
            whole += usize::from(match is_first {
                true => first(frame).is_ok(),
                false => decode(frame).is_ok(),
            });
        }
        assert!(whole > rounds / 100, "{whole}");
    }
}
