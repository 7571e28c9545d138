//! `testkit`'s columns as Arrow batches and Parquet files: the XAB benchmark and the demo's shop.
//!
//! Files are laid out as the peers' benchmark expects them: `events` and `exposures` with one file
//! a day, `products` in parts, `params.json` with the ids the queries need; zstd, row groups of
//! 122,880 rows, dictionary pages for the columns that repeat.
//!
//! # Invariants
//! - Files depend on the options only, byte for byte, whatever the number of threads.
//! - Memory is bounded: per thread one day's plan (about 16 bytes a row) and one row group.
//!
//! # Not here
//! What the data looks like: see `uplake_testkit::{xab, shop}`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use arrow::array::{
    Array, ArrayRef, Date32Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
    PrimitiveArray, RecordBatch, StringArray, TimestampMillisecondArray, UInt32Array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowDictionaryKeyType, Field, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use uplake_testkit::shop::{self, Planted, Shop, ShopOptions};
use uplake_testkit::xab::{BLOCK_ROWS, DayPlan, Events, Exposures, ProductRows, Products};
use uplake_testkit::xab::{Params, World, XabOptions};
use uplake_testkit::{DAY_MS, Strings, date_text};

use crate::shop_files;

/// 15 blocks, as DuckDB cuts its row groups.
const ROW_GROUP_ROWS: usize = 15 * BLOCK_ROWS;
/// Row groups of a products file: 21 x 122,880 rows, so that 10 million rows are four files.
const PART_ROW_GROUPS: usize = 21;
/// Columns whose values repeat; a dictionary only slows the others down.
const DICTIONARY_COLUMNS: [&str; 15] = [
    "dt",
    "user_id",
    "event",
    "city",
    "os",
    "app_version",
    "channel",
    "exp_id",
    "variant",
    "city_id",
    "geohash",
    "poi_id",
    "experiment",
    "country",
    "platform",
];
/// Columns that take nearly all their values in every row group of a day, so that a minimum and
/// maximum prune nothing, while finding them costs two string comparisons a row.
const UNPRUNABLE_COLUMNS: [&str; 7] =
    ["user_id", "event", "page", "city", "os", "app_version", "channel"];
/// Progress messages under way; a slow listener slows the writers down, not memory up.
const PROGRESS_MESSAGES: usize = 64;

/// Arguments of `uplake generate`.
#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct GenerateArgs {
    #[command(subcommand)]
    data: Option<Data>,
    // Without a name it is XAB, as it was before there was a shop.
    #[command(flatten)]
    xab: Option<XabArgs>,
}

#[derive(clap::Subcommand, Debug)]
enum Data {
    /// A shop's A/B test as CSV files, with definitions: what README and docs use
    Shop(ShopArgs),
    /// The XAB benchmark as Parquet files
    Xab(XabArgs),
}

/// Arguments of `uplake generate shop`.
#[derive(clap::Args, Debug)]
struct ShopArgs {
    /// The folder to write to
    #[arg(default_value = "./shop")]
    out: PathBuf,
    /// Customers of the shop
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    users: u32,
    /// The same seed gives the same shop
    #[arg(long, default_value_t = 14)]
    seed: u64,
}

/// Arguments of `uplake generate xab`.
#[derive(clap::Args, Debug)]
struct XabArgs {
    /// The folder to write to
    out: PathBuf,
    /// Users there are
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..=60_000_000))]
    users: u32,
    /// Event rows a day
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events_per_day: u64,
    /// Days
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: u32,
    /// Rows of the product catalogue
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    products: u64,
    /// The same seed gives the same files
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

/// Runs `uplake generate`.
pub fn run(args: GenerateArgs) -> anyhow::Result<()> {
    match (args.data, args.xab) {
        (Some(Data::Shop(args)), _) => run_shop(&args),
        (Some(Data::Xab(args)), _) => run_xab(&args),
        (None, Some(args)) => {
            must_be_a_folder(&args.out)?;
            run_xab(&args)
        }
        (None, None) => anyhow::bail!("name what to make: uplake generate shop, or xab OUT"),
    }
}

