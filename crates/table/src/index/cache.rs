//! Asking index files, and keeping what was read of them.
//!
//! A first question to a file costs two reads (the footer, then the dictionary); after that there
//! is none, except of lists that a file keeps apart from its dictionary. Of a large dictionary the
//! first questions of few terms read a few blocks instead, one round trip after the other; when
//! they have read as much as the whole, it is read and kept, too.
//!
//! # Invariants
//! - At most [`IndexCache::limit_bytes`] are kept, whatever is asked; the least recently used file
//!   goes first. Nothing else holds on to a file's bytes, so dropping the cache frees all.
//! - An index whose bytes turn out to be wrong is forgotten, so that a repaired one is seen.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use uplake_index::{
    Column, ColumnInfo, Footer, IndexError, Kind, Query, Scratch, Selection, Sparse, Step,
    TAIL_BYTES, Tail,
};

use super::file::identity_of;
use crate::data_file::DataFile;
use uplake_objectio::Store;

/// What is kept of a file beside the dictionaries: footer, map entries.
const ENTRY_BYTES: usize = 1024;

/// Words and grams of a text or pattern that are looked up, about.
const TERMS_OF_A_TEXT: usize = 8;

/// A question to the index of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Rows whose whole number is one of these, as [`uplake_index::key_of_i64`] makes keys.
    Integers { column: String, keys: Arc<Vec<u64>> },
    /// Rows whose text is one of these.
    Strings { column: String, values: Arc<Vec<String>> },
    /// Rows whose text holds all words of this one.
    Words { column: String, text: String },
    /// Rows whose text may match a LIKE (or ILIKE) pattern.
    Like { column: String, pattern: String, escape: Option<char> },
    /// Rows whose number may lie in a range, both ends included, as [`uplake_index::key_of_f64`]
    /// makes keys.
    Between { column: String, keys: RangeInclusive<u64> },
}

impl Question {
    /// The column.
    pub fn column(&self) -> &str {
        match self {
            Self::Integers { column, .. }
            | Self::Strings { column, .. }
            | Self::Words { column, .. }
            | Self::Like { column, .. }
            | Self::Between { column, .. } => column,
        }
    }

    /// Kinds of index that can answer, one that may do so exactly first; what several say holds
    /// together.
    fn kinds(&self) -> &'static [Kind] {
        match self {
            Self::Integers { .. } => &[Kind::Integers],
            Self::Strings { .. } => &[Kind::Strings],
            Self::Words { .. } => &[Kind::Words],
            Self::Like { .. } => &[Kind::Words, Kind::Grams],
            Self::Between { .. } => &[Kind::Zones],
        }
    }

    /// The strings that are asked for, for [`Question::query`].
    fn texts(&self) -> Vec<&[u8]> {
        match self {
            Self::Strings { values, .. } => values.iter().map(|v| v.as_bytes()).collect(),
            _ => Vec::new(),
        }
    }

    fn query<'q>(&'q self, texts: &'q [&'q [u8]]) -> Query<'q> {
        match self {
            Self::Integers { keys, .. } => Query::IntegerIn(keys),
            Self::Strings { .. } => Query::StringIn(texts),
            Self::Words { text, .. } => Query::Match(text),
            Self::Like { pattern, escape, .. } => Query::Like { pattern, escape: *escape },
            Self::Between { keys, .. } => Query::KeyBetween(keys.clone()),
        }
    }

    /// Terms of a dictionary that it takes, about.
    fn terms(&self) -> usize {
        match self {
            Self::Words { .. } | Self::Like { .. } => TERMS_OF_A_TEXT,
            _ => self.lookups(),
        }
    }

    /// Values that are looked up.
    pub fn lookups(&self) -> usize {
        match self {
            Self::Integers { keys, .. } => keys.len(),
            Self::Strings { values, .. } => values.len(),
            Self::Words { .. } | Self::Like { .. } | Self::Between { .. } => 1,
        }
    }
}

