//! [`Dictionary`] against a `BTreeMap` of `BTreeSet`s. Every failure prints the seed it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use uplake_postings::{
    BytesBuilder, Dictionary, Encoded, HEADER_BYTES, Heap, IntegersBuilder, Lookup, Options,
    Outline, Parts, Posting, PostingsError, RowSet, Run, Scratch, Term, TermId,
};
use uplake_testkit::{random::Random, soak};

fn seeds() -> u64 {
    if cfg!(miri) { 5 } else { 80 * soak() }
}

/// More terms than any of these dictionaries has.
const MANY: usize = 1 << 20;

type Model = BTreeMap<u64, BTreeSet<u32>>;

/// Which rows hold which id, in one of the shapes that the format tells apart.
fn draw(random: &mut Random) -> (Model, u32) {
    let file_rows = 1 + random.below(if cfg!(miri) { 250 } else { 4000 }) as u32;
    let wide = random.below(3) == 0;
    let origin = random.bits() >> random.below(64);
    let ids = 1 + random.below(1 + u64::from(file_rows) / 5);
    let name = |n: u64| {
        let id = if wide { n.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { n * n % 100_003 };
        origin.wrapping_add(id)
    };
    let mut model = Model::new();
    let mut row = 0;
    match random.below(5) {
        0 => {}
        // Clustered, with or without gaps, ids in row order or not.
        1 => {
            let gaps = random.below(2) * random.below(9);
            let ascending = random.below(2) == 0;
            for n in 0..ids {
                row += random.below(gaps + 1) as u32;
                let end = (row + 1 + random.below(12) as u32).min(file_rows);
                let id = if ascending { origin.wrapping_add(n) } else { name(n) };
                if row < end && !model.contains_key(&id) {
                    model.insert(id, (row..end).collect());
                    row = end;
                }
            }
        }
        // One run an id, overlapping.
        2 => {
            for n in 0..ids {
                let start = random.below(u64::from(file_rows)) as u32;
                let end = (start + 1 + random.below(9) as u32).min(file_rows);
                model.insert(name(n), (start..end).collect());
            }
        }
        // Every row a random id; some rows two.
        3 => {
            for row in 0..file_rows {
                for _ in 0..1 + random.below(8) / 7 {
                    model.entry(name(random.below(ids))).or_default().insert(row);
                }
            }
        }
        // Runs here and there, and some ids in very many rows.
        _ => {
            for n in 0..ids {
                let rows = model.entry(name(n)).or_default();
                for _ in 0..1 + random.below(4) {
                    let start = random.below(u64::from(file_rows)) as u32;
                    let length = if random.below(20) == 0 { file_rows / 2 } else { 20 };
                    rows.extend(start..(start + length).min(file_rows));
                    rows.insert(start);
                }
                if random.below(20) == 0 {
                    rows.extend((start_of(random)..file_rows).step_by(2 + n as usize % 5));
                }
            }
        }
    }
    (model, file_rows)
}

fn start_of(random: &mut Random) -> u32 {
    random.below(50) as u32
}

fn text(id: u64) -> Vec<u8> {
    // Lengths 0 to 20, prefixes shared, high bytes among them.
    let text = format!("{id:x}ÿ{}", id % 7);
    text.into_bytes()
        .into_iter()
        .take(id as usize % 21)
        .chain([255; 2].into_iter().take(id as usize % 3))
        .collect()
}

/// Pairs of id and row in row order, or id by id.
fn pairs(model: &Model, by_row: bool) -> Vec<(u64, u32)> {
    let all = model.iter().flat_map(|(&id, rows)| rows.iter().map(move |&row| (id, row)));
    let mut all: Vec<(u64, u32)> = all.collect();
    if by_row {
        all.sort_by_key(|&(id, row)| (row, id));
    }
    all
}

fn integers(model: &Model, file_rows: u32, options: Options, by_row: bool) -> Encoded {
    // Every other file keeps runs in the hash table, if they can lie there.
    let mut builder = IntegersBuilder::new(options).inline_from(file_rows as usize % 2 * MANY);
    for (id, row) in pairs(model, by_row) {
        builder.push(id, Run::new(row, row + 1)).expect("rows ascend");
    }
    builder.finish(file_rows).expect("within the limits")
}

fn rows_of(model: &Model, wanted: &BTreeSet<u64>) -> RowSet {
    wanted.iter().filter_map(|id| model.get(id)).flatten().copied().collect()
}

fn run(row: u32, end: u32) -> Run {
    Run::new(row, end)
}

#[test]
fn integers_are_found_with_their_rows() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let (model, file_rows) = draw(&mut random);
        let options = Options { ordered: random.below(2) == 0 };
        let Encoded { dictionary, heap } = integers(&model, file_rows, options, true);
        let again = integers(&model, file_rows, options, false);
        assert_eq!(
            (&dictionary, &heap),
            (&again.dictionary, &again.heap),
            "seed {seed}: bytes differ"
        );
        let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
        assert_eq!(dictionary.term_count() as usize, model.len(), "seed {seed}");
        assert_eq!(dictionary.file_rows(), file_rows);
        for (&id, rows) in &model {
            let term = dictionary.lookup_integer(id).expect("integers").expect("it was built in");
            let found = dictionary.rows(term, &heap).expect("our own bytes");
            assert!(found.rows().eq(rows.iter().copied()), "seed {seed}: rows of {id}");
            if options.ordered {
                assert_eq!(dictionary.term(term), Some(Term::Integer(id)), "seed {seed}");
            }
            let next = id.wrapping_add(1);
            let absent = dictionary.lookup_integer(next).expect("integers");
            assert_eq!(absent.is_some(), model.contains_key(&next), "seed {seed}: {next}");
        }
        let mut scratch = Scratch::default();
        for _ in 0..8 {
            // Repeated ids, absent ones, in any order.
            let known: Vec<u64> = model.keys().copied().collect();
            let count = random.below(1 + 2 * known.len() as u64);
            let mut ids: Vec<u64> = (0..count)
                .filter_map(|_| known.get(random.below(known.len() as u64 + 1) as usize).copied())
                .collect();
            ids.extend([0, u64::MAX, random.bits(), 1 << 33]);
            let expected = rows_of(&model, &ids.iter().copied().collect());
            let found =
                dictionary.union_integers(&ids, &heap, &mut scratch).expect("our own bytes");
            assert_eq!(found.cardinality(), expected.cardinality(), "seed {seed}");
            assert_eq!(
                found.clone().into_runs(),
                expected.runs().collect::<Vec<_>>(),
                "seed {seed}"
            );
            assert_eq!(found.into_row_set(), expected, "seed {seed}: union of {} ids", ids.len());
            let mut terms: Vec<TermId> = Vec::new();
            dictionary.lookup_integers(&ids, |_, term| terms.push(term)).expect("integers");
            let found = dictionary.union_terms(&terms, &heap, &mut scratch).expect("our own bytes");
            assert_eq!(found.into_row_set(), expected, "seed {seed}: union of terms");
            assert_eq!(scratch.found_terms(), terms.len(), "seed {seed}");
        }
    }
}