/// What stands in the place of a kind of data is taken for a folder only if it cannot be a kind that was misspelled:
/// the benchmark is 40 million rows.
fn must_be_a_folder(out: &Path) -> anyhow::Result<()> {
    let text = out.to_string_lossy();
    let is_path = text.contains(std::path::is_separator) || text.starts_with('.') || out.exists();
    match is_path {
        true => Ok(()),
        false => anyhow::bail!(
            "there is no data called `{text}`: there are shop and xab (uplake generate xab {text} writes the \
             benchmark into the folder {text})"
        ),
    }
}

fn run_shop(args: &ShopArgs) -> anyhow::Result<()> {
    let options = ShopOptions { users: args.users, seed: args.seed, ..ShopOptions::default() };
    let ShopTables { exposures, events, planted } = shop(&options)?;
    let files = shop_files::write(&exposures, &events, &planted, &args.out)?;
    println!(
        "wrote {} events and {} exposures of {} customers, and definitions of two experiments, to {}: {files} files",
        crate::output::count_text(events.num_rows() as u64),
        crate::output::count_text(exposures.num_rows() as u64),
        crate::output::count_text(args.users.into()),
        args.out.display(),
    );
    Ok(())
}

fn run_xab(args: &XabArgs) -> anyhow::Result<()> {
    let options = XabOptions {
        users: args.users,
        events_per_day: usize::try_from(args.events_per_day)?,
        days: args.days,
        products: usize::try_from(args.products)?,
        seed: args.seed,
        ..XabOptions::default()
    };
    let started = std::time::Instant::now();
    let (mut rows, mut next) = (0u64, 10_000_000u64);
    let summary = xab(&options, &args.out, &mut |more| {
        rows += more;
        if rows >= next {
            eprintln!("{} rows", crate::output::count_text(rows));
            next = rows + 10_000_000;
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "wrote {} events, {} exposures and {} products to {}: {}, {seconds:.1} s, {} events/s",
        summary.events,
        summary.exposures,
        summary.products,
        args.out.display(),
        crate::output::bytes_text(summary.bytes),
        crate::output::count_text((summary.events as f64 / seconds.max(1e-3)) as u64),
    );
    Ok(())
}

/// What [`xab`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Event rows.
    pub events: u64,
    /// Exposure rows.
    pub exposures: u64,
    /// Product rows.
    pub products: u64,
    /// Bytes of all Parquet files.
    pub bytes: u64,
}

/// Why data could not be generated.
#[derive(Debug)]
#[non_exhaustive]
pub enum GenerateError {
    /// A folder or file could not be made.
    File { path: PathBuf, source: std::io::Error },
    /// A Parquet file could not be written, most likely because the disk is full.
    Write { path: PathBuf, source: ParquetError },
    /// Columns did not make a batch: a bug of ours.
    Batch(ArrowError),
}

impl std::fmt::Display for GenerateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, .. } => {
                write!(f, "cannot create {}; check that the folder is writable", path.display())
            }
            Self::Write { path, .. } => {
                write!(f, "cannot write {}; check the free space", path.display())
            }
            Self::Batch(_) => write!(f, "generated columns do not fit; please report this bug"),
        }
    }
}

impl std::error::Error for GenerateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Write { source, .. } => Some(source),
            Self::Batch(source) => Some(source),
        }
    }
}

impl From<ArrowError> for GenerateError {
    fn from(source: ArrowError) -> Self {
        Self::Batch(source)
    }
}