/// Why an index did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The data file has no index.
    Missing,
    /// Its index has no column like that; it is older than the wish for one.
    NotIndexed,
    /// The index knows nothing about this: a pattern without three letters in a row.
    Vague,
    /// Its bytes are wrong: damaged, of another file, of a newer version.
    Broken(IndexError),
    /// It could not be read.
    Unreadable(String),
}

impl Fallback {
    /// Is this worth a repair?
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Vague)
    }

    /// May it be repaired unasked? What a newer version wrote may not.
    pub fn is_ours_to_mend(&self) -> bool {
        self.is_fault() && !matches!(self, Self::Broken(IndexError::TooNew { .. }))
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "it has no index"),
            Self::NotIndexed => write!(f, "its index lacks the column"),
            Self::Vague => write!(f, "the pattern says too little"),
            Self::Broken(error) => write!(f, "{error}"),
            Self::Unreadable(error) => write!(f, "its index cannot be read: {error}"),
        }
    }
}

/// What became of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The rows are exactly those asked for.
    Exactly,
    /// Some rows may not be; the condition must be applied to them.
    Roughly,
    /// The question was left out.
    Not(Fallback),
}

/// The rows of a file that may satisfy all questions.
#[derive(Clone, Debug)]
pub struct FileRows {
    /// `None` if no question was answered: all rows.
    pub rows: Option<Selection>,
    /// Rows of the file, if its index could be read.
    pub total: u64,
    /// One for each question.
    pub answered: Vec<Answered>,
    /// Bytes read to answer.
    pub bytes_read: u64,
}

/// What has been read of index files.
pub struct IndexCache {
    limit_bytes: usize,
    /// Whose own cache takes index files for files that never change, although they are built again.
    storage: Option<Arc<Store>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    files: HashMap<Path, (Arc<OpenIndex>, u64)>,
    bytes: usize,
    clock: u64,
}

/// The parts of one index file that were needed so far.
struct OpenIndex {
    footer: Footer,
    columns: Mutex<HashMap<usize, Arc<Column<Bytes>>>>,
    /// Columns that are not among them yet.
    sparse: Mutex<HashMap<usize, SparseUse>>,
}

/// What a column's questions read without its dictionary.
#[derive(Default)]
struct SparseUse {
    opened: Option<Arc<Sparse>>,
    bytes_read: u64,
}