#[test]
fn integers_are_found_by_range() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let (model, file_rows) = draw(&mut random);
        let Encoded { dictionary, heap } =
            integers(&model, file_rows, Options { ordered: true }, true);
        let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
        let known: Vec<u64> = model.keys().copied().collect();
        let bound = |random: &mut Random| {
            let at = random.below(known.len() as u64 + 1) as usize;
            known
                .get(at)
                .map_or(random.bits(), |id| id.wrapping_add(random.below(3)).wrapping_sub(1))
        };
        for _ in 0..20 {
            let (low, high) = (bound(&mut random), bound(&mut random));
            let positions = dictionary.integers_in(low..high).expect("ordered integers");
            let wanted: BTreeSet<u64> =
                model.keys().copied().filter(|id| (low..high).contains(id)).collect();
            assert_eq!(positions.len(), wanted.len(), "seed {seed}: {low}..{high}");
            let found = dictionary.union_positions(positions, &heap, &mut Scratch::default());
            let found = found.expect("our own bytes").into_row_set();
            assert_eq!(found, rows_of(&model, &wanted), "seed {seed}: {low}..{high}");
        }
        assert_eq!(dictionary.integers_in(..).expect("ordered").len(), model.len());
    }
}

#[test]
fn byte_strings_are_found_by_hash_range_and_prefix() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let (by_id, file_rows) = draw(&mut random);
        let mut model: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
        for (&id, rows) in &by_id {
            model.entry(text(id)).or_default().extend(rows);
        }
        let ordered = random.below(3) > 0;
        let mut builder = BytesBuilder::new(Options { ordered });
        for (term, rows) in &model {
            rows.iter()
                .for_each(|&row| builder.push(term, run(row, row + 1)).expect("rows ascend"));
        }
        let Encoded { dictionary, heap } = builder.finish(file_rows).expect("within the limits");
        let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
        let mut terms: Vec<&[u8]> = Vec::new();
        for (term, rows) in &model {
            let at = dictionary.lookup_bytes(term).expect("bytes").expect("it was built in");
            assert_eq!(dictionary.term(at), Some(Term::Bytes(term)), "seed {seed}");
            let found = dictionary.rows(at, &heap).expect("our own bytes");
            assert!(found.rows().eq(rows.iter().copied()), "seed {seed}: rows of {term:?}");
            if random.below(2) == 0 {
                terms.push(term);
            }
        }
        assert_eq!(dictionary.lookup_bytes(b"not in it, and long"), Ok(None));
        let mut scratch = Scratch::default();
        let found = dictionary.union_bytes(&terms, &heap, &mut scratch).expect("our own bytes");
        let expected: RowSet = terms.iter().flat_map(|&term| &model[term]).copied().collect();
        assert_eq!(found.into_row_set(), expected, "seed {seed}");
        if !ordered {
            assert_eq!(dictionary.bytes_with_prefix(b"a"), Err(PostingsError::NotOrdered));
            continue;
        }
        for prefix in [&b""[..], b"1", b"a", b"ff", &[255], &[255, 255], b"7\xff"] {
            let positions = dictionary.bytes_with_prefix(prefix).expect("ordered bytes");
            let expected = model.keys().filter(|term| term.starts_with(prefix));
            let found =
                positions.map(|at| dictionary.nth(at).ok().and_then(|at| dictionary.term(at)));
            assert!(
                found.eq(expected.map(|term| Some(Term::Bytes(term)))),
                "seed {seed}: {prefix:?}"
            );
        }
        let (low, high) = (text(random.bits()), text(random.bits()));
        let positions = dictionary.bytes_in(Bound::Excluded(&low), Bound::Included(&high));
        let expected = model.keys().filter(|&term| *term > low && *term <= high).count();
        assert_eq!(positions.expect("ordered bytes").len(), expected, "seed {seed}");
    }
}

