//! Runs come back as they were, and bytes that nobody wrote give an error and no panic.

use uplake_testkit::random::Random;

use super::*;
use crate::keys::{KeyHeap, sorted_rows};

fn heap<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> KeyHeap {
    let mut heap = KeyHeap::default();
    keys.into_iter().for_each(|key| heap.push(key));
    heap
}

fn bytes_of(keys: &KeyHeap) -> Vec<u8> {
    let head = Head { kind: Kind::Run, number: 7, nonce: 70, domain: 10, first_id: 5 };
    encode(head, keys, &sorted_rows(keys))
}

fn random_keys(count: usize, longest: u64, seed: u64) -> KeyHeap {
    let mut random = Random::new(seed);
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| (0..random.below(longest)).map(|_| b'a' + random.below(3) as u8).collect())
        .collect();
    let mut seen = std::collections::HashSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    heap(keys.iter().map(Vec::as_slice))
}

fn check(keys: &KeyHeap) {
    let run = decode("run", &bytes_of(keys)).expect("what was written");
    assert_eq!((run.header.number, run.header.first_id, run.len()), (7, 5, keys.len()));
    (0..keys.len()).for_each(|row| assert_eq!(run.key(row), keys.key(row), "row {row}"));
}

#[test]
fn keys_come_back_in_order_of_arrival() {
    check(&heap([]));
    check(&heap([&b""[..]]));
    check(&heap([&b"b"[..], b"", b"a", b"ab", b"a\0", b"\xff"]));
    let long = [vec![b'x'; MAX_KEY_BYTES], vec![b'x'; MAX_KEY_BYTES - 1], vec![b'y'; 40_000]];
    check(&heap(long.iter().map(Vec::as_slice)));
    // Several blocks.
    check(&random_keys(40_000, 30, 1));
    check(&random_keys(300, 3_000, 2));
}

#[test]
fn bytes_are_those_of_the_format() {
    let bytes = bytes_of(&heap([&b"bob"[..], b"anna", b"ann"]));
    assert_eq!(bytes[..12], *b"UPLKDRUN\x01\0\x01\0");
    assert_eq!(bytes[96..104], [25, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[108..], b"\0\x03ann\x02\0\0\0\x03\x01a\x01\0\0\0\0\x03bob\0\0\0\0"[..]);
}

#[test]
fn an_emptied_run_keeps_its_header() {
    let bytes = bytes_of(&heap([&b"a"[..], b"b"]));
    let header = Header::parse("run", &bytes).expect("a header");
    let emptied = Header::parse("run", &header.emptied()).expect("a header");
    assert!(emptied.emptied && emptied.bytes == 96);
    assert_eq!((emptied.count, emptied.nonce), (header.count, header.nonce));
    assert!(matches!(decode("run", &header.emptied()), Err(DomainError::Corrupt { .. })));
}

#[test]
fn a_newer_format_says_so() {
    let mut bytes = bytes_of(&heap([&b"a"[..]]));
    bytes[8] = 2;
    seal(&mut bytes);
    assert!(matches!(decode("run", &bytes), Err(DomainError::TooNew { found: 2, .. })));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = bytes_of(&random_keys(60, 12, 3));
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        decode("run", &wrong).expect_err("a flipped bit");
        decode("run", &bytes[..at]).expect_err("a cut");
    }
    decode("run", &[&bytes[..], b"\0"].concat()).expect_err("a byte too many");
}

/// Makes all checksums right again, as far as the table can be followed.
fn seal(bytes: &mut [u8]) {
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(*bytes[at..].first_chunk().expect("within the header")) as usize
    };
    let blocks = number(bytes, 64);
    let table = HEADER_BYTES..(HEADER_BYTES + blocks.saturating_mul(TABLE_ENTRY_BYTES));
    if table.end <= bytes.len() {
        let mut start = table.end;
        for at in table.clone().step_by(TABLE_ENTRY_BYTES) {
            let end = start.saturating_add(number(bytes, at));
            let Some(block) = bytes.get(start..end) else { break };
            let crc = crc32fast::hash(block);
            bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
            start = end;
        }
        let crc = crc32fast::hash(&bytes[table]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn forged_runs_are_refused_or_are_runs() {
    let rounds = 300_000 * uplake_testkit::soak();
    let mut random = Random::new(5);
    let originals: Vec<Vec<u8>> =
        [random_keys(30, 9, 6), random_keys(3, 300, 7), heap([])].iter().map(bytes_of).collect();
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..rounds {
        let mut bytes = originals[random.below(3) as usize].clone();
        for _ in 0..=random.below(3) {
            let at = 12 + random.below(bytes.len() as u64 - 12) as usize;
            bytes[at] = match random.below(4) {
                0 => random.bits() as u8,
                1 => bytes[at].wrapping_add(1),
                2 => 0,
                _ => 0xFF,
            };
        }
        if random.chance(0.2) {
            let length =
                HEADER_BYTES + random.below((bytes.len() - HEADER_BYTES + 1) as u64) as usize;
            bytes.truncate(length);
        }
        seal(&mut bytes);
        match decode("run", &bytes) {
            Err(_) => refused += 1,
            Ok(run) => {
                taken += 1;
                let rows = sorted_rows(&run);
                assert!(rows.is_sorted_by(|a, b| run.key(*a as usize) < run.key(*b as usize)));
                assert!(u64::from(run.header.first_id) + run.len() as u64 <= MAX_IDS);
            }
        }
    }
    assert!(refused > rounds / 3 && taken > rounds / 100, "{refused} refused, {taken} taken");
}