/// Writes the XAB data set below `out`: `events/DATE.parquet`, `exposures/DATE.parquet`,
/// `products/part-N.parquet` and `params.json`.
///
/// Days are shared by as many threads as there are cores. `progress` is told, on the caller's
/// thread, the rows written since its last call (of any table), about once a row group.
///
/// # Errors
/// [`GenerateError`] if a file cannot be written; files written before it stay.
///
/// # Panics
/// If the options exceed the limits that [`XabOptions`] documents.
pub fn xab(
    options: &XabOptions,
    out: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, GenerateError> {
    for folder in ["events", "exposures", "products"] {
        let path = out.join(folder);
        fs::create_dir_all(&path).map_err(|source| GenerateError::File { path, source })?;
    }
    let world = World::new(options);
    let run =
        Run { dictionaries: Dictionaries::new(&world)?, products: world.products(), world, out };
    let summary = run.all_jobs(progress)?;
    let path = out.join("params.json");
    fs::write(&path, params_json(&run.world.params(), options, out, &summary))
        .map_err(|source| GenerateError::File { path, source })?;
    Ok(summary)
}

/// One generation: jobs `0..days` are days, the others are parts of the products.
struct Run<'o> {
    world: World,
    dictionaries: Dictionaries,
    products: Products,
    out: &'o Path,
}

impl Run<'_> {
    fn all_jobs(&self, progress: &mut dyn FnMut(u64)) -> Result<Summary, GenerateError> {
        let parts = self.products.blocks().div_ceil(PART_ROW_GROUPS * 15);
        let jobs = self.world.options.days as usize + parts;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs);
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = |sender: SyncSender<u64>| {
            let mut sum = Summary { events: 0, exposures: 0, products: 0, bytes: 0 };
            while !stop.load(Ordering::Relaxed) {
                let job = next.fetch_add(1, Ordering::Relaxed);
                if job >= jobs {
                    break;
                }
                if let Err(error) = self.job(job, &mut sum, &sender) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(sum)
        };
        thread::scope(|scope| {
            let (sender, receiver) = sync_channel(PROGRESS_MESSAGES);
            let handles: Vec<_> = (0..threads)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(|| worker(sender))
                })
                .collect();
            drop(sender); // so that the loop ends with the last worker
            receiver.into_iter().for_each(progress);
            let mut total = Summary { events: 0, exposures: 0, products: 0, bytes: 0 };
            for handle in handles {
                let sum = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                total.events += sum.events;
                total.exposures += sum.exposures;
                total.products += sum.products;
                total.bytes += sum.bytes;
            }
            Ok(total)
        })
    }

    fn job(
        &self,
        job: usize,
        sum: &mut Summary,
        sender: &SyncSender<u64>,
    ) -> Result<(), GenerateError> {
        let days = self.world.options.days as usize;
        if job >= days {
            return self.part(job - days, sum, sender);
        }
        let plan = self.world.plan(job as u32);
        let name = format!("{}.parquet", date_text(plan.dt()));
        let file = self.out.join("events").join(&name);
        sum.bytes += write_blocks(&file, 0..plan.event_blocks(), sender, |blocks| {
            self.dictionaries.events(plan.events(blocks))
        })?;
        sum.events += plan.event_rows() as u64;
        sum.bytes += self.exposures(&plan, &name, sender)?;
        sum.exposures += plan.exposure_rows() as u64;
        Ok(())
    }

    fn exposures(
        &self,
        plan: &DayPlan<'_>,
        name: &str,
        sender: &SyncSender<u64>,
    ) -> Result<u64, GenerateError> {
        let file = self.out.join("exposures").join(name);
        write_blocks(&file, 0..plan.exposure_blocks(), sender, |blocks| {
            self.dictionaries.exposures(plan.exposures(blocks))
        })
    }

    fn part(
        &self,
        part: usize,
        sum: &mut Summary,
        sender: &SyncSender<u64>,
    ) -> Result<(), GenerateError> {
        let blocks = PART_ROW_GROUPS * 15;
        let blocks = part * blocks..((part + 1) * blocks).min(self.products.blocks());
        let rows = (blocks.end * BLOCK_ROWS).min(self.products.rows()) - blocks.start * BLOCK_ROWS;
        let file = self.out.join("products").join(format!("part-{part}.parquet"));
        sum.bytes +=
            write_blocks(&file, blocks, sender, |blocks| products(self.products.chunk(blocks)))?;
        sum.products += rows as u64;
        Ok(())
    }
}

