//! Bytes that somebody changed, and everything that can be asked of them.

use std::ops::Bound;

use uplake_postings::portable::View;
use uplake_postings::{
    BytesBuilder, Dictionary, Encoded, IntegersBuilder, Lookup, Mask, Options, Outline, Posting,
    RowSet, Run, Scratch,
};
use uplake_testkit::random::Random;

/// Sound bytes to start from.
pub struct Corpus {
    sets: Vec<Vec<u8>>,
    dictionaries: Vec<Encoded>,
}

impl Corpus {
    /// One example of every layout.
    pub fn new() -> Self {
        // Miri takes a thousand times as long.
        let span = if cfg!(miri) { 66_000 } else { 80_000 };
        let scattered = (64_000..span).step_by(5);
        let dense = (65_000..span).filter(|row| row % 3 > 0);
        let sets: [RowSet; 5] = [
            RowSet::new(),
            (0..200_000).collect(),
            scattered.collect(),
            dense.chain(200_000..200_100).chain([500_000]).collect(),
            (0..6).flat_map(|chunk| [chunk << 16, (chunk << 16) + 9]).collect(),
        ];
        let mut dictionaries = Vec::new();
        for (ordered, inline_from) in [(false, usize::MAX), (true, 0), (false, 0)] {
            for shape in 0..4u32 {
                let options = Options { ordered };
                let mut integers = IntegersBuilder::new(options).inline_from(inline_from);
                let mut bytes = BytesBuilder::new(Options { ordered });
                for row in 0..if cfg!(miri) { 120 } else { 600u32 } {
                    // Clustered, clustered with gaps, mixed, scattered with some long lists.
                    let term = match shape {
                        0 => row / 20 * 7919 % 30,
                        1 if row % 20 < 5 => continue,
                        1 => row / 20,
                        2 => row / 50 % 9,
                        _ => (row * row) % 23,
                    };
                    let wide = u64::from(term) << if row % 2 < shape { 40 } else { 0 };
                    let run = Run::new(row, row + 1);
                    integers.push(wide, run).expect("rows ascend");
                    bytes.push(format!("term {term}").as_bytes(), run).expect("rows ascend");
                }
                dictionaries.push(integers.finish(600).expect("within the limits"));
                dictionaries.push(bytes.finish(600).expect("within the limits"));
            }
        }
        Self { sets: sets.iter().map(RowSet::to_bytes).collect(), dictionaries }
    }

    /// Changes one of the examples and asks everything of it. Panics if an answer breaks a promise.
    pub fn try_one(&self, random: &mut Random) {
        let any = |random: &mut Random, count: usize| random.below(count as u64) as usize;
        if random.below(2) == 0 {
            let mut bytes = self.sets[any(random, self.sets.len())].clone();
            let other = &self.sets[any(random, self.sets.len())];
            change(&mut bytes, other, random);
            ask_set(&bytes, random);
        } else {
            let mut encoded = self.dictionaries[any(random, self.dictionaries.len())].clone();
            let other = &self.dictionaries[any(random, self.dictionaries.len())];
            if random.below(4) > 0 {
                change(&mut encoded.dictionary, &other.dictionary, random);
            }
            if random.below(3) == 0 {
                change(&mut encoded.heap, &other.heap, random);
            }
            ask_dictionary(&encoded, random);
        }
    }
}