#[test]
fn a_column_is_cut_into_runs() {
    let column = [5, 5, 5, 9, 5, 5, u64::MAX, 0, 0];
    let mut builder = IntegersBuilder::new(Options::default());
    builder.push_column(0, &column[..2]).expect("rows ascend");
    builder.push_column(2, &column[2..]).expect("rows ascend");
    assert_eq!(builder.term_count(), 4);
    let Encoded { dictionary, heap } = builder.finish(9).expect("within the limits");
    let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
    let rows = |id| {
        let term = dictionary.lookup_integer(id).expect("integers").expect("in the column");
        dictionary.rows(term, &heap).expect("our own bytes").runs().collect::<Vec<_>>()
    };
    assert_eq!(rows(5), [run(0, 3), run(4, 6)]);
    assert_eq!(rows(u64::MAX), [run(6, 7)]);
    assert_eq!(rows(0), [run(7, 9)]);
    assert!(!dictionary.is_clustered());
}

#[test]
fn a_clustered_list_takes_at_most_16_bytes() {
    let mut builder = IntegersBuilder::new(Options::default());
    // Three buckets for 16 terms leave no remainder.
    let terms = if cfg!(miri) { 160 } else { 10_000 };
    for n in 0..terms {
        builder
            .push(1_000_000_000 + u64::from(n * 7919 % terms), run(n * 9, n * 9 + 9))
            .expect("ascend");
    }
    let encoded = builder.finish(terms * 9).expect("within the limits");
    let dictionary = Dictionary::parse(&encoded.dictionary).expect("our own bytes");
    assert!(dictionary.is_clustered());
    assert!(encoded.heap.is_empty());
    let header = uplake_postings::HEADER_BYTES + 4;
    assert_eq!((encoded.dictionary.len() - header).div_ceil(terms as usize), 16);
}