impl fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexCache").field("limit_bytes", &self.limit_bytes).finish()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IndexCache {
    /// A cache of at most so many bytes.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, storage: None, kept: Mutex::default() }
    }

    /// The same for indexes in a store with a cache of its own, which must forget what this forgets.
    #[must_use]
    pub fn over(self, storage: &Arc<Store>) -> Self {
        Self { storage: Some(Arc::clone(storage)), ..self }
    }

    /// Bytes kept at most.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes kept now.
    pub fn kept_bytes(&self) -> usize {
        locked(&self.kept).bytes
    }

    /// The rows of `file` that may satisfy all `questions`.
    ///
    /// Never fails: a question that cannot be answered says why and is left out. What was read before
    /// may be of an index that was built again since, so that a fault is looked at a second time.
    pub async fn rows(
        &self,
        store: &dyn ObjectStore,
        file: &DataFile,
        questions: &[Question],
    ) -> FileRows {
        let found = self.rows_of_kept(store, file, questions).await;
        let stale = |answered: &Answered| {
            matches!(answered, Answered::Not(Fallback::Broken(_) | Fallback::NotIndexed))
        };
        if !found.answered.iter().any(stale) {
            return found;
        }
        self.forget(&file.index_path);
        let mut again = self.rows_of_kept(store, file, questions).await;
        again.bytes_read += found.bytes_read;
        again
    }

    async fn rows_of_kept(
        &self,
        store: &dyn ObjectStore,
        file: &DataFile,
        questions: &[Question],
    ) -> FileRows {
        let mut found = FileRows { rows: None, total: 0, answered: Vec::new(), bytes_read: 0 };
        let index = self.open(store, file, &mut found.bytes_read).await;
        let file_rows = index.as_ref().map_or(0, |index| index.footer.data_file().rows);
        found.total = u64::from(file_rows);
        for question in questions {
            let answer = match &index {
                Ok(index) => self.ask(store, file, index, question, &mut found.bytes_read).await,
                Err(fallback) => Err(fallback.clone()),
            };
            found.answered.push(match answer {
                Ok((rows, recheck)) => {
                    found.rows = Some(match found.rows.take() {
                        Some(so_far) => so_far.and(rows, file_rows),
                        None => rows,
                    });
                    if recheck { Answered::Roughly } else { Answered::Exactly }
                }
                Err(fallback) => {
                    if matches!(fallback, Fallback::Broken(_) | Fallback::Unreadable(_)) {
                        self.forget(&file.index_path);
                    }
                    Answered::Not(fallback)
                }
            });
        }
        found
    }

    async fn open(
        &self,
        store: &dyn ObjectStore,
        file: &DataFile,
        bytes_read: &mut u64,
    ) -> Result<Arc<OpenIndex>, Fallback> {
        if let Some(hit) = self.hit(&file.index_path) {
            return Ok(hit);
        }
        let footer = read_footer(store, file, bytes_read).await?;
        let opened =
            Arc::new(OpenIndex { footer, columns: Mutex::default(), sparse: Mutex::default() });
        self.keep(&file.index_path, &opened, ENTRY_BYTES);
        Ok(opened)
    }

    async fn ask(
        &self,
        store: &dyn ObjectStore,
        file: &DataFile,
        index: &Arc<OpenIndex>,
        question: &Question,
        bytes_read: &mut u64,
    ) -> Result<(Selection, bool), Fallback> {
        let file_rows = index.footer.data_file().rows;
        let mut why = Fallback::NotIndexed;
        let mut found: Option<(Selection, bool)> = None;
        for kind in question.kinds() {
            let columns = index.footer.columns();
            let is_it = |c: &ColumnInfo| c.name() == question.column() && c.kind() == *kind;
            let Some(at) = columns.iter().position(is_it) else { continue };
            let answer = match index.sparse(at, question.terms()) {
                true => ask_sparsely(store, file, index, at, question, bytes_read).await?,
                false => None,
            };
            let answer = match answer {
                Some(answer) => Some(answer),
                None => {
                    let column = self.column(store, file, index, at, bytes_read).await?;
                    ask_column(store, file, &column, question, bytes_read).await?
                }
            };
            match answer {
                None => why = Fallback::Vague,
                Some((rows, recheck)) => {
                    found = Some(match found {
                        Some((so_far, rough)) => (so_far.and(rows, file_rows), rough && recheck),
                        None => (rows, recheck),
                    });
                }
            }
            if matches!(found, Some((_, false))) {
                break;
            }
        }
        found.ok_or(why)
    }

    async fn column(
        &self,
        store: &dyn ObjectStore,
        file: &DataFile,
        index: &Arc<OpenIndex>,
        at: usize,
        bytes_read: &mut u64,
    ) -> Result<Arc<Column<Bytes>>, Fallback> {
        if let Some(column) = locked(&index.columns).get(&at) {
            return Ok(Arc::clone(column));
        }
        let info = &index.footer.columns()[at];
        let range = info.first_read();
        let bytes = store.get_range(&file.index_path, range).await.map_err(unreadable)?;
        *bytes_read += bytes.len() as u64;
        let size = bytes.len();
        let column = Arc::new(Column::open(info, bytes).map_err(Fallback::Broken)?);
        let grown = locked(&index.columns).insert(at, Arc::clone(&column)).is_none();
        if grown {
            self.keep(&file.index_path, index, size);
        }
        Ok(column)
    }

    fn hit(&self, path: &Path) -> Option<Arc<OpenIndex>> {
        let mut kept = locked(&self.kept);
        kept.clock += 1;
        let now = kept.clock;
        let (index, used) = kept.files.get_mut(path)?;
        *used = now;
        Some(Arc::clone(index))
    }

    /// Keeps `index`, which grew by `grown` bytes, at the cost of others.
    fn keep(&self, path: &Path, index: &Arc<OpenIndex>, grown: usize) {
        let mut kept = locked(&self.kept);
        kept.clock += 1;
        let now = kept.clock;
        let same = kept.files.get(path).is_some_and(|(known, _)| Arc::ptr_eq(known, index));
        if same {
            kept.bytes += grown;
        } else {
            kept.remove(path);
            kept.bytes += index.bytes();
        }
        kept.files.insert(path.clone(), (Arc::clone(index), now));
        while kept.bytes > self.limit_bytes {
            let oldest = kept.files.iter().min_by_key(|(_, (_, used))| *used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else { break };
            kept.remove(&path);
        }
    }

    fn forget(&self, path: &Path) {
        locked(&self.kept).remove(path);
        if let Some(storage) = &self.storage {
            storage.forget(path);
        }
    }
}

