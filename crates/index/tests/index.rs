//! An index file against a scan of the rows it was made from. Every failure prints its seed.
#![forbid(unsafe_code)]

use std::ops::Range;

use uplake_index::*;
use uplake_testkit::{random::Random, soak};

const WORDS: [&str; 14] = [
    "Red",
    "blue",
    "SHOES",
    "shoe",
    "手机",
    "手机壳",
    "北京大学",
    "京",
    "size 42",
    "100%",
    "Straße",
    "x",
    "ein ganz langes Wort",
    "東京タワー",
];

/// Rows to index: an integer, its string and a text, each sometimes absent.
struct Rows {
    ids: Vec<Option<u64>>,
    texts: Vec<Option<String>>,
    keys: Vec<Option<u64>>,
}

fn draw(random: &mut Random, rows: usize, ids: u64) -> Rows {
    let clustered = random.below(2) == 0;
    let maybe = |random: &mut Random| random.below(10) > 0;
    let text = |random: &mut Random| {
        let words = (0..random.below(4)).map(|_| WORDS[random.below(14) as usize]);
        words.collect::<Vec<_>>().join(if random.below(2) == 0 { " " } else { "" })
    };
    let id = |row: usize, random: &mut Random| {
        if clustered { row as u64 * ids / rows as u64 * 7919 % ids } else { random.below(ids) }
    };
    Rows {
        ids: (0..rows).map(|row| maybe(random).then(|| id(row, random))).collect(),
        texts: (0..rows).map(|_| maybe(random).then(|| text(random))).collect(),
        keys: (0..rows)
            .map(|row| maybe(random).then(|| row as u64 / 3 + random.below(20)))
            .collect(),
    }
}

fn data_file(rows: usize) -> DataFile {
    DataFile { name: "dt=2026-11-01/part-0.parquet".to_owned(), bytes: 123_456, rows: rows as u32 }
}

fn write(rows: &Rows, ordered: bool) -> Vec<u8> {
    let mut ids = IntegersBuilder::new(Options { ordered });
    let mut strings = BytesBuilder::new(Options { ordered });
    let mut words = WordsBuilder::default();
    let (mut grams, mut zones) = (GramsBuilder::new(16), ZonesBuilder::new(10));
    for row in 0..rows.ids.len() {
        let run = Run::new(row as u32, row as u32 + 1);
        if let Some(id) = rows.ids[row] {
            ids.push(id << 20, run).expect("rows ascend");
            strings.push(name(id).as_bytes(), run).expect("rows ascend");
        }
        if let Some(text) = &rows.texts[row] {
            words.push(row as u32, text).expect("rows ascend");
            grams.push(row as u32, text).expect("rows ascend");
        }
        if let Some(key) = rows.keys[row] {
            zones.push(row as u32, key);
        }
    }
    let mut writer = Writer::new(data_file(rows.ids.len()));
    writer.add_integers("id", ids).expect("within the limits");
    let mut file = writer.take();
    writer.add_strings("name", strings).expect("within the limits");
    writer.add_words("text", words).expect("within the limits");
    file.extend(writer.take());
    writer.add_grams("text", grams).expect("within the limits");
    writer.add_zones("key", zones).expect("within the limits");
    file.extend(writer.finish().expect("within the limits"));
    file
}

fn name(id: u64) -> String {
    format!("user-{id}")
}

/// Reads as a caller does, counting requests after the tail.
struct Reader<'f> {
    file: &'f [u8],
    fetched: Vec<Range<u64>>,
    /// Without the dictionary, where that is possible.
    sparsely: bool,
}

impl<'f> Reader<'f> {
    fn new(file: &'f [u8]) -> Self {
        Self { file, fetched: Vec::new(), sparsely: false }
    }

    /// `None` if the question takes the whole dictionary or none.
    fn ask_sparsely(
        &mut self,
        info: &ColumnInfo,
        query: &Query<'_>,
    ) -> Result<Option<Answer>, IndexError> {
        let sparse = Sparse::open(info, self.get(info.header_read()))?;
        let Some(mut probe) = sparse.ask(query)? else { return Ok(None) };
        let mut fetched = Vec::new();
        for _ in 0..200 {
            match probe.next(fetched)? {
                Step::Need(ranges) => {
                    assert!(!ranges.is_empty() && ranges.is_sorted_by(|a, b| a.end < b.start));
                    fetched = ranges.into_iter().map(|range| self.get(range)).collect();
                }
                Step::Done(answer) => return Ok(Some(answer)),
            }
        }
        panic!("a probe that does not end: {query:?}")
    }