#[test]
fn many_clustered_lists_take_12_bytes_in_the_hash_table() {
    let terms = if cfg!(miri) { 160u32 } else { 100_000 };
    let build = |length: u32| {
        let mut builder = IntegersBuilder::new(Options::default()).inline_from(0);
        for n in 0..terms {
            let id = u64::from(n.wrapping_mul(0x9E37_79B1)) + 7;
            builder.push(id, run(n * length, n * length + length)).expect("ascend");
        }
        builder.finish(terms * length).expect("within the limits")
    };
    let encoded = build(9);
    let dictionary = Dictionary::parse(&encoded.dictionary).expect("our own bytes");
    assert!(dictionary.is_inline() && dictionary.is_clustered() && encoded.heap.is_empty());
    let header = uplake_postings::HEADER_BYTES;
    assert_eq!((encoded.dictionary.len() - header).div_ceil(terms as usize), 12);
    let ids: Vec<u64> = (0..terms).map(|n| u64::from(n.wrapping_mul(0x9E37_79B1)) + 7).collect();
    let found = dictionary.union_integers(&ids, &[][..], &mut Scratch::default());
    assert_eq!(found.expect("our own bytes").into_runs(), [run(0, terms * 9)]);
    // Where a run is too long for what the tag and the row leave, the runs lie elsewhere.
    let mut builder = IntegersBuilder::new(Options::default()).inline_from(0);
    builder.push(0, run(0, 1 << 20)).expect("ascends");
    builder
        .push(u64::from(u32::MAX), run(1 << 20, uplake_postings::MAX_FILE_ROWS))
        .expect("ascends");
    let encoded = builder.finish(uplake_postings::MAX_FILE_ROWS).expect("within the limits");
    let dictionary = Dictionary::parse(&encoded.dictionary).expect("our own bytes");
    assert!(dictionary.is_clustered() && !dictionary.is_inline());
}

#[test]
fn misuse_is_told() {
    let mut builder = IntegersBuilder::new(Options::default());
    builder.push(7, run(5, 6)).expect("the first run");
    builder.push(7, run(9, 9)).expect("nothing");
    assert_eq!(
        builder.push(7, run(2, 3)),
        Err(PostingsError::OutOfOrder { start: 2, end: 3, last: 5 })
    );
    assert!(matches!(
        builder.push(7, run(0, u32::MAX)),
        Err(PostingsError::TooLarge { what: "rows", .. })
    ));
    assert!(matches!(builder.finish(5), Err(PostingsError::TooLarge { what: "rows", .. })));

    let mut builder = IntegersBuilder::new(Options::default());
    (0..9).for_each(|row| builder.push(row % 2, run(row as u32, row as u32 + 1)).expect("ascend"));
    let Encoded { dictionary, heap } = builder.finish(9).expect("within the limits");
    let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
    assert_eq!(dictionary.lookup_bytes(b"x"), Err(PostingsError::WrongTerms { holds: "integers" }));
    assert_eq!(dictionary.integers_in(1..2), Err(PostingsError::NotOrdered));
    assert_eq!(dictionary.heap_bytes(), heap.len() as u64);
    let result = dictionary.union_integers(&[1], &heap[..heap.len() - 1], &mut Scratch::default());
    assert!(matches!(result, Err(PostingsError::NotFetched { .. })), "{result:?}");
}

/// A heap of which only one range was fetched.
struct Fetched<'a> {
    at: u64,
    bytes: &'a [u8],
}