/// Writes the batches of `blocks` to a Parquet file, one row group at a time; the file's bytes.
fn write_blocks(
    path: &Path,
    blocks: Range<usize>,
    sender: &SyncSender<u64>,
    batch: impl Fn(Range<usize>) -> Result<RecordBatch, ArrowError>,
) -> Result<u64, GenerateError> {
    // Without rows there is still a file with the schema.
    let first = batch(blocks.start..(blocks.start + 15).min(blocks.end))?;
    let mut file = ParquetFile::create(path, first.schema())?;
    tell(sender, file.write(&first)?);
    for start in (blocks.start + 15..blocks.end).step_by(15) {
        let next = batch(start..(start + 15).min(blocks.end))?;
        tell(sender, file.write(&next)?);
    }
    file.close()
}

/// Reports progress; nobody listening is no error.
fn tell(sender: &SyncSender<u64>, rows: usize) {
    let _ = sender.send(rows as u64);
}

/// A Parquet file being written, with the options all our generated files share.
struct ParquetFile<'p> {
    path: &'p Path,
    writer: ArrowWriter<File>,
}

impl<'p> ParquetFile<'p> {
    fn create(path: &'p Path, schema: SchemaRef) -> Result<Self, GenerateError> {
        let file = File::create(path)
            .map_err(|source| GenerateError::File { path: path.to_owned(), source })?;
        let level = ZstdLevel::try_new(1).expect("level 1 exists");
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_dictionary_enabled(false);
        for name in UNPRUNABLE_COLUMNS {
            let none = EnabledStatistics::None;
            properties = properties.set_column_statistics_enabled(ColumnPath::from(name), none);
        }
        for name in DICTIONARY_COLUMNS {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), true);
        }
        // Without the embedded Arrow schema a reader sees plain strings, as the peers' files have
        // them, and not our dictionary types.
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, schema, options)
            .map_err(|source| GenerateError::Write { path: path.to_owned(), source })?;
        Ok(Self { path, writer })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<usize, GenerateError> {
        let failed = |source| GenerateError::Write { path: self.path.to_owned(), source };
        self.writer.write(batch).map_err(failed)?;
        Ok(batch.num_rows())
    }

    fn close(mut self) -> Result<u64, GenerateError> {
        let failed = |source| GenerateError::Write { path: self.path.to_owned(), source };
        self.writer.finish().map_err(failed)?;
        Ok(self.writer.bytes_written() as u64)
    }
}

/// The world's dictionaries as Arrow arrays, shared by all batches.
struct Dictionaries {
    user_ids: ArrayRef,
    events: ArrayRef,
    cities: ArrayRef,
    systems: ArrayRef,
    versions: ArrayRef,
    channels: ArrayRef,
}

impl Dictionaries {
    fn new(world: &World) -> Result<Self, ArrowError> {
        let array = |strings: &Strings| utf8(strings.clone());
        Ok(Self {
            user_ids: array(&world.user_ids)?,
            events: array(&world.events)?,
            cities: array(&world.cities)?,
            systems: array(&world.systems)?,
            versions: array(&world.versions)?,
            channels: array(&world.channels)?,
        })
    }

