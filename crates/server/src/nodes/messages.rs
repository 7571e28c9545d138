//! What nodes say to each other: hello, a part, how a part ended.
//!
//! # Invariants
//! - What is read may be anything: it is refused, never believed and never a panic.
//! - A ticket in which a bit has changed is none: of a number in a plan nobody else would see it.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};
use uplake_engine::{PartError, Share, Spent};

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
    pub shuffles: Shuffles,
}

/// What a part has to do with rows that change nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shuffles {
    /// A statement that is begun anew has other rows.
    pub attempt: u32,
    /// Its rows are kept for others.
    pub keeps: Option<Keeps>,
    pub reads: Vec<Reads>,
    /// It is done, and its rows are fetched.
    pub fetch: Option<Fetch>,
}

/// How rows are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keeps {
    pub shuffle: u32,
    pub keys: Vec<u32>,
    pub buckets: u32,
}

/// Rows that a part reads, and who has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reads {
    pub shuffle: u32,
    /// All of them together.
    pub size: Size,
    pub from: Vec<At>,
}

/// Rows of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Size {
    pub rows: u64,
    /// As they travel.
    pub bytes: u64,
}

/// Where a part's rows are, and whose name is in the certificate there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct At {
    pub address: String,
    pub host: String,
    pub part: usize,
}

/// Which rows of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fetch {
    pub shuffle: u32,
    pub bucket: u32,
}

impl Shuffles {
    /// Of a part that neither keeps nor reads any.
    pub fn of(attempt: u32) -> Self {
        Self { attempt, ..Self::default() }
    }

    pub fn reads(&self, shuffle: u32) -> Option<&Reads> {
        self.reads.iter().find(|reads| reads.shuffle == shuffle)
    }
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
    shuffles: &Shuffles,
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
    let shuffles = shuffles.clone();
    let head = Head { query, part, parts, from, format, lake, left_ms, share, shuffles };
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

/// A node that has rows which cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub address: String,
    pub why: String,
}

