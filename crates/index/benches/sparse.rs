//! How long does a first question take, and how many bytes does it read: by the dictionary whole,
//! all of it checked, by the dictionary with the blocks checked that the question needs, and by a
//! probe that reads nothing else?
//!
//! Floor: a block's checksum, 64 KiB at about 10 GB/s, 6 µs.
//! Run: cargo bench -p uplake-index --bench sparse
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use uplake_index::*;
use uplake_testkit::random::{Random, mix};

const ROUNDS: usize = 200;

struct Way {
    name: &'static str,
    open_us: Vec<f64>,
    ask_us: Vec<f64>,
    bytes: u64,
}

impl Way {
    fn new(name: &'static str) -> Self {
        Self { name, open_us: Vec::new(), ask_us: Vec::new(), bytes: 0 }
    }

    fn print(mut self, what: &str) {
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let (open, ask) = (median(&mut self.open_us), median(&mut self.ask_us));
        let kib = self.bytes as f64 / 1024.0;
        println!("| {what} | {} | {open:.1} | {ask:.1} | {kib:.0} |", self.name);
    }
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn footer_of(file: &[u8]) -> Footer {
    let size = file.len() as u64;
    let tail = tail_range(size);
    match Footer::read(size, &file[tail.start as usize..]) {
        Ok(Tail::Footer(footer)) => footer,
        other => panic!("our own bytes, and a short footer: {other:?}"),
    }
}

/// Asks one question in all ways by turns; prints medians.
fn compare(what: &str, file: &[u8], kind: Kind, query: &Query<'_>, terms: usize) {
    let get = |range: Range<u64>| &file[range.start as usize..range.end as usize];
    let mut ways = [Way::new("whole, checked"), Way::new("whole"), Way::new("sparse")];
    let mut rows = None;
    for round in 0..3 * ROUNDS {
        let way = &mut ways[round % 3];
        let start = Instant::now();
        let footer = footer_of(file);
        let info = footer.column("c", kind).expect("just written");
        let answer = if way.name == "sparse" {
            if !info.is_sparse(terms) {
                continue;
            }
            let sparse = Sparse::open(info, get(info.header_read())).expect("our own bytes");
            way.open_us.push(micros(start));
            way.bytes = info.header_read().end - info.header_read().start;
            let start = Instant::now();
            let mut probe = sparse.ask(query).expect("of its kind").expect("look-ups");
            let mut fetched = Vec::new();
            let answer = loop {
                match probe.next(fetched).expect("our own bytes") {
                    Step::Need(ranges) => {
                        way.bytes += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
                        fetched = ranges.into_iter().map(get).collect();
                    }
                    Step::Done(answer) => break answer,
                }
            };
            way.ask_us.push(micros(start));
            answer
        } else {
            let column = Column::open(info, get(info.first_read())).expect("our own bytes");
            if way.name != "whole" {
                info.check_bytes(file).expect("our own bytes");
            }
            way.open_us.push(micros(start));
            let start = Instant::now();
            let plan = column.plan(query).expect("our own bytes").expect("of its kind");
            let parts: Vec<&[u8]> = plan.fetch().iter().cloned().map(get).collect();
            way.bytes = info.first_read().end - info.first_read().start;
            way.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            let answer = column.answer(&plan, &parts, &mut Scratch::default());
            way.ask_us.push(micros(start));
            answer.expect("our own bytes")
        };
        let answer = black_box(answer);
        assert!(rows.get_or_insert_with(|| answer.clone()) == &answer, "all ways find the same");
    }
    for way in ways.into_iter().filter(|way| !way.ask_us.is_empty()) {
        way.print(what);
    }
}

fn write(rows: u32, add: impl FnOnce(&mut Writer) -> Result<(), IndexError>) -> Vec<u8> {
    let data_file = DataFile { name: "part-0.parquet".to_owned(), bytes: 0, rows };
    let mut writer = Writer::new(data_file);
    add(&mut writer).expect("within the limits");
    writer.finish().expect("within the limits")
}

fn main() {
    let mut random = Random::new(8);
    println!("| question | way | footer and open µs | plan and answer µs | KiB read |");
    println!("|---|---|---:|---:|---:|");
    for (what, lists) in
        [("100,000 clustered lists", 100_000u32), ("1,000,000, in the table", 1_000_000)]
    {
        let mut builder = IntegersBuilder::new(Options::default());
        // An odd factor gives every list an id of its own.
        let key = |n: u32| u64::from(n.wrapping_mul(0x9E37_79B1));
        for n in 0..lists {
            builder.push(key(n), Run::new(n * 10, n * 10 + 10)).expect("rows ascend");
        }
        let file = write(lists * 10, |writer| writer.add_integers("c", builder));
        let ids: Vec<u64> =
            (0..10_000).map(|_| key(random.below(u64::from(lists)) as u32)).collect();
        let kind = Kind::Integers;
        compare(&format!("{what}: 1 id"), &file, kind, &Query::IntegerIn(&ids[..1]), 1);
        compare(&format!("{what}: 10,000 ids"), &file, kind, &Query::IntegerIn(&ids), 10_000);
    }
    // Users of events, as in a look-up of one person: 376,000 of them in 2 million rows.
    let (rows, users) = (2_000_000, 376_000);
    let name = |user: u64| format!("{:028x}", u128::from(mix(user)) << 40 | u128::from(user));
    let mut builder = BytesBuilder::new(Options::default());
    for row in 0..rows {
        let user = random.below(users);
        builder.push(name(user).as_bytes(), Run::new(row, row + 1)).expect("rows ascend");
    }
    let file = write(rows, |writer| writer.add_strings("c", builder));
    let names: Vec<String> = (0..20).map(|_| name(random.below(users))).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    for count in [1, 20] {
        let what = format!("{count} of 376,000 strings");
        compare(&what, &file, Kind::Strings, &Query::StringIn(&names[..count]), count);
    }
}