impl Kept {
    fn remove(&mut self, path: &Path) {
        if let Some((index, _)) = self.files.remove(path) {
            self.bytes = self.bytes.saturating_sub(index.bytes());
        }
    }
}

impl OpenIndex {
    /// Is a question of so many terms better asked without the dictionary of a column?
    fn sparse(&self, at: usize, terms: usize) -> bool {
        let Some(info) = self.footer.columns().get(at) else { return false };
        let whole = info.first_read();
        let spent = locked(&self.sparse).get(&at).map_or(0, |used| used.bytes_read);
        info.is_sparse(terms)
            && spent < whole.end - whole.start
            && !locked(&self.columns).contains_key(&at)
    }

    fn spent(&self, at: usize, opened: Option<&Arc<Sparse>>, bytes: u64) {
        let mut sparse = locked(&self.sparse);
        let used = sparse.entry(at).or_default();
        used.bytes_read += bytes;
        if let Some(opened) = opened {
            used.opened = Some(Arc::clone(opened));
        }
    }

    fn bytes(&self) -> usize {
        let columns = locked(&self.columns);
        let of = |c: &Arc<Column<Bytes>>| {
            let range = c.info().first_read();
            (range.end - range.start) as usize
        };
        ENTRY_BYTES + columns.values().map(of).sum::<usize>()
    }
}

/// As [`ask_column`], reading but the header and the blocks that the terms need; `None` if the
/// question takes all of the dictionary, or the index knows nothing about it.
async fn ask_sparsely(
    store: &dyn ObjectStore,
    file: &DataFile,
    index: &OpenIndex,
    at: usize,
    question: &Question,
    bytes_read: &mut u64,
) -> Result<Option<(Selection, bool)>, Fallback> {
    let opened = locked(&index.sparse).get(&at).and_then(|used| used.opened.clone());
    let sparse = match opened {
        Some(sparse) => sparse,
        None => {
            let info = &index.footer.columns()[at];
            let range = info.header_read();
            let bytes = store.get_range(&file.index_path, range).await.map_err(unreadable)?;
            *bytes_read += bytes.len() as u64;
            let sparse = Arc::new(Sparse::open(info, &bytes).map_err(Fallback::Broken)?);
            index.spent(at, Some(&sparse), bytes.len() as u64);
            sparse
        }
    };
    let texts = question.texts();
    let probe = sparse.ask(&question.query(&texts)).map_err(Fallback::Broken)?;
    let Some(mut probe) = probe else { return Ok(None) };
    let mut parts: Vec<Bytes> = Vec::new();
    loop {
        match probe.next(parts).map_err(Fallback::Broken)? {
            Step::Need(ranges) => {
                let bytes = ranges.iter().map(|r| r.end - r.start).sum::<u64>();
                *bytes_read += bytes;
                index.spent(at, None, bytes);
                parts = store.get_ranges(&file.index_path, &ranges).await.map_err(unreadable)?;
            }
            Step::Done(answer) => return Ok(Some((answer.rows, answer.recheck))),
        }
    }
}