/// How a part ended: the last message of its answer.
#[derive(Debug)]
pub(super) enum End {
    Done {
        rows: u64,
        spent: Spent,
    },
    /// As the statement would have on one node.
    Failed(PartError),
    /// The node cannot do this part: it has another version, or other tables.
    Refused(String),
    /// The node is about to end.
    Draining,
    /// It is done, and its rows are kept, so many in each bucket, for as long as the call lasts.
    Kept(Vec<Size>, Spent),
    /// Rows that it reads are lost, with the node that had them.
    RowsLost(Lost),
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const REFUSED: u8 = 2;
const DRAINING: u8 = 3;
const KEPT: u8 = 4;
const ROWS_LOST: u8 = 5;

impl End {
    pub fn into_bytes(self) -> Bytes {
        let (kind, rest) = match self {
            Self::Done { rows, spent } => {
                let numbers: Vec<u64> = [rows].into_iter().chain(numbers_of(spent)).collect();
                (DONE, to_bytes(&numbers))
            }
            Self::Failed(error) => (FAILED, error.into_bytes()),
            Self::Refused(why) => (REFUSED, why.into_bytes()),
            Self::Draining => (DRAINING, Vec::new()),
            Self::Kept(sizes, spent) => {
                let sizes = sizes.iter().flat_map(|size| [size.rows, size.bytes]);
                let numbers: Vec<u64> = numbers_of(spent).into_iter().chain(sizes).collect();
                (KEPT, to_bytes(&numbers))
            }
            Self::RowsLost(Lost { address, why }) => {
                (ROWS_LOST, [address.as_bytes(), &[0], why.as_bytes()].concat())
            }
        };
        [vec![kind], rest].concat().into()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (kind, rest) = bytes.split_first().ok_or("a part does not say how it ended")?;
        match (*kind, numbers(rest).as_slice()) {
            (DONE, [rows, spent @ ..]) if spent.len() == SPENT => {
                Ok(Self::Done { rows: *rows, spent: spent_of(spent) })
            }
            (FAILED, _) => Ok(Self::Failed(PartError::from_bytes(rest))),
            (REFUSED, _) => Ok(Self::Refused(String::from_utf8_lossy(rest).into_owned())),
            (DRAINING, _) => Ok(Self::Draining),
            (KEPT, numbers) if numbers.len() >= SPENT => {
                let (spent, sizes) = numbers.split_at(SPENT);
                let sizes = sizes.chunks_exact(2);
                let sizes = sizes.map(|pair| Size { rows: pair[0], bytes: pair[1] }).collect();
                Ok(Self::Kept(sizes, spent_of(spent)))
            }
            (ROWS_LOST, _) => {
                let text = String::from_utf8_lossy(rest).into_owned();
                let (address, why) =
                    text.split_once('\0').ok_or("a part does not say who is lost")?;
                Ok(Self::RowsLost(Lost { address: address.to_owned(), why: why.to_owned() }))
            }
            _ => Err("a part ended in a way that is not known here".to_owned()),
        }
    }
}

/// Numbers that [`Spent`] has.
const SPENT: usize = 4;

fn numbers_of(spent: Spent) -> [u64; SPENT] {
    let nanos = u64::try_from(spent.busy.as_nanos()).unwrap_or(u64::MAX);
    [nanos, spent.bytes_read, spent.gets, spent.lists]
}

fn spent_of(numbers: &[u64]) -> Spent {
    let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
    let busy = Duration::from_nanos(number(0));
    Spent { busy, bytes_read: number(1), gets: number(2), lists: number(3) }
}

fn to_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// The numbers that bytes are; none of bytes that are something else.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
    if rest.is_empty() { numbers.collect() } else { Vec::new() }
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
        let shuffles = Shuffles {
            attempt: 2,
            keeps: Some(Keeps { shuffle: 1, keys: vec![0, 3], buckets: 3 }),
            reads: vec![Reads {
                shuffle: 0,
                size: Size { rows: 1 << 40, bytes: 7 },
                from: vec![At { address: "127.0.0.1:1".into(), host: "n".into(), part: 1 }],
            }],
            fetch: Some(Fetch { shuffle: 0, bucket: 2 }),
        };
        let ids = Share::Ids { ranges: vec![0..8, 24..u32::MAX], without_id: true };
        for (number, share) in [(1, ids), (3, Share::Stretch { part: 2, parts: 3 })] {
            let bytes = ticket(&common, (number, &share), &shuffles, Some(7), b"plan").unwrap();
            let (head, plan, _) = read_ticket(&bytes).unwrap();
            assert_eq!((head.share(), head.part, head.left_ms), (share, number, Some(7)));
            assert_eq!((head.format, &plan[..]), (u64::MAX, b"plan".as_slice()));
            assert_eq!(head.shuffles, shuffles);
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
        assert!(ticket(&common, (1, &share), &shuffles, None, &vec![0; TICKET_BYTES]).is_none());
        assert!(read_ticket(&Bytes::from_static(&[0xff; 40])).is_err());
        // Bytes with a sum that are no ticket.
        for bytes in [&b""[..], b"\0\0\0\x02{}rest", b"\xff\xff\xff\xff{}", b"\0\0\0\x03{}"] {
            let with_sum = [bytes, digest(&SHA256, bytes).as_ref()].concat();
            assert!(sum_of(&with_sum).is_some() && read_ticket(&with_sum.into()).is_err());
        }
    }

    #[test]
    fn ends_are_read_as_they_were_written_or_refused() {
        let spent =
            Spent { busy: Duration::from_micros(7), bytes_read: 1 << 40, gets: 3, lists: u64::MAX };
        let sent = |end: End| End::from_bytes(&end.into_bytes());
        assert!(matches!(
            sent(End::Done { rows: 1 << 40, spent }),
            Ok(End::Done { rows, spent: read }) if rows == 1 << 40 && read == spent
        ));
        assert!(matches!(sent(End::Draining), Ok(End::Draining)));
        for sizes in [vec![], vec![Size { rows: 1, bytes: 1 << 40 }, Size::default()]] {
            let kept = sent(End::Kept(sizes.clone(), spent));
            assert!(matches!(kept, Ok(End::Kept(read, paid)) if read == sizes && paid == spent));
        }
        let lost = Lost { address: "127.0.0.1:1".into(), why: "gone".into() };
        let read = sent(End::RowsLost(lost.clone()));
        assert!(matches!(read, Ok(End::RowsLost(read)) if read == lost));
        assert!(matches!(sent(End::Refused("no".into())), Ok(End::Refused(why)) if why == "no"));
        let error = EngineError::execution(SqlState::DivisionByZero, "by zero");
        let Ok(End::Failed(failed)) = sent(End::Failed(error.into())) else { panic!("it failed") };
        assert!(failed.to_string().contains("by zero"), "{failed}");
        for bytes in [&[][..], &[9], &[DONE, 1, 2], &[KEPT, 1], &[ROWS_LOST, b'a']] {
            assert!(End::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }
}