    fn events(&self, events: Events) -> Result<RecordBatch, ArrowError> {
        let rows = events.ts_ms.len();
        batch(vec![
            ("dt", Arc::new(Date32Array::from(vec![events.dt; rows]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(events.ts_ms))),
            ("user_id", encoded::<UInt32Type>(events.user, &self.user_ids)?),
            ("event", encoded::<UInt8Type>(events.event, &self.events)?),
            ("page", utf8(events.page)?),
            ("item_id", Arc::new(Int64Array::from(events.item_id))),
            ("value", Arc::new(Float64Array::from(events.value))),
            ("duration_ms", Arc::new(Int32Array::from(events.duration_ms))),
            ("city", encoded::<UInt16Type>(events.city, &self.cities)?),
            ("os", encoded::<UInt8Type>(events.os, &self.systems)?),
            ("app_version", encoded::<UInt8Type>(events.app_version, &self.versions)?),
            ("channel", encoded::<UInt8Type>(events.channel, &self.channels)?),
        ])
    }

    fn exposures(&self, exposures: Exposures) -> Result<RecordBatch, ArrowError> {
        let rows = exposures.ts_ms.len();
        batch(vec![
            ("dt", Arc::new(Date32Array::from(vec![exposures.dt; rows]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(exposures.ts_ms))),
            ("user_id", encoded::<UInt32Type>(exposures.user, &self.user_ids)?),
            ("exp_id", Arc::new(Int32Array::from(exposures.exp_id))),
            ("variant", Arc::new(Int32Array::from(exposures.variant))),
            ("city", encoded::<UInt16Type>(exposures.city, &self.cities)?),
            ("os", encoded::<UInt8Type>(exposures.os, &self.systems)?),
            ("app_version", encoded::<UInt8Type>(exposures.app_version, &self.versions)?),
        ])
    }
}

fn products(rows: ProductRows) -> Result<RecordBatch, ArrowError> {
    batch(vec![
        ("city_id", Arc::new(Int32Array::from(rows.city_id))),
        ("geohash", utf8(rows.geohash)?),
        ("poi_id", Arc::new(Int64Array::from(rows.poi_id))),
        ("spu_name", utf8(rows.spu_name)?),
        ("price", Arc::new(Float64Array::from(rows.price))),
        ("sales", Arc::new(Int32Array::from(rows.sales))),
    ])
}

/// A batch of nullable columns, as the Python generator writes them.
fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, ArrowError> {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<Field>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, array)| array).collect())
}

fn utf8(strings: Strings) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(strings.offsets));
    Ok(Arc::new(StringArray::try_new(offsets, Buffer::from_vec(strings.bytes), None)?))
}

/// Codes and their dictionary as one array, so that no string is copied per row.
fn encoded<K: ArrowDictionaryKeyType>(
    codes: Vec<K::Native>,
    values: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let keys = PrimitiveArray::<K>::new(ScalarBuffer::from(codes), None);
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::clone(values))?))
}

fn params_json(params: &Params, options: &XabOptions, out: &Path, summary: &Summary) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let days = list(params.days.iter().map(|day| json_text(day)).collect());
    let exps =
        list(params.exps.iter().map(|(id, n, day)| format!("\"{id}\": [{n}, {day}]")).collect());
    let pois = list(params.poi_ids.iter().map(i64::to_string).collect());
    let user = json_text(&params.point_user);
    let mut json = String::new();
    let Summary { events, exposures, products, .. } = summary;
    write!(
        json,
        "{{\"days\": [{days}], \"exp\": {}, \"exps\": {{{exps}}}, \"point_user\": {user}, \
         \"poi_ids\": [{pois}], \"rows\": {{\"events\": {events}, \"exposures\": {exposures}, \
         \"products\": {products}}}, \"city1_pois\": {}, \"city1_rows\": {}, ",
        params.exp, params.city1_pois, params.city1_rows
    )
    .expect("a String takes any text");
    writeln!(
        json,
        "\"args\": {{\"out\": {}, \"days\": {}, \"rows_per_day\": {}, \"users\": {}, \
         \"products\": {}, \"per_poi\": {}, \"seed\": {}}}}}",
        json_text(&out.to_string_lossy()),
        options.days,
        options.events_per_day,
        options.users,
        options.products,
        options.rows_per_poi,
        options.seed
    )
    .expect("a String takes any text");
    json
}

/// `text` as a JSON string.
fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a String takes any text");
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// The demo's shop as batches with plain string columns, sorted by time.
#[derive(Debug, Clone)]
pub struct ShopTables {
    /// `dt, ts, user_id, experiment, variant, country, platform`.
    pub exposures: RecordBatch,
    /// `dt, ts, user_id, event, amount, load_ms, country, platform`; `amount` is null but for
    /// `purchase` and `refund`, `load_ms` is null but for `page_load`.
    pub events: RecordBatch,
    /// The true values a report should find.
    pub planted: Planted,
}