    fn get(&mut self, range: Range<u64>) -> &'f [u8] {
        self.fetched.push(range.clone());
        self.file.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    fn footer(&mut self) -> Result<Footer, IndexError> {
        let size = self.file.len() as u64;
        match Footer::read(size, self.get(tail_range(size)))? {
            Tail::Footer(footer) => Ok(footer),
            Tail::More(range) => match Footer::read(size, self.get(range))? {
                Tail::Footer(footer) => Ok(footer),
                Tail::More(range) => panic!("asked for more than {range:?}"),
            },
        }
    }

    fn ask(
        &mut self,
        column: &str,
        kind: Kind,
        query: &Query<'_>,
    ) -> Result<Option<Answer>, IndexError> {
        let footer = self.footer()?;
        let Some(info) = footer.column(column, kind) else { return Ok(None) };
        self.fetched.clear();
        if self.sparsely
            && kind != Kind::Zones
            && let Some(answer) = self.ask_sparsely(info, query)?
        {
            return Ok(Some(answer));
        }
        let column = Column::open(info, self.get(info.first_read()))?;
        let Some(plan) = column.plan(query)? else { return Ok(None) };
        let parts: Vec<&[u8]> = plan.fetch().iter().map(|range| self.get(range.clone())).collect();
        column.answer(&plan, &parts, &mut Scratch::default()).map(Some)
    }
}

fn ask(file: &[u8], column: &str, kind: Kind, query: &Query<'_>) -> Option<Answer> {
    let ask = |sparsely| {
        let result = Reader { sparsely, ..Reader::new(file) }.ask(column, kind, query);
        result.unwrap_or_else(|error| panic!("{column}, {query:?}: {error}"))
    };
    let answer = ask(false);
    assert_eq!(ask(true), answer, "{column}, {query:?}: read sparsely");
    answer
}

fn scan<T>(column: &[Option<T>], wanted: impl Fn(&T) -> bool) -> RowSet {
    let rows = column.iter().enumerate();
    rows.filter(|(_, value)| value.as_ref().is_some_and(&wanted))
        .map(|(row, _)| row as u32)
        .collect()
}

/// Exactly `expected`.
fn check_exact(answer: Option<Answer>, expected: &RowSet, what: &str) {
    let answer = answer.unwrap_or_else(|| panic!("{what}: no help"));
    assert!(!answer.recheck, "{what}");
    assert_eq!(&answer.rows.into_row_set(), expected, "{what}");
}

/// All of `expected`, and nothing but whole blocks that hold some.
fn check_candidates(answer: Option<Answer>, expected: &RowSet, what: &str) {
    let answer = answer.unwrap_or_else(|| panic!("{what}: no help"));
    assert!(answer.recheck, "{what}");
    let rows = answer.rows.into_row_set();
    assert!(expected.and_not(&rows).is_empty(), "{what}: rows are missing");
}

/// Words of a text by definition, written without the tokenizer.
fn matches(text: &str, query: &str) -> bool {
    let han = |c: char| ('\u{3040}'..'\u{a000}').contains(&c);
    // Without case: lower, upper, lower, so that ß and SS agree.
    let fold = |text: &str| text.to_lowercase().to_uppercase().to_lowercase();
    let text = fold(text);
    // Words of other letters, parted by anything that is not one of theirs.
    let split = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| han(c) || !c.is_alphanumeric());
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let runs = |text: &str| -> Vec<Vec<char>> {
        let runs = text.split(|c| !han(c)).filter(|run| !run.is_empty());
        runs.map(|run| run.chars().collect()).collect()
    };
    let query = fold(query);
    let has = split(&text);
    split(&query).iter().all(|word| has.contains(word))
        && runs(&query).iter().all(|run| {
            run.windows(2.min(run.len()))
                .all(|part| text.contains(&part.iter().collect::<String>()))
        })
}