/// The rows of one column's index, and whether the condition must be applied to them again; `None`
/// if the index knows nothing about the question.
async fn ask_column(
    store: &dyn ObjectStore,
    file: &DataFile,
    column: &Column<Bytes>,
    question: &Question,
    bytes_read: &mut u64,
) -> Result<Option<(Selection, bool)>, Fallback> {
    let texts = question.texts();
    let plan = column.plan(&question.query(&texts));
    let Some(plan) = plan.map_err(Fallback::Broken)? else { return Ok(None) };
    let ranges: Vec<Range<u64>> = plan.fetch().to_vec();
    let parts = if ranges.is_empty() {
        Vec::new()
    } else {
        *bytes_read += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        store.get_ranges(&file.index_path, &ranges).await.map_err(unreadable)?
    };
    let answer = column.answer(&plan, &parts, &mut Scratch::default()).map_err(Fallback::Broken)?;
    Ok(Some((answer.rows, answer.recheck)))
}

/// Reads the footer of a file's index and checks that it is this file's.
pub(crate) async fn read_footer(
    store: &dyn ObjectStore,
    file: &DataFile,
    bytes_read: &mut u64,
) -> Result<Footer, Fallback> {
    let options = GetOptions { range: Some(GetRange::Suffix(TAIL_BYTES)), ..GetOptions::default() };
    let result = match store.get_opts(&file.index_path, options).await {
        Err(object_store::Error::NotFound { .. }) => return Err(Fallback::Missing),
        other => other.map_err(unreadable)?,
    };
    let size = result.meta.size;
    let mut tail = result.bytes().await.map_err(unreadable)?;
    *bytes_read += tail.len() as u64;
    let footer = loop {
        match Footer::read(size, &tail).map_err(Fallback::Broken)? {
            Tail::Footer(footer) => break footer,
            Tail::More(range) => {
                tail = store.get_range(&file.index_path, range).await.map_err(unreadable)?;
                *bytes_read += tail.len() as u64;
            }
        }
    };
    let identity = identity_of(file, footer.data_file().rows).ok_or(Fallback::Missing)?;
    footer.check(&identity).map_err(Fallback::Broken)?;
    Ok(footer)
}