/// Makes the demo's shop in memory: about 2 million rows at the default size.
///
/// # Errors
/// [`GenerateError::Batch`], which would be a bug.
pub fn shop(options: &ShopOptions) -> Result<ShopTables, GenerateError> {
    let Shop { user_ids, exposures, events, planted } = Shop::new(options);
    let users = utf8(user_ids)?;
    let exposures = batch(vec![
        ("dt", dates(&exposures.ts_ms)),
        ("ts", Arc::new(TimestampMillisecondArray::from(exposures.ts_ms))),
        ("user_id", take(&users, &UInt32Array::from(exposures.user), None)?),
        ("experiment", named(&exposures.experiment, &shop::EXPERIMENTS)),
        ("variant", named(&exposures.variant, &shop::VARIANTS)),
        ("country", named(&exposures.country, &shop::COUNTRIES)),
        ("platform", named(&exposures.platform, &shop::PLATFORMS)),
    ])?;
    let is =
        |row: usize, names: &[&str]| names.contains(&shop::EVENTS[usize::from(events.event[row])]);
    let amount: Float64Array = (0..events.amount.len())
        .map(|row| is(row, &["purchase", "refund"]).then(|| events.amount[row]))
        .collect();
    let load_ms: Int32Array = (0..events.load_ms.len())
        .map(|row| is(row, &["page_load"]).then(|| events.load_ms[row]))
        .collect();
    let events = batch(vec![
        ("dt", dates(&events.ts_ms)),
        ("ts", Arc::new(TimestampMillisecondArray::from(events.ts_ms))),
        ("user_id", take(&users, &UInt32Array::from(events.user), None)?),
        ("event", named(&events.event, &shop::EVENTS)),
        ("amount", Arc::new(amount)),
        ("load_ms", Arc::new(load_ms)),
        ("country", named(&events.country, &shop::COUNTRIES)),
        ("platform", named(&events.platform, &shop::PLATFORMS)),
    ])?;
    Ok(ShopTables { exposures, events, planted })
}

/// Writes the demo's shop to `out/exposures.parquet` and `out/events.parquet`.
///
/// # Errors
/// [`GenerateError`] if a file cannot be written.
pub fn shop_files(options: &ShopOptions, out: &Path) -> Result<ShopTables, GenerateError> {
    fs::create_dir_all(out)
        .map_err(|source| GenerateError::File { path: out.to_owned(), source })?;
    let tables = shop(options)?;
    for (name, table) in [("exposures", &tables.exposures), ("events", &tables.events)] {
        let path = out.join(format!("{name}.parquet"));
        let mut file = ParquetFile::create(&path, table.schema())?;
        file.write(table)?;
        file.close()?;
    }
    Ok(tables)
}

/// The UTC day of each time.
fn dates(ts_ms: &[i64]) -> ArrayRef {
    Arc::new(ts_ms.iter().map(|ts| Some(ts.div_euclid(DAY_MS) as i32)).collect::<Date32Array>())
}

fn named(codes: &[u8], names: &[&str]) -> ArrayRef {
    Arc::new(codes.iter().map(|code| Some(names[usize::from(*code)])).collect::<StringArray>())
}

#[cfg(test)]
mod tests {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn column_types(batch: &RecordBatch) -> Vec<String> {
        batch.schema().fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect()
    }