impl Heap for Fetched<'_> {
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.bytes.bytes(range.start.checked_sub(self.at)?..range.end.checked_sub(self.at)?)
    }
}

#[test]
fn a_list_needs_only_its_own_bytes() {
    let count = 900u32;
    let mut builder = IntegersBuilder::new(Options::default());
    (0..900u32)
        .for_each(|row| builder.push(u64::from(row % 3), run(row, row + 1)).expect("ascend"));
    let Encoded { dictionary, heap } = builder.finish(count).expect("within the limits");
    let dictionary = Dictionary::parse(&dictionary).expect("our own bytes");
    let term = dictionary.lookup_integer(1).expect("integers").expect("in it");
    let Ok(Posting::List(list)) = dictionary.posting(term) else { panic!("many runs are a list") };
    let range = list.heap_range();
    let part = Fetched { at: range.start, bytes: heap.bytes(range).expect("in the heap") };
    let rows = dictionary.rows(term, &part).expect("fetched");
    assert!(rows.rows().eq((1..count).step_by(3)));
    assert!(matches!(
        dictionary.union_integers(&[0, 1], &part, &mut Scratch::default()),
        Err(PostingsError::NotFetched { .. })
    ));
}

/// Bytes of a dictionary of which only some were fetched; the others are noise.
struct Gappy<'a> {
    whole: &'a [u8],
    at_hand: Vec<bool>,
}

impl Parts for Gappy<'_> {
    fn copy(&self, at: u64, out: &mut [u8]) -> bool {
        let range = at as usize..at as usize + out.len();
        let all = self.at_hand[range.clone()].iter().all(|&is| is);
        if all {
            out.copy_from_slice(&self.whole[range]);
        }
        all
    }
}

/// Looks a term up from nothing but the header; gives the rounds that took.
fn look_up(
    bytes: &[u8],
    mut find: impl FnMut(&Outline, &Gappy<'_>, &mut Vec<Range<u64>>) -> Lookup,
) -> (Option<Posting>, usize) {
    let outline = Outline::parse(&bytes[..HEADER_BYTES], bytes.len() as u64).expect("our own");
    let mut some = Gappy { whole: bytes, at_hand: vec![false; bytes.len()] };
    for rounds in 0..500 {
        let mut missing = Vec::new();
        match find(&outline, &some, &mut missing) {
            Lookup::Found(posting) => return (Some(posting), rounds),
            Lookup::Absent => return (None, rounds),
            Lookup::Missing => {
                assert!(!missing.is_empty(), "missing bytes are named");
                for range in missing {
                    some.at_hand[range.start as usize..range.end as usize].fill(true);
                }
            }
        }
    }
    panic!("a look-up that does not end")
}

#[test]
fn a_look_up_needs_only_the_bytes_it_names() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let (model, file_rows) = draw(&mut random);
        let options = Options { ordered: random.below(2) == 0 };
        let Encoded { dictionary: bytes, .. } = integers(&model, file_rows, options, true);
        let dictionary = Dictionary::parse(&bytes).expect("our own bytes");
        let others: Vec<u64> = (0..20).map(|_| random.bits() >> random.below(64)).collect();
        for &id in model.keys().chain(&others) {
            let term = dictionary.lookup_integer(id).expect("integers");
            let expected = term.map(|term| dictionary.posting(term).expect("our own bytes"));
            let (found, rounds) = look_up(&bytes, |outline, some, missing| {
                outline.find_integer(id, some, missing).expect("our own bytes")
            });
            assert_eq!(found, expected, "seed {seed}: {id}");
            assert!(rounds < 20, "seed {seed}: {rounds} rounds for {id}");
        }
        let mut texts: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
        for (&id, rows) in &model {
            texts.entry(text(id)).or_default().extend(rows);
        }
        let mut builder = BytesBuilder::new(options);
        for (term, rows) in &texts {
            rows.iter()
                .for_each(|&row| builder.push(term, run(row, row + 1)).expect("rows ascend"));
        }
        let Encoded { dictionary: bytes, heap } = builder.finish(file_rows).expect("in limits");
        let dictionary = Dictionary::parse(&bytes).expect("our own bytes");
        let mut postings = Vec::new();
        for term in texts.keys().cloned().chain(others.into_iter().map(text)) {
            let (found, rounds) = look_up(&bytes, |outline, some, missing| {
                outline.find_bytes(&term, some, missing).expect("our own bytes")
            });
            let expected = dictionary.lookup_bytes(&term).expect("bytes");
            let expected = expected.map(|term| dictionary.posting(term).expect("our own bytes"));
            assert_eq!(found, expected, "seed {seed}: {term:?}");
            assert!(rounds < 20, "seed {seed}: {rounds} rounds for {term:?}");
            postings.extend(found);
        }
        let outline = Outline::parse(&bytes, bytes.len() as u64).expect("our own bytes");
        let rows = outline.union(&postings, &heap, &mut Scratch::default());
        let expected: RowSet = texts.values().flatten().copied().collect();
        assert_eq!(rows.expect("our own bytes").into_row_set(), expected, "seed {seed}");
        let mut missing = Vec::new();
        let wrong = outline.find_integer(1, &bytes[..], &mut missing);
        assert!(matches!(wrong, Err(PostingsError::WrongTerms { .. })), "{wrong:?}");
    }
}