#[test]
fn answers_are_those_of_a_scan() {
    for seed in 0..60 * soak() {
        let mut random = Random::new(seed);
        let count = 1 + random.below(1500) as usize;
        let rows = draw(&mut random, count, 1 + count as u64 / 20);
        let ordered = seed % 2 == 0;
        let file = write(&rows, ordered);
        for _ in 0..10 {
            let wanted: Vec<u64> = (0..random.below(30)).map(|_| random.below(100)).collect();
            let expected = scan(&rows.ids, |id| wanted.contains(id));
            let ids: Vec<u64> = wanted.iter().map(|id| id << 20).collect();
            let what = format!("seed {seed}, ids {wanted:?}");
            check_exact(
                ask(&file, "id", Kind::Integers, &Query::IntegerIn(&ids)),
                &expected,
                &what,
            );
            let names: Vec<String> = wanted.iter().map(|&id| name(id)).collect();
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            check_exact(
                ask(&file, "name", Kind::Strings, &Query::StringIn(&names)),
                &expected,
                &what,
            );

            let (low, high) = (random.below(60), random.below(60));
            let range = Query::IntegerBetween(low << 20..=high << 20);
            let prefix = name(low % 7);
            let found = ask(&file, "id", Kind::Integers, &range);
            let by_prefix =
                ask(&file, "name", Kind::Strings, &Query::StringPrefix(prefix.as_bytes()));
            if ordered {
                let expected = scan(&rows.ids, |&id| low <= id && id <= high);
                check_exact(found, &expected, &format!("seed {seed}, {low}..={high}"));
                let expected = scan(&rows.ids, |&id| name(id).starts_with(&prefix));
                check_exact(by_prefix, &expected, &format!("seed {seed}, {prefix}…"));
            } else {
                assert!(found.is_none() && by_prefix.is_none());
            }
            let keys = Query::KeyBetween(low * 5..=low * 5 + high);
            let expected = scan(&rows.keys, |key| (low * 5..=low * 5 + high).contains(key));
            check_candidates(
                ask(&file, "key", Kind::Zones, &keys),
                &expected,
                &format!("seed {seed}"),
            );
        }
        for query in [
            "red",
            "手机",
            "京",
            "SHOES blue",
            "北京大学 size",
            "大",
            "タワー x",
            "42",
            "none",
            "STRASSE",
        ] {
            let expected = scan(&rows.texts, |text| matches(text, query));
            let found = ask(&file, "text", Kind::Words, &Query::Match(query));
            check_exact(found, &expected, &format!("seed {seed}, match {query}"));
        }
        for part in
            ["red", "Red", "手机", "机", "京大学", "100%", "hoe", "s blue", "straße", "absent"]
        {
            let pattern = format!("%{}%", part.replace('%', "\\%"));
            let query = Query::Like { pattern: &pattern, escape: Some('\\') };
            let lower = part.to_lowercase();
            let expected = scan(&rows.texts, |text| text.to_lowercase().contains(&lower));
            let found = ask(&file, "text", Kind::Grams, &query);
            check_candidates(found.clone(), &expected, &format!("seed {seed}, like {pattern}"));
            if let Some(by_words) = ask(&file, "text", Kind::Words, &query) {
                let what = format!("seed {seed}, words {pattern}");
                if matches!(part, "手机" | "机") {
                    check_exact(Some(by_words), &expected, &what);
                } else {
                    check_candidates(Some(by_words), &expected, &what);
                }
            } else {
                assert!(part.is_ascii() || part == "straße", "seed {seed}: {part} has bigrams");
            }
            if part == "absent" {
                assert_eq!(found.expect("six grams").rows.cardinality(), 0, "seed {seed}");
            }
        }
    }
}

#[test]
fn questions_that_an_index_cannot_help_with_are_told() {
    let rows = draw(&mut Random::new(1), 100, 9);
    let file = write(&rows, false);
    for pattern in ["%ab%", "%", "_a_b", ""] {
        let query = Query::Like { pattern, escape: None };
        assert_eq!(ask(&file, "text", Kind::Grams, &query), None, "{pattern}");
    }
    assert_eq!(ask(&file, "text", Kind::Words, &Query::Match(" ?! ")), None);
    assert_eq!(ask(&file, "other", Kind::Words, &Query::Match("x")), None);
    let mut reader = Reader::new(&file);
    let wrong = reader.ask("id", Kind::Integers, &Query::Match("x"));
    assert!(matches!(wrong, Err(IndexError::WrongKind { .. })), "{wrong:?}");
    let footer = reader.footer().expect("our own bytes");
    assert_eq!(footer.check(&data_file(100)), Ok(()));
    assert!(matches!(footer.check(&data_file(101)), Err(IndexError::Stale { .. })));
    let short = Column::open(&footer.columns()[0], &file[..10]);
    assert!(matches!(short, Err(IndexError::WrongRange { .. })));
}