    #[test]
    fn json_text_is_escaped() {
        for (text, expected) in
            [("a", "\"a\""), ("a\"b\\c", r#""a\"b\\c""#), ("\n", r#""\u000a""#), ("鲜", "\"鲜\"")]
        {
            assert_eq!(json_text(text), expected);
        }
    }

    #[test]
    fn a_word_that_is_no_kind_is_not_taken_for_a_folder() {
        for path in ["./nope", "a/b", "..", "/tmp"] {
            must_be_a_folder(Path::new(path)).unwrap();
        }
        let error = must_be_a_folder(Path::new("shopp")).unwrap_err().to_string();
        assert!(error.contains("`shopp`") && error.contains("xab shopp"), "{error}");
    }

    #[test]
    fn batches_hold_the_generated_columns() {
        let options =
            XabOptions { users: 500, events_per_day: 20_000, products: 5000, ..Default::default() };
        let world = World::new(&options);
        let dictionaries = Dictionaries::new(&world).expect("dictionaries are valid");
        let day = world.day(0);
        let batch = dictionaries.events(day.events.clone()).expect("columns fit");
        let users = batch.column_by_name("user_id").expect("a column");
        let plain = arrow::compute::cast(users, &arrow::datatypes::DataType::Utf8)
            .expect("a dictionary of strings");
        let plain = plain.as_any().downcast_ref::<StringArray>().expect("strings");
        for (row, user) in day.events.user.iter().enumerate() {
            assert_eq!(plain.value(row), world.user_ids.get(*user as usize));
        }
    }

    #[test]
    fn files_read_back_as_plain_columns() {
        let out = std::env::temp_dir().join(format!("uplake-generate-{}", std::process::id()));
        let options = XabOptions {
            users: 500,
            events_per_day: 130_000,
            days: 2,
            products: 5000,
            ..Default::default()
        };
        let mut told = 0;
        let summary =
            xab(&options, &out, &mut |rows| told += rows).expect("the folder is writable");
        assert_eq!(told, summary.events + summary.exposures + summary.products);
        let file = File::open(out.join("events/2026-03-02.parquet")).expect("a file a day");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let batches: Vec<RecordBatch> =
            reader.build().expect("readable").collect::<Result<_, _>>().expect("readable");
        let types = column_types(&batches[0]);
        assert_eq!(types[..4], ["dt Date32", "ts Timestamp(ms)", "user_id Utf8", "event Utf8"]);
        let world = World::new(&options);
        let users = world.day(1).events.user;
        let found = batches.iter().flat_map(|batch| {
            let ids = batch.column(2).as_any().downcast_ref::<StringArray>().expect("strings");
            ids.iter().map(|id| id.expect("no nulls").to_owned()).collect::<Vec<_>>()
        });
        assert!(found.eq(users.iter().map(|user| world.user_ids.get(*user as usize))));
        fs::remove_dir_all(out).expect("the folder is ours");
    }

    #[test]
    fn shop_has_the_columns_the_demo_queries() {
        let tables = shop(&ShopOptions { users: 1000, ..Default::default() }).expect("it fits");
        assert_eq!(
            column_types(&tables.exposures)[1..4],
            ["ts Timestamp(ms)", "user_id Utf8", "experiment Utf8"]
        );
        let amount = tables.events.column_by_name("amount").expect("a column");
        assert!(amount.null_count() > 0 && amount.null_count() < amount.len());
    }

    #[test]
    fn every_day_of_the_shop_has_a_file_and_no_row_is_lost() {
        let tables = shop(&ShopOptions { users: 1000, ..Default::default() }).expect("it fits");
        let out = tempfile::tempdir().expect("a folder");
        let files =
            shop_files::write(&tables.exposures, &tables.events, &tables.planted, out.path())
                .expect("the folder is writable");
        assert_eq!(files, 28 + 4);
        let lines: usize = fs::read_dir(out.path().join("events"))
            .expect("a folder")
            .map(|file| fs::read_to_string(file.expect("a file").path()).expect("text"))
            .map(|text| text.lines().count() - 1)
            .sum();
        assert_eq!(lines, tables.events.num_rows());
        let day = out.path().join("events/2026-03-01.csv");
        let text = fs::read_to_string(day).expect("text");
        let header = "dt,ts,user_id,event,amount,load_ms,country,platform\n";
        assert_eq!(
            text.strip_prefix(header).map(|rows| &rows[..21]),
            Some("2026-03-01,2026-03-01")
        );
    }
}
