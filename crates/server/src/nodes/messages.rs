//! What nodes say to each other: hello, a part, how a part ended.
//!
//! # Invariants
//! - What is read may be anything: it is refused, never believed and never a panic.
//! - A ticket in which a bit has changed is none: of a number in a plan nobody else would see it.

use bytes::{BufMut, Bytes, BytesMut};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};
use uplake_engine::{PartError, Share};

/// Bytes of a ticket: a plan with lists of hundreds of thousands of literals. What is larger is computed where it is.
pub(super) const TICKET_BYTES: usize = 16 << 20;
/// What a ticket ends with: the SHA-256 of the rest.
pub(super) const SUM_BYTES: usize = SHA256_OUTPUT_LEN;
/// What stands before the plan, at most.
const HEAD_BYTES: usize = 1 << 20;

/// The names of actions.
pub(super) const HELLO: &str = "hello";
pub(super) const CANCEL: &str = "cancel";

/// What a node says of itself, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HelloMessage {
    pub name: String,
    pub start: u64,
    pub warehouse: String,
    pub works: bool,
    pub draining: bool,
    pub format: u64,
    pub lake: String,
    /// For people.
    pub version: String,
    /// Parts that it computes now.
    pub parts: usize,
}

/// What a part is told beside its plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The statement, as the coordinator numbers it: with this it is cancelled.
    pub query: String,
    /// From 1, of how many.
    pub part: usize,
    pub parts: usize,
    /// Who asks.
    pub from: String,
    pub format: u64,
    pub lake: String,
    /// What is left of the statement's time.
    pub left_ms: Option<u64>,
    share: SentShare,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SentShare {
    Ids { ranges: Vec<(u32, u32)>, without_id: bool },
    Stretch { part: u32, parts: u32 },
}

impl Head {
    pub fn share(&self) -> Share {
        match &self.share {
            SentShare::Ids { ranges, without_id } => {
                let ranges = ranges.iter().map(|(from, to)| *from..*to).collect();
                Share::Ids { ranges, without_id: *without_id }
            }
            SentShare::Stretch { part, parts } => Share::Stretch { part: *part, parts: *parts },
        }
    }
}

/// What all parts of a statement are told.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub query: String,
    pub parts: usize,
    pub from: String,
    pub format: u64,
    pub lake: String,
}

/// The ticket of a part, which ends with its sum; `None` if it is too large.
pub(super) fn ticket(
    common: &Common,
    (part, share): (usize, &Share),
    left_ms: Option<u64>,
    fragment: &[u8],
) -> Option<Bytes> {
    let share = match share {
        Share::Ids { ranges, without_id } => SentShare::Ids {
            ranges: ranges.iter().map(|range| (range.start, range.end)).collect(),
            without_id: *without_id,
        },
        Share::Stretch { part, parts } => SentShare::Stretch { part: *part, parts: *parts },
    };
    let Common { query, parts, from, format, lake } = common.clone();
    let head = Head { query, part, parts, from, format, lake, left_ms, share };
    let head = serde_json::to_vec(&head).ok()?;
    let length = 4 + head.len() + fragment.len() + SUM_BYTES;
    if head.len() > HEAD_BYTES || length > TICKET_BYTES {
        return None;
    }
    let mut ticket = BytesMut::with_capacity(length);
    ticket.put_u32(head.len() as u32);
    ticket.extend_from_slice(&head);
    ticket.extend_from_slice(fragment);
    let sum = digest(&SHA256, &ticket);
    ticket.extend_from_slice(sum.as_ref());
    Some(ticket.freeze())
}

/// The SHA-256 that a ticket ends with, and what it is of; `None` if these bytes are none.
fn sum_of(ticket: &[u8]) -> Option<(&[u8], &[u8; SUM_BYTES])> {
    let (rest, sum) = ticket.split_last_chunk()?;
    (digest(&SHA256, rest).as_ref() == sum).then_some((rest, sum))
}

/// What a ticket says, the plan, and the ticket's sum.
pub(super) fn read_ticket(ticket: &Bytes) -> Result<(Head, Bytes, &[u8]), String> {
    let no_ticket = || "this is no ticket of a part".to_owned();
    let (whole, sum) = sum_of(ticket).ok_or_else(no_ticket)?;
    let (length, rest) = whole.split_first_chunk::<4>().ok_or_else(no_ticket)?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > HEAD_BYTES || length > rest.len() {
        return Err(no_ticket());
    }
    let head = serde_json::from_slice(&rest[..length]).map_err(|_| no_ticket())?;
    Ok((head, ticket.slice(4 + length..whole.len()), sum))
}

