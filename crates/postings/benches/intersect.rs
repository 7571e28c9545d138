//! How long does a shop search spend on AND: three lists of common bigrams, of 0.1 to 1.3 million
//! rows of 10 million, and the rows of 10,000 shops, runs of 200?
//!
//! Beside it the same lists as row sets: united one by one, turned into containers, intersected.
//!
//! Floor: a mask of 10 million rows is 1.25 MB; reading three and writing one takes about 0.2 ms.
//! Run: cargo bench -p uplake-postings --bench intersect

use std::hint::black_box;
use std::time::Instant;

use uplake_postings::{
    Encoded, IntegersBuilder, Lookup, Options, Outline, Posting, Run, Scratch, Selection,
};
use uplake_testkit::random::Random;

const FILE_ROWS: u32 = 10_000_000;
/// Rows of the terms 0, 1, 2 …, a thousandth each; scattered, as names are in a catalogue.
const PERMILLE: [u64; 5] = [10, 50, 126, 30, 126];
const SHOPS: u32 = 10_000;
const ROWS_OF_A_SHOP: u32 = 200;
const ROUNDS: usize = 60;

struct Lists {
    encoded: Encoded,
    outline: Outline,
}

impl Lists {
    fn build(random: &mut Random) -> Self {
        let mut builder = IntegersBuilder::new(Options::default());
        for row in 0..FILE_ROWS {
            for (term, permille) in PERMILLE.into_iter().enumerate() {
                if random.below(1000) < permille {
                    builder.push(term as u64, Run::new(row, row + 1)).expect("rows ascend");
                }
            }
        }
        let encoded = builder.finish(FILE_ROWS).expect("within the limits");
        let bytes = encoded.dictionary.len() as u64;
        let outline = Outline::parse(&encoded.dictionary, bytes).expect("our own bytes");
        Self { encoded, outline }
    }

    fn posting(&self, term: u64) -> Posting {
        let bytes = self.encoded.dictionary.as_slice();
        match self.outline.find_integer(term, bytes, &mut Vec::new()) {
            Ok(Lookup::Found(posting)) => posting,
            other => panic!("a term that was built in: {other:?}"),
        }
    }

    /// What a query does now.
    fn in_mask(&self, terms: &[Vec<Posting>], shops: &[Run], scratch: &mut Scratch) -> Selection {
        let heap = &self.encoded.heap;
        let rows = match terms {
            [one] => self.outline.union(one, heap, scratch),
            terms => self.outline.intersect(terms, heap, scratch),
        };
        let shops = Selection::Runs(shops.to_vec());
        rows.expect("our own bytes").and(shops, FILE_ROWS)
    }

    /// What it did before.
    fn as_row_sets(
        &self,
        terms: &[Vec<Posting>],
        shops: &[Run],
        scratch: &mut Scratch,
    ) -> Selection {
        let shops = Selection::Runs(shops.to_vec()).into_row_set();
        let mut common = None;
        for term in terms {
            let rows = self.outline.union(term, &self.encoded.heap, scratch);
            let rows = rows.expect("our own bytes").into_row_set();
            common = Some(match common {
                None => rows,
                Some(common) => rows.and(&common),
            });
        }
        // The answer of an index was a selection, and that of a question a set again.
        let rows = common.unwrap_or_default().into_selection(FILE_ROWS).into_row_set();
        rows.and(&shops).into_selection(FILE_ROWS)
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut random = Random::new(6);
    let lists = Lists::build(&mut random);
    let share = FILE_ROWS / SHOPS;
    let shops: Vec<Run> = (0..SHOPS)
        .map(|shop| {
            let room = u64::from(share - ROWS_OF_A_SHOP - 1);
            let start = shop * share + random.below(room) as u32;
            Run::new(start, start + ROWS_OF_A_SHOP)
        })
        .collect();
    println!("{FILE_ROWS} rows; {SHOPS} shops of {ROWS_OF_A_SHOP} rows; ms\n");
    println!("| lists of k rows | rows found | now p50 | least | as row sets p50 | least |");
    println!("|---|---:|---:|---:|---:|---:|");
    for terms in [&[2][..], &[0, 2], &[0, 1, 2], &[1, 2, 4], &[3, 4, 2]] {
        let groups: Vec<Vec<Posting>> =
            terms.iter().map(|&term| vec![lists.posting(term)]).collect();
        let mut scratch = Scratch::default();
        let (mut now, mut before) = (Vec::new(), Vec::new());
        let mut rows = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let found = black_box(lists.in_mask(&groups, &shops, &mut scratch));
            now.push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let other = black_box(lists.as_row_sets(&groups, &shops, &mut scratch));
            before.push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(found, other, "both ways find the same");
            rows = found.cardinality();
        }
        let names = terms.iter().map(|&term| (PERMILLE[term as usize] * 10).to_string());
        println!(
            "| {} | {rows} | {:.2} | {:.2} | {:.2} | {:.2} |",
            names.collect::<Vec<_>>().join(", "),
            median(&mut now),
            now[0],
            median(&mut before),
            before[0],
        );
    }
}