#[test]
fn a_large_heap_is_read_by_blocks() {
    let count = 200_000;
    let mut random = Random::new(3);
    let ids: Vec<u64> = (0..count).map(|_| random.below(5000)).collect();
    let mut builder = IntegersBuilder::new(Options::default());
    builder.push_column(0, &ids).expect("rows ascend");
    let mut writer = Writer::new(data_file(count));
    writer.add_integers("id", builder).expect("within the limits");
    let file = writer.finish().expect("within the limits");
    let mut reader = Reader::new(&file);
    for wanted in [vec![7], vec![1, 4999], vec![9, 10, 11], (0..5000).collect()] {
        let answer = reader.ask("id", Kind::Integers, &Query::IntegerIn(&wanted));
        let found = answer.expect("our own bytes").expect("of its kind").rows.into_row_set();
        let rows = (0..count).filter(|&row| wanted.contains(&ids[row]));
        assert_eq!(found, rows.map(|row| row as u32).collect(), "{} ids", wanted.len());
        let (first, parts) = reader.fetched.split_first().expect("a first read");
        assert!(first.end - first.start < 110_000, "the dictionary alone");
        assert!(parts.len() <= wanted.len(), "{parts:?}");
        let bytes: u64 = parts.iter().map(|part| part.end - part.start).sum();
        assert!(bytes <= 2 * wanted.len() as u64 * BLOCK_BYTES, "{bytes} bytes");
        assert!(parts.windows(2).all(|two| two[0].end < two[1].start), "{parts:?}");
    }
    let footer = reader.footer().expect("our own bytes");
    let info = &footer.columns()[0];
    let column = Column::open(info, reader.get(info.first_read())).expect("our own bytes");
    let plan = column.plan(&Query::IntegerIn(&[7])).expect("integers").expect("of its kind");
    let mut part = reader.get(plan.fetch()[0].clone()).to_vec();
    part[1000] ^= 4;
    let result = column.answer(&plan, &[&part], &mut Scratch::default());
    assert!(matches!(result, Err(IndexError::Corrupt { .. })), "{result:?}");
    let result = column.answer(&plan, &[&part[1..]], &mut Scratch::default());
    assert!(matches!(result, Err(IndexError::WrongRange { .. })), "{result:?}");
}