#[expect(clippy::needless_pass_by_value, reason = "fits map_err")]
fn unreadable(error: object_store::Error) -> Fallback {
    Fallback::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use object_store::memory::InMemory;
    use uplake_index::{BytesBuilder, IntegersBuilder, Options, Run, WordsBuilder, Writer};

    use super::*;

    const ROWS: u32 = 60_000;

    fn data_file() -> DataFile {
        DataFile {
            ids: HashMap::new(),
            id_marks: HashMap::new(),
            id_quantiles: HashMap::new(),
            path: "part-0.parquet".to_owned(),
            store_path: Path::from("t/part-0.parquet"),
            index_path: Path::from("t/part-0.parquet.idx"),
            size: 1000,
            modified_millis: 0,
            rows: Some(u64::from(ROWS)),
            partition_values: HashMap::default(),
            stats: None,
            crc32: None,
            checksums: None,
        }
    }

    fn user(n: u32) -> String {
        format!("user {n:020}")
    }

    /// A store with the index of a file: every row a user and an id of its own, and one text in
    /// all rows.
    fn store() -> InMemory {
        let mut users = BytesBuilder::new(Options::default());
        let mut ids = IntegersBuilder::new(Options::default());
        let mut words = WordsBuilder::default();
        for row in 0..ROWS {
            let run = Run::new(row, row + 1);
            users.push(user(row).as_bytes(), run).unwrap();
            ids.push(uplake_index::key_of_i64(i64::from(row)), run).unwrap();
            words.push(row, if row % 3 == 0 { "北京烤鸭" } else { "烤鸡" }).unwrap();
        }
        let file = data_file();
        let mut writer = Writer::new(identity_of(&file, ROWS).unwrap());
        writer.add_strings("user", users).unwrap();
        writer.add_integers("id", ids).unwrap();
        writer.add_words("text", words).unwrap();
        let bytes = writer.finish().unwrap();
        let store = InMemory::new();
        block_on(store.put(&file.index_path, bytes.into())).unwrap();
        store
    }

    fn users(names: impl IntoIterator<Item = u32>) -> Question {
        let values = Arc::new(names.into_iter().map(user).collect());
        Question::Strings { column: "user".into(), values }
    }

    fn rows_of(found: &FileRows) -> Vec<u32> {
        let runs = found.rows.iter().flat_map(Selection::runs);
        runs.flat_map(|run| run.start..run.end).collect()
    }

    #[test]
    fn questions_of_few_terms_read_few_bytes_until_they_add_up() {
        let (store, file) = (store(), data_file());
        let cache = IndexCache::new(64 << 20);
        let ask = |names: Vec<u32>| block_on(cache.rows(&store, &file, &[users(names)]));
        let first = ask(vec![77, 4_000_000]);
        assert_eq!((rows_of(&first), &first.answered[..]), (vec![77], &[Answered::Exactly][..]));
        // The footer, the header, and four blocks for the term.
        assert!(first.bytes_read < 10 * (64 << 10), "{} bytes", first.bytes_read);
        assert!(cache.kept_bytes() < 10_000, "{} kept", cache.kept_bytes());
        let (mut read, mut whole) = (first.bytes_read, 0);
        for n in 0..100 {
            let found = ask(vec![n * 500]);
            assert_eq!(rows_of(&found), [n * 500]);
            read += found.bytes_read;
            whole += u32::from(found.bytes_read == 0);
        }
        assert!(whole > 50, "then it is read whole and kept: {whole} of 100 read nothing");
        let dictionary = cache.kept_bytes() as u64;
        assert!(dictionary > 1 << 20 && read < 3 * dictionary, "{read} of {dictionary}");
        // Many at once take the whole at once.
        let fresh = IndexCache::new(64 << 20);
        let found = block_on(fresh.rows(&store, &file, &[users(0..ROWS)]));
        assert_eq!(rows_of(&found).len(), ROWS as usize);
        assert!(fresh.kept_bytes() > 1 << 20);
    }

    #[test]
    fn questions_hold_together_and_one_bigram_is_exact() {
        let (store, file) = (store(), data_file());
        let cache = IndexCache::new(64 << 20);
        let like = |pattern: &str| Question::Like {
            column: "text".into(),
            pattern: pattern.into(),
            escape: None,
        };
        let keys = Arc::new((0..50).map(uplake_index::key_of_i64).collect());
        let ids = Question::Integers { column: "id".into(), keys };
        let found = block_on(cache.rows(&store, &file, &[like("%烤鸭%"), ids, like("%北京烤%")]));
        assert_eq!(rows_of(&found), (0..50).filter(|row| row % 3 == 0).collect::<Vec<_>>());
        let expected = [Answered::Exactly, Answered::Exactly, Answered::Roughly];
        assert_eq!(found.answered, expected);
        assert_eq!(found.total, u64::from(ROWS));
    }

    #[test]
    fn a_bad_block_is_told_by_the_question_that_needs_it() {
        let (store, file) = (store(), data_file());
        let path = &file.index_path;
        let mut bytes = block_on(async { store.get(path).await.unwrap().bytes().await.unwrap() });
        let whole = bytes.len();
        let mut damaged = std::mem::take(&mut bytes).to_vec();
        for at in (200_000..whole / 2).step_by(64 << 10) {
            damaged[at] ^= 1;
        }
        block_on(store.put(path, damaged.into())).unwrap();
        let cache = IndexCache::new(64 << 20);
        let found = block_on(cache.rows(&store, &file, &[users([1, 2, 3, 4])]));
        assert!(
            matches!(found.answered[..], [Answered::Not(Fallback::Broken(_))]),
            "{:?}",
            found.answered
        );
        assert!(found.rows.is_none(), "all rows are read");
        assert_eq!(cache.kept_bytes(), 0, "it is forgotten, so that a repaired one is seen");
    }
}
