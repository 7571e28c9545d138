//! Assignment against every published vector.
//!
//! The few vectors here are copied from the projects named in `assignment.rs`; the full set is
//! read from the reference data when it is present.

use crate::reference;
use serde_json::Value;
use uplake_experiment::assignment::*;

fn vectors() -> Option<Value> {
    reference::json("assignment_vectors.json")
}

fn list<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    path.iter().fold(value, |value, key| &value[*key]).as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn range(value: &Value) -> Range {
    Range { low: number(&value[0]), high: number(&value[1]) }
}

#[test]
fn one_vector_of_each_system_holds_without_the_reference_data() {
    assert_eq!(growthbook_hash("", "a", 1), Some(0.22));
    assert_eq!(growthbook_hash("seed", "a", 2), Some(0.0505));
    assert_eq!(growthbook_hash("abc", "def", 99), None);
    assert_eq!(optimizely_bucket("ppid1", "1886780721"), 5254);
    assert_eq!(unleash_value("123", "gr1", 100, 0), 73);
    assert_eq!(eppo_shard("alice", 10_000), 3170);
    assert_eq!(planout_hash("test_salt", "foo", "4") % 8, 7);
    assert_eq!(statsig_hash("salt", "rule", "1"), 5_870_333_665_503_101_779);
}

#[test]
fn growthbook_hashes_and_namespaces_are_those_of_its_sdk() {
    let Some(all) = vectors() else {
        return;
    };
    for row in list(&all, &["growthbook", "hash"]) {
        let version = row[2].as_u64().expect("a version") as u32;
        let found = growthbook_hash(text(&row[0]), text(&row[1]), version);
        assert_eq!(found, row[3].as_f64(), "{row}");
    }
    for row in list(&all, &["growthbook", "inNamespace"]) {
        let slice = Range { low: number(&row[2][1]), high: number(&row[2][2]) };
        let found = growthbook_in_namespace(text(&row[1]), text(&row[2][0]), slice);
        assert_eq!(Some(found), row[3].as_bool(), "{row}");
    }
}

#[test]
fn growthbook_ranges_and_choices_are_those_of_its_sdk() {
    let Some(all) = vectors() else {
        return;
    };
    for row in list(&all, &["growthbook", "getBucketRange"]) {
        let weights: Option<Vec<f64>> =
            row[1][2].as_array().map(|weights| weights.iter().map(number).collect());
        let variations = row[1][0].as_u64().expect("a count") as usize;
        let found = growthbook_ranges(variations, number(&row[1][1]), weights.as_deref());
        let expected: Vec<Range> = row[2].as_array().expect("ranges").iter().map(range).collect();
        assert_eq!(found.len(), expected.len(), "{row}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.low - expected.low).abs() < 1e-9, "{row}");
            assert!((found.high - expected.high).abs() < 1e-9, "{row}");
        }
    }
    for row in list(&all, &["growthbook", "chooseVariation"]) {
        let ranges: Vec<Range> = row[2].as_array().expect("ranges").iter().map(range).collect();
        let found = choose(number(&row[1]), &ranges).map_or(-1, |index| index as i64);
        assert_eq!(Some(found), row[3].as_i64(), "{row}");
    }
}

#[test]
fn other_systems_agree_with_their_published_vectors() {
    let Some(all) = vectors() else {
        return;
    };
    for row in list(&all, &["optimizely", "vectors"]) {
        let found = optimizely_bucket(text(&row[0]), text(&row[1]));
        assert_eq!(Some(u64::from(found)), row[2].as_u64(), "{row}");
    }
    for row in list(&all, &["unleash", "vectors"]) {
        let found = unleash_value(text(&row[0]), text(&row[1]), 100, 0);
        assert_eq!(Some(u64::from(found)), row[2].as_u64(), "{row}");
    }
    for row in list(&all, &["eppo", "vectors"]) {
        let found = eppo_shard(text(&row[0]), 10_000);
        assert_eq!(Some(u64::from(found)), row[1].as_u64(), "{row}");
    }
    for row in list(&all, &["planout", "vectors"]) {
        let choices = row[3].as_array().expect("choices");
        let hash = planout_hash(text(&row[0]), text(&row[1]), text(&row[2]));
        assert_eq!(choices[(hash % choices.len() as u64) as usize], row[4], "{row}");
    }
    for row in list(&all, &["statsig", "vectors"]) {
        let found = statsig_hash(text(&row[0]), text(&row[1]), text(&row[2]));
        assert_eq!(found.to_string(), text(&row[3]), "{row}");
        assert_eq!(Some(found % 10_000), row[4].as_u64(), "{row}");
    }
}

#[test]
fn changing_coverage_never_moves_a_unit_to_another_arm() {
    let weights = [0.2, 0.3, 0.5];
    let full = growthbook_ranges(3, 1.0, Some(&weights));
    for coverage in [0.0, 0.01, 0.3, 0.77] {
        let part = growthbook_ranges(3, coverage, Some(&weights));
        for step in 0..10_000 {
            let hash = f64::from(step) / 10_000.0;
            if let Some(arm) = choose(hash, &part) {
                assert_eq!(Some(arm), choose(hash, &full), "{hash} at {coverage}");
            }
        }
    }
}
