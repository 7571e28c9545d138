//! Damaged and forged files: an error or the right answer, never a panic, never a wrong answer for
//! what a checksum can notice.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use uplake_btree::{Direction, MemoryFile, Options, PAGE_BYTES, Tree, TreeError};

use crate::random::Random;

fn options() -> Options {
    Options { pool_bytes: 64 * PAGE_BYTES, max_pages: 1 << 12, shards: None }
}

fn key(i: u64) -> Vec<u8> {
    format!("user_{:024x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

const KEYS: u64 = 6000;

fn good() -> Vec<u8> {
    let file = Arc::new(MemoryFile::default());
    let tree = Tree::<[u8]>::create(Arc::clone(&file), options()).expect("create");
    for i in 0..KEYS {
        tree.put(&key(i), i).expect("put");
        if i % 1000 == 999 {
            tree.checkpoint(i).expect("checkpoint");
        }
    }
    file.to_vec()
}

fn opened(bytes: Vec<u8>) -> Result<Tree<[u8]>, TreeError> {
    Tree::open(MemoryFile::new(bytes), options())
}

#[test]
fn one_flipped_bit_is_an_error_or_does_not_matter() {
    let bytes = good();
    let mut random = Random(3);
    let mut errors = 0;
    for _ in 0..150 {
        let mut damaged = bytes.clone();
        let at = random.below(bytes.len());
        damaged[at] ^= 1 << random.below(8);
        let Ok(tree) = opened(damaged) else {
            errors += 1;
            continue;
        };
        // A damaged header leaves the checkpoint before, which is older but whole, or says so.
        let known = tree.position() + 1;
        for i in 0..KEYS {
            match tree.get(&key(i)) {
                Ok(value) => assert_eq!(value, (i < known).then_some(i)),
                Err(TreeError::Corrupt { .. }) => errors += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(errors > 0);
}

#[test]
fn cut_and_mixed_files_are_errors_or_right() {
    let bytes = good();
    let mut random = Random(9);
    for _ in 0..100 {
        let mut damaged = bytes.clone();
        if random.below(2) == 0 {
            damaged.truncate(random.below(bytes.len()));
        } else {
            // Two blocks change places: each passes its own checksum, but not here.
            let blocks = bytes.len() / PAGE_BYTES;
            let (a, b) = (2 + random.below(blocks - 2), 2 + random.below(blocks - 2));
            let block = damaged[a * PAGE_BYTES..(a + 1) * PAGE_BYTES].to_vec();
            damaged.copy_within(b * PAGE_BYTES..(b + 1) * PAGE_BYTES, a * PAGE_BYTES);
            damaged[b * PAGE_BYTES..(b + 1) * PAGE_BYTES].copy_from_slice(&block);
        }
        let Ok(tree) = opened(damaged) else { continue };
        let known = tree.position() + 1;
        for i in 0..KEYS {
            if let Ok(value) = tree.get(&key(i)) {
                assert_eq!(value, (i < known).then_some(i));
            }
        }
    }
}

/// Puts right all checksums, as one who forges a file would.
fn forge(bytes: &mut [u8]) {
    let u32_at = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
    };
    for slot in 0..2 {
        let header = slot * PAGE_BYTES;
        let (map, pages) = (u32_at(bytes, header + 48) * PAGE_BYTES, u32_at(bytes, header + 52));
        let end = map + pages * 8;
        if end > bytes.len() {
            continue;
        }
        for entry in (map..end).step_by(8) {
            let block = u32_at(bytes, entry + 4) * PAGE_BYTES;
            if let Some(page) = bytes.get(block..block + PAGE_BYTES)
                && block > 0
            {
                let checksum = crc32fast::hash(page);
                bytes[entry..entry + 4].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        let checksum = crc32fast::hash(&bytes[map..end]);
        bytes[header + 56..header + 60].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[header..header + 124]);
        bytes[header + 124..header + 128].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Does everything a tree can; errors are fine.
fn use_all(tree: &mut Tree<[u8]>, random: &mut Random) {
    let mut values = vec![None; 40];
    for _ in 0..60 {
        let i = random.next() % (2 * KEYS);
        let _ = tree.get(&key(i));
        let _ = tree.put(&key(i), i);
        let _ = tree.remove(&key(random.next() % KEYS));
        let keys: Vec<_> = (0..40).map(|_| key(random.next() % KEYS)).collect();
        let _ = tree.get_many(&keys, &mut values);
        let direction = [Direction::Forward, Direction::Backward][random.below(2)];
        let mut left = 300;
        let _ = tree.scan(Bound::Included(&keys[0]), Bound::Unbounded, direction, |_, _| {
            left -= 1;
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    let _ = tree.inspect();
    let _ = tree.checkpoint(1);
}

#[test]
fn forged_files_never_panic() {
    let bytes = good();
    let mut random = Random(77);
    let mut opened_well = 0;
    let rounds = std::env::var("UPLAKE_SOAK").ok().and_then(|t| t.parse().ok()).unwrap_or(4);
    for _ in 0..rounds * 100 {
        let mut forged = bytes.clone();
        for _ in 0..=random.below(4) {
            let block = random.below(bytes.len() / PAGE_BYTES);
            // Mostly headers: of the file, of pages, hints.
            let most = if random.below(3) == 0 { PAGE_BYTES } else { 192 };
            let at = block * PAGE_BYTES + random.below(most);
            forged[at] = if random.below(2) == 0 { random.next() as u8 } else { forged[at] ^ 1 };
        }
        forge(&mut forged);
        if let Ok(mut tree) = opened(forged) {
            opened_well += 1;
            use_all(&mut tree, &mut random);
        }
    }
    assert!(opened_well > 20, "{opened_well}: nothing was tested");
}