/// Flips bits, puts interesting numbers in, cuts, grows and splices.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    for _ in 0..1 + random.below(4) {
        // Headers decide most, so half of the changes are there.
        let span = if random.below(2) == 0 { bytes.len().min(80) } else { bytes.len() };
        let at = random.below(span as u64 + 1) as usize;
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..random.below(40)).map(|_| 0)),
            2 => {
                let from = random.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            3 | 4 => {
                let number = NUMBERS[random.below(8) as usize].to_le_bytes();
                let width = 1 << random.below(4);
                bytes.iter_mut().skip(at).zip(&number[..width]).for_each(|(to, from)| *to = *from);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn ask_set(bytes: &[u8], random: &mut Random) {
    let rows = 1 + random.below(if cfg!(miri) { 1 << 12 } else { 1 << 20 }) as u32;
    let Ok(view) = View::parse(bytes) else {
        assert!(RowSet::from_bytes(bytes).is_err(), "a set without a view");
        return;
    };
    let _ = view.contains(random.bits() as u32);
    let _ = view.contains(random.below(1 << 18) as u32);
    let mut mask = Mask::new(rows);
    let masked = view.set_in(&mut mask);
    assert!(mask.to_runs().last().is_none_or(|run| run.end <= rows), "a row beyond the file");
    let Ok(set) = view.to_row_set() else { return };
    // What decodes is a sound set: it survives its own bytes, and the view agrees with it.
    assert_eq!(view.cardinality(), set.cardinality());
    assert_eq!(RowSet::from_bytes(&set.to_bytes()).as_ref(), Ok(&set));
    assert!(set.runs().is_sorted_by(|a, b| a.end < b.start), "runs overlap or touch");
    if masked.is_ok() {
        assert_eq!(RowSet::from_mask(&mask), set);
    }
    for row in set.rows().take(20) {
        assert_eq!(view.contains(row), Ok(true));
    }
}

fn ask_dictionary(encoded: &Encoded, random: &mut Random) {
    let bytes = encoded.dictionary.as_slice();
    let outline = Outline::parse(bytes, bytes.len() as u64);
    let Ok(dictionary) = Dictionary::parse(bytes) else {
        assert!(outline.is_err(), "an outline without a dictionary");
        return;
    };
    let outline = outline.expect("a dictionary has an outline");
    let (heap, rows) = (&encoded.heap, dictionary.file_rows());
    let mut scratch = Scratch::default();
    let ids: Vec<u64> =
        (0..random.below(300)).map(|id| id << if id % 2 == 0 { 40 } else { 0 }).collect();
    let terms: Vec<String> = (0..random.below(40)).map(|term| format!("term {term}")).collect();
    // A mask of a hostile header's rows may take 256 MB; sound, but slow to try.
    if rows < 1 << 22 {
        let found = dictionary.union_integers(&ids, heap, &mut scratch);
        let found = found.or_else(|_| dictionary.union_bytes(&terms, heap, &mut scratch));
        if let Ok(found) = found {
            let runs = found.into_runs();
            assert!(runs.is_sorted_by(|a, b| a.end < b.start), "runs overlap or touch");
            assert!(runs.last().is_none_or(|run| run.end <= rows), "a row beyond the file");
        }
        let positions = dictionary.integers_in(3..1 << 41);
        let positions = positions.or_else(|_| dictionary.bytes_with_prefix(b"term 1"));
        if let Ok(positions) = positions {
            let few = positions.start..positions.end.min(positions.start.saturating_add(1000));
            let _ = dictionary.union_positions(few, heap, &mut scratch);
        }
    }
    let mut missing = Vec::new();
    let by_id = ids.iter().map(|&id| outline.find_integer(id, bytes, &mut missing));
    let mut postings: Vec<_> = by_id.collect();
    let by_term = terms.iter().map(|term| outline.find_bytes(term.as_bytes(), bytes, &mut missing));
    postings.extend(by_term);
    assert!(missing.is_empty(), "all bytes are at hand");
    let postings: Vec<_> = postings
        .into_iter()
        .filter_map(|found| match found {
            Ok(Lookup::Found(posting)) => Some(posting),
            _ => None,
        })
        .collect();
    if rows < 1 << 22
        && let Ok(found) = outline.union(&postings, heap, &mut scratch)
    {
        assert!(found.into_runs().iter().all(|run| run.end <= rows), "a row beyond the file");
    }
    let groups: Vec<Vec<Posting>> =
        postings.chunks(1 + random.below(3) as usize).take(3).map(<[_]>::to_vec).collect();
    if rows < 1 << 22
        && let Ok(found) = outline.intersect(&groups, heap, &mut scratch)
    {
        assert!(found.runs().all(|run| run.end <= rows), "a row beyond the file");
        assert!(found.runs().is_sorted_by(|a, b| a.end < b.start), "runs overlap or touch");
    }
    let _ = dictionary.bytes_in(Bound::Excluded(b"term 2"), Bound::Unbounded);
    let mut found = Vec::new();
    let _ = dictionary.lookup_integers(&ids, |_, term| found.push(term));
    let _ = dictionary.lookup_all_bytes(&terms, |_, term| found.push(term));
    for term in found {
        let _ = dictionary.term(term);
        if let Ok(set) = dictionary.rows(term, heap) {
            assert!(set.runs().all(|run| run.end <= rows), "a row beyond the file");
        }
    }
}