#[test]
fn an_intersection_is_that_of_btree_sets() {
    for seed in 0..seeds().div_ceil(4) {
        let mut random = Random::new(seed);
        let file_rows = 1 + random.below(if cfg!(miri) { 3_000 } else { 150_000 }) as u32;
        // Lists of all kinds and containers: scattered, dense, runs, all rows but some.
        let model: Vec<BTreeSet<u32>> = (0..7)
            .map(|term| {
                let step = 1 + random.below(1 << (1 + term * 2)) as u32;
                let bits = random.below(8);
                let length = 1 + random.below(1 << bits) as u32;
                let starts = (random.below(9) as u32..file_rows).step_by(step as usize);
                let mut rows = BTreeSet::new();
                for start in starts {
                    if random.below(4) > 0 {
                        rows.extend(start..(start + length).min(file_rows));
                    }
                }
                rows
            })
            .collect();
        let mut builder = IntegersBuilder::new(Options::default());
        for (id, rows) in model.iter().enumerate() {
            for &row in rows {
                builder.push(id as u64, run(row, row + 1)).expect("rows ascend");
            }
        }
        let Encoded { dictionary: bytes, heap } = builder.finish(file_rows).expect("in limits");
        let outline = Outline::parse(&bytes, bytes.len() as u64).expect("our own bytes");
        let mut scratch = Scratch::default();
        for _ in 0..6 {
            let draw_group = |random: &mut Random| -> Vec<usize> {
                (0..1 + random.below(8) / 7).map(|_| random.below(7) as usize).collect()
            };
            let groups: Vec<Vec<usize>> =
                (0..1 + random.below(4)).map(|_| draw_group(&mut random)).collect();
            let mut expected: Option<BTreeSet<u32>> = None;
            let mut postings = Vec::new();
            for group in &groups {
                let rows: BTreeSet<u32> =
                    group.iter().flat_map(|&id| &model[id]).copied().collect();
                expected = Some(expected.map_or(rows.clone(), |all| &all & &rows));
                let found = group.iter().filter_map(|&id| {
                    match outline.find_integer(id as u64, &bytes[..], &mut Vec::new()) {
                        Ok(Lookup::Found(posting)) => Some(posting),
                        other => {
                            assert_eq!(other, Ok(Lookup::Absent));
                            None
                        }
                    }
                });
                postings.push(found.collect());
            }
            let found = outline.intersect(&postings, &heap, &mut scratch).expect("our own bytes");
            let expected: RowSet = expected.unwrap_or_default().into_iter().collect();
            assert_eq!(found, expected.into_selection(file_rows), "seed {seed}: {groups:?}");
        }
        let none = outline.intersect(&[], &heap, &mut scratch).expect("no group");
        assert!(none.is_empty(), "no group has no rows");
    }
}