/// A few questions, one for every way to ask.
const QUESTIONS: [(&str, Kind, Query<'_>); 8] = [
    ("id", Kind::Integers, Query::IntegerIn(&[0, 3 << 20, 5 << 20])),
    ("id", Kind::Integers, Query::IntegerBetween(1 << 20..=9 << 20)),
    ("name", Kind::Strings, Query::StringIn(&[b"user-1", b"user-4"])),
    ("name", Kind::Strings, Query::StringPrefix(b"user-1")),
    ("text", Kind::Words, Query::Match("京 red")),
    ("text", Kind::Words, Query::Like { pattern: "%手机%", escape: None }),
    ("text", Kind::Grams, Query::Like { pattern: "%shoe%", escape: None }),
    ("key", Kind::Zones, Query::KeyBetween(20..=30)),
];

/// What the file answers to all questions, or the first error.
fn answers(file: &[u8]) -> Result<Vec<Option<Answer>>, IndexError> {
    answers_read(file, false)
}

fn answers_read(file: &[u8], sparsely: bool) -> Result<Vec<Option<Answer>>, IndexError> {
    let mut reader = Reader { sparsely, ..Reader::new(file) };
    QUESTIONS.iter().map(|(column, kind, query)| reader.ask(column, *kind, query)).collect()
}

#[test]
fn a_changed_byte_never_changes_an_answer() {
    let file = write(&draw(&mut Random::new(8), 700, 40), true);
    let expected = answers(&file).expect("our own bytes");
    let mut random = Random::new(9);
    let mut harmless = 0;
    for round in 0..20_000 * soak() {
        let mut changed = file.clone();
        let at = random.below(file.len() as u64) as usize;
        if round % 10 == 0 {
            changed.truncate(at);
        } else {
            changed[at] ^= 1 << random.below(8);
        }
        if let Ok(found) = answers_read(&changed, round % 3 == 0) {
            assert_eq!(found, expected, "round {round}: byte {at}");
            harmless += 1;
        }
    }
    // Only the padding between sections is free.
    assert!(harmless < 4_000 * soak(), "{harmless} were not noticed");
}

#[test]
fn words_of_another_unicode_are_refused() {
    let mut file = write(&draw(&mut Random::new(8), 70, 4), true);
    let trailer = file.len() - 32;
    let length =
        u32::from_le_bytes(*file[trailer + 8..].first_chunk().expect("a trailer")) as usize;
    let at = trailer - length + 2 + data_file(70).name.len() + 12;
    file[at] += 1;
    let checksum = crc32fast::hash(&file[trailer - length..trailer]);
    file[trailer + 12..trailer + 16].copy_from_slice(&checksum.to_le_bytes());
    let mut reader = Reader::new(&file);
    let words = reader.ask("text", Kind::Words, &Query::Match("red"));
    assert!(matches!(words, Err(IndexError::OtherUnicode { .. })), "{words:?}");
    assert!(reader.ask("id", Kind::Integers, &Query::IntegerIn(&[0])).is_ok());
}

/// Makes all checksums of a file right again: what an enemy does.
fn sign(file: &mut [u8]) {
    let trailer = file.len() - 32;
    let length =
        u32::from_le_bytes(*file[trailer + 8..].first_chunk().expect("a trailer")) as usize;
    let number = |file: &[u8], at: usize| {
        u64::from_le_bytes(*file[at..].first_chunk().expect("inside the footer")) as usize
    };
    let text =
        |file: &[u8], at: usize| at + 2 + usize::from(file[at]) + 256 * usize::from(file[at + 1]);
    let mut at = text(file, trailer - length) + 8 + 4 + 4 + 4;
    while at < trailer {
        at = text(file, at) + 1 + 4;
        for _section in 0..2 {
            let (offset, bytes) = (number(file, at), number(file, at + 8));
            at += 16;
            let checksums: Vec<u32> = file[offset..offset + bytes]
                .chunks(BLOCK_BYTES as usize)
                .map(crc32fast::hash)
                .collect();
            for checksum in checksums {
                file[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
                at += 4;
            }
        }
    }
    let checksum = crc32fast::hash(&file[trailer - length..trailer]);
    file[trailer + 12..trailer + 16].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn hostile_sections_with_good_checksums_never_panic_nor_name_a_row_beyond_the_file() {
    let count = 700;
    let file = write(&draw(&mut Random::new(8), count, 40), true);
    let mut same = file.clone();
    sign(&mut same);
    assert!(same == file, "signing an unchanged file changes nothing");
    let footer = Reader::new(&file).footer().expect("our own bytes");
    let sections = footer.columns().iter().map(|info| info.first_read()).collect::<Vec<_>>();
    let mut random = Random::new(11);
    let mut answered = 0;
    for round in 0..50_000 * soak() {
        let mut changed = file.clone();
        for _ in 0..1 + random.below(3) {
            let section = &sections[random.below(sections.len() as u64) as usize];
            // Headers decide most.
            let span = if random.below(2) == 0 { 80 } else { section.end - section.start };
            let at = (section.start + random.below(span)) as usize;
            changed[at] = random.bits() as u8 >> random.below(8);
        }
        sign(&mut changed);
        let mut reader = Reader { sparsely: round % 2 == 0, ..Reader::new(&changed) };
        for (column, kind, query) in &QUESTIONS {
            let Ok(Some(answer)) = reader.ask(column, *kind, query) else { continue };
            let last = answer.rows.into_runs().last().map_or(0, |run| run.end);
            assert!(last as usize <= count, "round {round}: row {last}");
            answered += 1;
        }
    }
    assert!(answered > 0, "the changes leave something to answer");
}

#[test]
fn a_hostile_footer_with_a_good_checksum_never_panics() {
    let file = write(&draw(&mut Random::new(8), 700, 40), true);
    let trailer = file.len() - 32;
    let length =
        u32::from_le_bytes(*file[trailer + 8..].first_chunk().expect("a trailer")) as usize;
    let mut random = Random::new(10);
    for _ in 0..50_000 * soak() {
        let mut changed = file.clone();
        for _ in 0..1 + random.below(3) {
            let at = trailer - length + random.below(length as u64) as usize;
            changed[at] = random.bits() as u8 >> random.below(8);
        }
        let checksum = crc32fast::hash(&changed[trailer - length..trailer]);
        changed[trailer + 12..trailer + 16].copy_from_slice(&checksum.to_le_bytes());
        let _ = answers(&changed);
        let _ = answers_read(&changed, true);
    }
}

/// A file with a large index of strings and two of integers, and what its rows hold.
fn write_large(random: &mut Random, count: usize) -> (Vec<u8>, Vec<u64>) {
    // Some in one row, some in many.
    let ids: Vec<u64> = (0..count)
        .map(|row| if random.below(3) > 0 { row as u64 / 2 } else { random.below(9) })
        .collect();
    let mut strings = BytesBuilder::new(Options { ordered: random.below(2) == 0 });
    let mut narrow = IntegersBuilder::new(Options::default());
    let mut wide = IntegersBuilder::new(Options::default());
    for (row, &id) in ids.iter().enumerate() {
        let run = Run::new(row as u32, row as u32 + 1);
        strings.push(name(id).as_bytes(), run).expect("rows ascend");
        narrow.push(id, run).expect("rows ascend");
        wide.push(id << 40, run).expect("rows ascend");
    }
    let mut clustered = IntegersBuilder::new(Options::default());
    for row in 0..count as u32 {
        clustered.push(u64::from(row) * 7919, Run::new(row, row + 1)).expect("rows ascend");
    }
    let mut inline = IntegersBuilder::new(Options::default()).inline_from(0);
    for row in 0..count as u32 {
        inline.push(u64::from(row) * 7919, Run::new(row, row + 1)).expect("rows ascend");
    }
    let mut writer = Writer::new(data_file(count));
    writer.add_strings("name", strings).expect("within the limits");
    writer.add_integers("narrow", narrow).expect("within the limits");
    writer.add_integers("wide", wide).expect("within the limits");
    writer.add_integers("clustered", clustered).expect("within the limits");
    writer.add_integers("inline", inline).expect("within the limits");
    (writer.finish().expect("within the limits"), ids)
}

#[test]
fn few_terms_need_few_blocks_of_a_large_dictionary() {
    for seed in 0..4 * soak() {
        let mut random = Random::new(seed);
        let count = 150_000 + random.below(50_000) as usize;
        let (file, ids) = write_large(&mut random, count);
        let footer = Reader::new(&file).footer().expect("our own bytes");
        for round in 0..40 {
            let terms = 1 + round % 3;
            let wanted: Vec<u64> = (0..terms)
                .map(|_| match random.below(4) {
                    0 => random.below(9),
                    1 => u64::MAX >> random.below(64),
                    _ => random.below(count as u64 / 2),
                })
                .collect();
            let expected: RowSet =
                (0..count as u32).filter(|&row| wanted.contains(&ids[row as usize])).collect();
            let names: Vec<String> = wanted.iter().map(|&id| name(id)).collect();
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            let shifted: Vec<u64> = wanted.iter().map(|id| id << 40).collect();
            let spread: Vec<u64> = wanted.iter().map(|id| id.wrapping_mul(7919)).collect();
            let in_order = wanted.iter().filter(|&&id| id < count as u64).map(|&id| id as u32);
            let in_order: RowSet = in_order.collect();
            // A shift may make two ids one; then the scan above is not of the same question.
            let by_shift = (0..count as u32)
                .filter(|&row| shifted.contains(&(ids[row as usize] << 40)))
                .collect();
            for (column, query, expected) in [
                ("name", Query::StringIn(&names), &expected),
                ("narrow", Query::IntegerIn(&wanted), &expected),
                ("wide", Query::IntegerIn(&shifted), &by_shift),
                ("clustered", Query::IntegerIn(&spread), &in_order),
                ("inline", Query::IntegerIn(&spread), &in_order),
            ] {
                let kind = if column == "name" { Kind::Strings } else { Kind::Integers };
                let info = footer.column(column, kind).expect("just written");
                assert!(info.is_sparse(terms) && !info.is_sparse(count));
                let mut reader = Reader { sparsely: true, ..Reader::new(&file) };
                let found = reader.ask(column, kind, &query).expect("our own bytes");
                check_exact(found, expected, &format!("seed {seed}, {column} {wanted:?}"));
                let dictionary: u64 = reader.fetched.iter().map(|r| r.end - r.start).sum();
                let heap = expected.cardinality() * 8 + 2 * terms as u64 * BLOCK_BYTES;
                let most = (2 + 6 * terms as u64) * BLOCK_BYTES + heap;
                assert!(dictionary <= most, "{column} {wanted:?}: {dictionary} bytes");
                let whole = Reader::new(&file).ask(column, kind, &query).expect("our own bytes");
                check_exact(whole, expected, &format!("seed {seed}, {column}, whole"));
            }
        }
    }
}

#[test]
fn a_bad_block_is_told_when_a_question_needs_it() {
    let (file, ids) = write_large(&mut Random::new(3), 150_000);
    let footer = Reader::new(&file).footer().expect("our own bytes");
    let info = footer.column("name", Kind::Strings).expect("just written");
    let mut random = Random::new(4);
    let (mut told, mut fine) = (0, 0);
    for round in 0..60 {
        let mut changed = file.clone();
        let range = info.first_read();
        let at = range.start + random.below(range.end - range.start);
        changed[at as usize] ^= 1 << random.below(8);
        let id = ids[random.below(ids.len() as u64) as usize];
        let text = name(id);
        for sparsely in [true, false] {
            let mut reader = Reader { sparsely, ..Reader::new(&changed) };
            match reader.ask("name", Kind::Strings, &Query::StringIn(&[text.as_bytes()])) {
                Err(IndexError::Corrupt { .. }) => told += 1,
                Err(error) => panic!("round {round}: {error}"),
                Ok(answer) => {
                    let expected =
                        (0..ids.len() as u32).filter(|&row| ids[row as usize] == id).collect();
                    check_exact(answer, &expected, &format!("round {round}: byte {at}"));
                    fine += 1;
                }
            }
        }
        // A question of all terms needs all blocks.
        let all: Vec<String> = ids.iter().map(|&id| name(id)).collect();
        let all: Vec<&[u8]> = all.iter().map(|text| text.as_bytes()).collect();
        let result = Reader::new(&changed).ask("name", Kind::Strings, &Query::StringIn(&all));
        assert!(matches!(result, Err(IndexError::Corrupt { .. })), "round {round}: byte {at}");
    }
    assert!(told > 5 && fine > 5, "{told} told, {fine} fine");
}

#[test]
fn a_probe_takes_only_the_bytes_it_asked_for() {
    let (file, ids) = write_large(&mut Random::new(5), 150_000);
    let mut reader = Reader::new(&file);
    let footer = reader.footer().expect("our own bytes");
    let info = footer.column("name", Kind::Strings).expect("just written");
    let header = reader.get(info.header_read());
    assert!(matches!(Sparse::open(info, &header[1..]), Err(IndexError::WrongRange { .. })));
    let sparse = Sparse::open(info, header).expect("our own bytes");
    let text = name(ids[0]);
    let terms = [text.as_bytes()];
    let mut probe = sparse.ask(&Query::StringIn(&terms)).expect("strings").expect("look-ups");
    let Ok(Step::Need(ranges)) = probe.next(Vec::<&[u8]>::new()) else { panic!("a bucket") };
    assert_eq!(ranges.len(), 1);
    assert!(matches!(probe.next(Vec::new()), Err(IndexError::WrongRange { .. })));
    let prefix = sparse.ask::<&[u8]>(&Query::StringPrefix(b"user"));
    assert!(prefix.expect("strings").is_none(), "a prefix takes the whole dictionary");
    let wrong = sparse.ask::<&[u8]>(&Query::Match("x"));
    assert!(matches!(wrong, Err(IndexError::WrongKind { .. })));
}