/// How a part ended: the last message of its answer.
#[derive(Debug)]
pub(super) enum End {
    Done {
        rows: u64,
    },
    /// As the statement would have on one node.
    Failed(PartError),
    /// The node cannot do this part: it has another version, or other tables.
    Refused(String),
    /// The node is about to end.
    Draining,
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const REFUSED: u8 = 2;
const DRAINING: u8 = 3;

impl End {
    pub fn into_bytes(self) -> Bytes {
        let (kind, rest) = match self {
            Self::Done { rows } => (DONE, rows.to_be_bytes().to_vec()),
            Self::Failed(error) => (FAILED, error.into_bytes()),
            Self::Refused(why) => (REFUSED, why.into_bytes()),
            Self::Draining => (DRAINING, Vec::new()),
        };
        [vec![kind], rest].concat().into()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (kind, rest) = bytes.split_first().ok_or("a part does not say how it ended")?;
        match (*kind, <[u8; 8]>::try_from(rest)) {
            (DONE, Ok(rows)) => Ok(Self::Done { rows: u64::from_be_bytes(rows) }),
            (FAILED, _) => Ok(Self::Failed(PartError::from_bytes(rest))),
            (REFUSED, _) => Ok(Self::Refused(String::from_utf8_lossy(rest).into_owned())),
            (DRAINING, _) => Ok(Self::Draining),
            _ => Err("a part ended in a way that is not known here".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use uplake_engine::{EngineError, SqlState};

    use super::*;

    #[test]
    fn tickets_are_read_as_they_were_written_or_refused() {
        let common = Common {
            query: "00ff".into(),
            parts: 3,
            from: "127.0.0.1:1".into(),
            format: u64::MAX,
            lake: "/lake".into(),
        };
        let ids = Share::Ids { ranges: vec![0..8, 24..u32::MAX], without_id: true };
        for (number, share) in [(1, ids), (3, Share::Stretch { part: 2, parts: 3 })] {
            let bytes = ticket(&common, (number, &share), Some(7), b"plan").unwrap();
            let (head, plan, _) = read_ticket(&bytes).unwrap();
            assert_eq!((head.share(), head.part, head.left_ms), (share, number, Some(7)));
            assert_eq!((head.format, &plan[..]), (u64::MAX, b"plan".as_slice()));
            for end in 0..bytes.len() {
                assert!(read_ticket(&bytes.slice(..end)).is_err(), "cut off after {end}");
            }
            for (at, flip) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)))
            {
                let mut other = bytes.to_vec();
                other[at] ^= flip;
                assert!(read_ticket(&other.into()).is_err(), "{flip} of {at} is changed");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(read_ticket(&longer.into()).is_err());
        }
        let share = Share::Stretch { part: 0, parts: 1 };
        assert!(ticket(&common, (1, &share), None, &vec![0; TICKET_BYTES]).is_none());
        assert!(read_ticket(&Bytes::from_static(&[0xff; 40])).is_err());
        // Bytes with a sum that are no ticket.
        for bytes in [&b""[..], b"\0\0\0\x02{}rest", b"\xff\xff\xff\xff{}", b"\0\0\0\x03{}"] {
            let with_sum = [bytes, digest(&SHA256, bytes).as_ref()].concat();
            assert!(sum_of(&with_sum).is_some() && read_ticket(&with_sum.into()).is_err());
        }
    }

    #[test]
    fn ends_are_read_as_they_were_written_or_refused() {
        let sent = |end: End| End::from_bytes(&end.into_bytes());
        assert!(
            matches!(sent(End::Done { rows: 1 << 40 }), Ok(End::Done { rows }) if rows == 1 << 40)
        );
        assert!(matches!(sent(End::Draining), Ok(End::Draining)));
        assert!(matches!(sent(End::Refused("no".into())), Ok(End::Refused(why)) if why == "no"));
        let error = EngineError::execution(SqlState::DivisionByZero, "by zero");
        let Ok(End::Failed(failed)) = sent(End::Failed(error.into())) else { panic!("it failed") };
        assert!(failed.to_string().contains("by zero"), "{failed}");
        for bytes in [&[][..], &[9], &[DONE, 1, 2]] {
            assert!(End::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }
}
