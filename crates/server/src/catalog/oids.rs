//! Numbers for the objects of a lake.
//!
//! # Invariants
//! - A number is made of the object's name alone, so that it is the same on every machine and after a restart. Two
//!   names that come to one number are told apart by the order of the names: one in 10⁴ lakes of 200 tables has two such.
//! - It is at least 16384, as of Postgres' objects that are not its own, and fits 31 bits, as drivers want it.

use std::collections::{BTreeSet, HashMap, HashSet};

/// Postgres' own objects have smaller ones.
pub(super) const FIRST: i64 = 16_384;
/// One after the last.
const END: i64 = 1 << 31;

/// The numbers of names, which are given in any order.
pub(super) fn oids(names: impl IntoIterator<Item = String>) -> HashMap<String, i64> {
    let names: BTreeSet<String> = names.into_iter().collect();
    let mut taken = HashSet::new();
    let number = |name: String| {
        let mut oid = hashed(&name);
        while !taken.insert(oid) {
            oid = if oid + 1 < END { oid + 1 } else { FIRST };
        }
        (name, oid)
    };
    names.into_iter().map(number).collect()
}

/// FNV-1a of 64 bits, with the high half folded in.
fn hashed(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let places = (END - FIRST) as u64;
    FIRST + (mixed % places) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> HashMap<String, i64> {
        oids(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn a_number_is_its_names_alone() {
        let (few, many) = (of(&["a", "b"]), of(&["c", "b", "a"]));
        assert_eq!(few["a"], many["a"]);
        assert_eq!(few["b"], many["b"]);
        assert!(many.values().all(|oid| (FIRST..END).contains(oid)));
        // Kept as it was: lakes are read by clients that remember numbers.
        assert_eq!(of(&["table users"])["table users"], 388_681_145);
    }

    #[test]
    fn thousands_of_names_have_numbers_of_their_own() {
        let names = (0..20_000).map(|n| format!("t{n}"));
        let oids = oids(names);
        let different: HashSet<i64> = oids.values().copied().collect();
        assert_eq!(different.len(), 20_000);
    }
}
