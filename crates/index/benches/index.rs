//! How fast is an index of the shop search's catalogue written, opened and asked, how large is it,
//! and how many bytes does a question fetch?
//!
//! Floor: opening computes checksums, about 10 GB/s. Run: cargo bench -p uplake-index -- [ROWS]
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use uplake_index::*;
use uplake_testkit::random::Random;
use uplake_testkit::xab::{ProductRows, World, XabOptions};

/// Milliseconds of `work`, and what it made.
fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let made = black_box(work());
    (start.elapsed().as_secs_f64() * 1e3, made)
}

fn quantile(times: &mut [f64], q: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * q) as usize]
}

fn pois(rows: &ProductRows) -> IntegersBuilder {
    let ids: Vec<u64> = rows.poi_id.iter().map(|&id| key_of_i64(id)).collect();
    let mut builder = IntegersBuilder::new(Options::default());
    builder.push_column(0, &ids).expect("rows ascend");
    builder
}

fn words(rows: &ProductRows) -> WordsBuilder {
    let mut builder = WordsBuilder::default();
    for row in 0..rows.spu_name.len() {
        builder.push(row as u32, rows.spu_name.get(row)).expect("rows ascend");
    }
    builder
}

fn grams(rows: &ProductRows, block_rows: u32) -> GramsBuilder {
    let mut builder = GramsBuilder::new(block_rows);
    for row in 0..rows.spu_name.len() {
        builder.push(row as u32, rows.spu_name.get(row)).expect("rows ascend");
    }
    builder
}

fn zones(rows: &ProductRows) -> ZonesBuilder {
    let mut builder = ZonesBuilder::new(1024);
    rows.price
        .iter()
        .enumerate()
        .for_each(|(row, &price)| builder.push(row as u32, key_of_f64(price)));
    builder
}

/// The index, as it is written; prints what each column costs.
fn write(rows: &ProductRows) -> Vec<u8> {
    let count = rows.poi_id.len();
    let data_file = DataFile { name: "products".to_owned(), bytes: 0, rows: count as u32 };
    let mut writer = Writer::new(data_file);
    let mut file = Vec::new();
    println!("| column | ms | M rows/s | bytes a row |\n|---|---:|---:|---:|");
    for what in ["poi_id, ids", "spu_name, words", "spu_name, grams", "price, zones"] {
        let (ms, result) = time(|| match what {
            "poi_id, ids" => writer.add_integers("poi_id", pois(rows)),
            "spu_name, words" => writer.add_words("spu_name", words(rows)),
            "spu_name, grams" => writer.add_grams("spu_name", grams(rows, 128)),
            _ => writer.add_zones("price", zones(rows)),
        });
        result.expect("within the limits");
        let bytes = writer.take();
        let per_row = bytes.len() as f64 / count as f64;
        println!("| {what} | {ms:.0} | {:.1} | {per_row:.2} |", count as f64 / ms / 1e3);
        file.extend(bytes);
    }
    file.extend(writer.finish().expect("within the limits"));
    file
}

fn main() {
    let argument = std::env::args().skip(1).find_map(|text| text.parse().ok());
    let products = argument.unwrap_or(2_000_000);
    let options = XabOptions { users: 1000, products, ..XabOptions::default() };
    let world = World::new(&options);
    let products = world.products();
    let rows = products.chunk(0..products.blocks());
    println!(
        "{} products of {} rows a poi, one data file\n",
        rows.poi_id.len(),
        options.rows_per_poi
    );
    let file = write(&rows);
    let size = file.len() as u64;
    let get = |range: &Range<u64>| &file[range.start as usize..range.end as usize];
    let Ok(Tail::Footer(footer)) = Footer::read(size, get(&tail_range(size))) else {
        panic!("our own bytes, and a short footer")
    };

    let mut distinct = rows.poi_id.clone();
    distinct.dedup();
    let mut random = Random::new(5);
    let few = (distinct.len() / 2).min(10_000);
    let ids: Vec<u64> = (0..few)
        .map(|_| key_of_i64(distinct[random.below(distinct.len() as u64) as usize]))
        .collect();
    let duck = Query::Like { pattern: "%烤鸭%", escape: None };
    let rare = Query::Like { pattern: "%北京烤鸭卷饼500g%", escape: None };
    let questions: [(&str, &str, Kind, Query<'_>); 7] = [
        ("one poi", "poi_id", Kind::Integers, Query::IntegerIn(&ids[..1])),
        ("many pois", "poi_id", Kind::Integers, Query::IntegerIn(&ids)),
        ("match 烤鸭", "spu_name", Kind::Words, Query::Match("烤鸭")),
        ("like %烤鸭%, by words", "spu_name", Kind::Words, duck.clone()),
        ("like %烤鸭%", "spu_name", Kind::Grams, duck),
        ("like %北京烤鸭卷饼500g%", "spu_name", Kind::Grams, rare),
        ("price 5..=6", "price", Kind::Zones, Query::KeyBetween(key_of_f64(5.0)..=key_of_f64(6.0))),
    ];
    println!("\nmany pois: {few} of {}\n", distinct.len());
    println!("| question | open µs | p50 µs | p99 µs | first read KiB | then KiB | rows |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (what, column, kind, query) in questions {
        let info = footer.column(column, kind).expect("just added");
        let mut opens: Vec<f64> = (0..50)
            .map(|_| time(|| Column::open(info, get(&info.first_read())).is_ok()).0)
            .collect();
        let column = Column::open(info, get(&info.first_read())).expect("our own bytes");
        let mut scratch = Scratch::default();
        let mut times = Vec::new();
        let (mut fetched, mut found) = (0, 0);
        for _ in 0..300 {
            let (ms, (bytes, answer)) = time(|| {
                let plan = column.plan(&query).expect("our own bytes").expect("of its kind");
                let parts: Vec<&[u8]> = plan.fetch().iter().map(get).collect();
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                (bytes, column.answer(&plan, &parts, &mut scratch).expect("our own bytes"))
            });
            times.push(ms);
            (fetched, found) = (bytes, answer.rows.cardinality());
        }
        let first = info.first_read();
        println!(
            "| {what} | {:.0} | {:.1} | {:.1} | {:.0} | {:.0} | {found} |",
            quantile(&mut opens, 0.5) * 1e3,
            quantile(&mut times, 0.5) * 1e3,
            quantile(&mut times, 0.99) * 1e3,
            (first.end - first.start) as f64 / 1024.0,
            fetched as f64 / 1024.0,
        );
    }
}
