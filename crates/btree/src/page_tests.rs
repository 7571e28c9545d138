//! One page against a sorted list, and against hostile bytes.

use super::*;
use crate::raw::Arena;
use std::collections::BTreeMap;

/// Miri takes some 1000 times as long.
const IS_SLOW: bool = cfg!(miri);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Keys that are alike for a while, end early, and hold zeros.
fn any_key(random: &mut Random, lower: &[u8]) -> Vec<u8> {
    let mut key = lower.to_vec();
    let most = if random.below(10) == 0 { 60 } else { 14 };
    let len = random.below(most);
    key.extend((0..len).map(|_| [0, 0, 1, b'a', 255][random.below(5)]));
    key
}

fn contents<K: Sealed + ?Sized>(page: Page<'_>) -> Vec<(Vec<u8>, u64)> {
    let mut entries = Entries::default();
    page.copy_entries::<K>(0..page.count::<K>(), &mut entries);
    (0..entries.len()).map(|i| (entries.key(i).to_vec(), entries.value(i))).collect()
}

#[test]
fn a_page_of_bytes_keys_behaves_like_a_sorted_map() {
    let arena = Arena::new(1).expect("a page of memory");
    for seed in 1..if IS_SLOW { 3 } else { 60 } {
        let mut random = Random(seed * 7919);
        let page = Page::new(arena.frame(0));
        page.format::<[u8]>(3, 0);
        let prefix = vec![b'p'; random.below(12)];
        let fences = Fences::new(Some(&prefix), Some(&[&prefix[..], &[255, 255, 255]].concat()));
        page.rewrite::<[u8]>(&Entries::default(), 0..0, &fences);
        let mut model = BTreeMap::new();
        for step in 0..if IS_SLOW { 150 } else { 1500 } {
            let key = any_key(&mut random, &prefix);
            if !fences.contain(&key) {
                continue;
            }
            let found = page.search(key.as_slice());
            assert_eq!(found.is_ok(), model.contains_key(&key), "seed {seed} step {step}");
            match found {
                Ok(at) if random.below(3) == 0 => {
                    page.remove::<[u8]>(at);
                    model.remove(&key);
                }
                Ok(at) => assert_eq!(page.value::<[u8]>(at), model[&key]),
                Err(at) => {
                    let has_room = page.has_room::<[u8]>(key.len(), None);
                    let is_done = page.insert(at, key.as_slice(), step);
                    assert!(is_done || !has_room, "seed {seed} step {step}");
                    if is_done {
                        model.insert(key, step);
                    } else {
                        let victim = model.keys().nth(random.below(model.len()));
                        let key = victim.expect("a full page").clone();
                        page.remove::<[u8]>(page.search(key.as_slice()).expect("it is there"));
                        model.remove(&key);
                    }
                }
            }
            page.check::<[u8]>().unwrap_or_else(|what| panic!("seed {seed} step {step}: {what}"));
        }
        assert_eq!(contents::<[u8]>(page), model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_page_of_numbers_behaves_like_a_sorted_map() {
    let arena = Arena::new(1).expect("a page of memory");
    let page = Page::new(arena.frame(0));
    page.format::<u64>(3, 0);
    let mut random = Random(99);
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..if IS_SLOW { 400 } else { 20_000 } {
        let key = if random.below(50) == 0 { u64::MAX } else { random.next() % 700 };
        match page.search(&key) {
            Ok(at) => {
                assert_eq!(page.value::<u64>(at), model[&key]);
                if random.below(2) == 0 {
                    page.remove::<u64>(at);
                    model.remove(&key);
                }
            }
            Err(at) => {
                assert!(!model.contains_key(&key));
                if page.insert(at, &key, step) {
                    model.insert(key, step);
                } else {
                    assert_eq!(model.len(), FIXED_CAPACITY);
                    page.remove::<u64>(random.below(FIXED_CAPACITY));
                    model = contents::<u64>(page).iter().map(|(k, v)| (head_of(k), *v)).collect();
                }
            }
        }
        page.check::<u64>().expect("a whole page");
    }
    let model: Vec<_> = model.into_iter().map(|(k, v)| (k.to_be_bytes().to_vec(), v)).collect();
    assert_eq!(contents::<u64>(page), model);
}

/// Uses a page in every way a reader does.
fn read_all<K: Sealed + ?Sized>(page: Page<'_>, key: &K) {
    let _ = (page.search(key), page.child_of(key), page.child_before(key), page.fences());
    let _ = (page.is_below_upper(key), page.is_rightmost(), page.fill::<K>());
    let start = page.prefetch_block(key);
    page.prefetch_tail(start, key);
    let _ = (page.search_in(240, key), page.child_in(240, key));
    let _ = contents::<K>(page);
}

#[test]
fn hostile_pages_are_refused_and_never_panic() {
    let arena = Arena::new(2).expect("two pages of memory");
    let (good, bad) = (Page::new(arena.frame(0)), Page::new(arena.frame(1)));
    let mut random = Random(4242);
    let mut accepted = 0;
    for round in 0..if IS_SLOW { 20 } else { 4000 } {
        let is_fixed = round % 2 == 0;
        if is_fixed {
            good.format::<u64>(3, 0);
        } else {
            good.format::<[u8]>(3, 0);
            let fences = Fences::new(Some(b"user_1"), Some(b"user_2"));
            good.rewrite::<[u8]>(&Entries::default(), 0..0, &fences);
        }
        for _ in 0..random.below(80) {
            let number = random.next();
            let key = format!("user_1{:x}", number >> random.below(60)).into_bytes();
            if is_fixed {
                if let Err(at) = good.search(&number) {
                    good.insert(at, &number, 1);
                }
            } else if let Err(at) = good.search(key.as_slice()) {
                good.insert(at, key.as_slice(), 1);
            }
        }
        let mut image = vec![0; PAGE_BYTES];
        good.write_image(&mut image);
        for _ in 0..=random.below(4) {
            // Mostly the header and the hints, where one byte does most harm.
            let at =
                if random.below(3) == 0 { random.below(PAGE_BYTES) } else { random.below(192) };
            image[at] = random.next() as u8;
        }
        bad.read_image(&image);
        let key = image[random.below(60)..][..random.below(40)].to_vec();
        read_all::<u64>(bad, &random.next());
        read_all::<[u8]>(bad, &key);
        let is_accepted =
            if is_fixed { bad.check::<u64>().is_ok() } else { bad.check::<[u8]>().is_ok() };
        if is_accepted {
            // What passes the check can be changed without a panic.
            accepted += 1;
            for step in 0..300 {
                let number = random.next() >> random.below(60);
                if is_fixed {
                    match bad.search(&number) {
                        Ok(at) => bad.remove::<u64>(at),
                        Err(at) => drop(bad.insert(at, &number, step)),
                    }
                } else {
                    let key = format!("user_1{number:x}").into_bytes();
                    match bad.search(key.as_slice()) {
                        Ok(at) => bad.remove::<[u8]>(at),
                        Err(at) => drop(bad.insert(at, key.as_slice(), step)),
                    }
                }
            }
        }
    }
    assert!(IS_SLOW || accepted > 100, "{accepted}: the damage was too great to test anything");
}
