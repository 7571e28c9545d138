//! Writing an index file beside its data file.
//!
//! Each column has a builder that takes values as rows are written; the writer takes the builders
//! one after the other, and hands bytes out as they become final, so that an upload can start
//! before the last column is encoded.

use uplake_postings::{BytesBuilder, Encoded, IntegersBuilder, Options, Run};

use crate::error::IndexError;
use crate::format::{ALIGN, ColumnInfo, DataFile, Footer, Kind, Section, UNICODE};
use crate::zones::ZonesBuilder;
use crate::{grams, words};

type Result<T> = std::result::Result<T, IndexError>;

/// Collects the words of a text column.
#[derive(Debug)]
pub struct WordsBuilder {
    terms: BytesBuilder,
}

impl Default for WordsBuilder {
    fn default() -> Self {
        // A query of one Han character asks for a prefix.
        Self { terms: BytesBuilder::new(Options { ordered: true }) }
    }
}

impl WordsBuilder {
    /// Adds the text of `row`; rows ascend, and one without text is left out.
    ///
    /// # Errors
    /// [`IndexError::Postings`] if rows do not ascend or a limit is passed.
    pub fn push(&mut self, row: u32, text: &str) -> Result<()> {
        let mut result = Ok(());
        words::of_row(text, |word| {
            if result.is_ok() {
                result = self.terms.push(word.as_bytes(), Run::new(row, row.saturating_add(1)));
            }
        });
        Ok(result?)
    }
}

/// Collects the grams of a text column, block by block.
#[derive(Debug)]
pub struct GramsBuilder {
    block_rows: u32,
    grams: IntegersBuilder,
    folded: String,
}

impl GramsBuilder {
    /// Blocks of `block_rows` rows; 0 is taken for 1. A query reads whole blocks, and the index
    /// has an entry for every different gram of a block: 128 to 1024 suit names and titles.
    #[must_use]
    pub fn new(block_rows: u32) -> Self {
        let grams = IntegersBuilder::new(Options::default());
        Self { block_rows: block_rows.max(1), grams, folded: String::new() }
    }

    /// Adds the text of `row`; rows ascend, and one without text is left out.
    ///
    /// # Errors
    /// As [`WordsBuilder::push`].
    pub fn push(&mut self, row: u32, text: &str) -> Result<()> {
        let block = row / self.block_rows;
        let mut result = Ok(());
        grams::of_text(text, &mut self.folded, |gram| {
            if result.is_ok() {
                result = self.grams.push(gram, Run::new(block, block.saturating_add(1)));
            }
        });
        Ok(result?)
    }
}

/// Writes the index file of one data file.
///
/// # Examples
/// ```
/// use uplake_index::*;
/// let data_file = DataFile { name: "part-0.parquet".into(), bytes: 1000, rows: 5 };
/// let mut shops = IntegersBuilder::new(Options::default());
/// shops.push_column(0, &[7, 7, 4, 4, 9])?;
/// let mut writer = Writer::new(data_file);
/// writer.add_integers("shop", shops)?;
/// let file = writer.finish()?;
///
/// // A reader fetches the tail, then what the column needs first.
/// let (size, tail) = (file.len() as u64, tail_range(file.len() as u64));
/// let get = |range: std::ops::Range<u64>| &file[range.start as usize..range.end as usize];
/// let Tail::Footer(footer) = Footer::read(size, get(tail))? else { panic!("a short footer") };
/// let info = footer.column("shop", Kind::Integers).expect("just added");
/// let column = Column::open(info, get(info.first_read()))?;
/// let plan = column.plan(&Query::IntegerIn(&[9, 7]))?.expect("of its kind");
/// let parts: Vec<&[u8]> = plan.fetch().iter().map(|range| get(range.clone())).collect();
/// let answer = column.answer(&plan, &parts, &mut Scratch::default())?;
/// assert_eq!(answer.rows.into_runs(), [Run::new(0, 2), Run::new(4, 5)]);
/// # Ok::<(), IndexError>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    data_file: DataFile,
    columns: Vec<ColumnInfo>,
    out: Vec<u8>,
    /// Bytes taken before those in `out`.
    taken: u64,
}

impl Writer {
    /// A writer for the index of `data_file`.
    #[must_use]
    pub fn new(data_file: DataFile) -> Self {
        Self { data_file, columns: Vec::new(), out: Vec::new(), taken: 0 }
    }

    /// Adds an index of integers.
    ///
    /// # Errors
    /// [`IndexError::Postings`] if a row is not one of the data file's or a limit is passed.
    pub fn add_integers(&mut self, column: &str, builder: IntegersBuilder) -> Result<()> {
        let encoded = builder.finish(self.data_file.rows)?;
        self.add(column, Kind::Integers, 1, &encoded);
        Ok(())
    }

    /// Adds an index of strings.
    ///
    /// # Errors
    /// As [`Writer::add_integers`].
    pub fn add_strings(&mut self, column: &str, builder: BytesBuilder) -> Result<()> {
        let encoded = builder.finish(self.data_file.rows)?;
        self.add(column, Kind::Strings, 1, &encoded);
        Ok(())
    }

    /// Adds an index of words.
    ///
    /// # Errors
    /// As [`Writer::add_integers`].
    pub fn add_words(&mut self, column: &str, builder: WordsBuilder) -> Result<()> {
        let encoded = builder.terms.finish(self.data_file.rows)?;
        self.add(column, Kind::Words, 1, &encoded);
        Ok(())
    }

    /// Adds an index of grams.
    ///
    /// # Errors
    /// As [`Writer::add_integers`].
    pub fn add_grams(&mut self, column: &str, builder: GramsBuilder) -> Result<()> {
        let blocks = self.data_file.rows.div_ceil(builder.block_rows);
        let encoded = builder.grams.finish(blocks)?;
        self.add(column, Kind::Grams, builder.block_rows, &encoded);
        Ok(())
    }

    /// Adds zone maps.
    ///
    /// # Errors
    /// [`IndexError::TooLarge`] if a row is not one of the data file's.
    pub fn add_zones(&mut self, column: &str, builder: ZonesBuilder) -> Result<()> {
        let block_rows = builder.block_rows();
        let dictionary = builder.finish(self.data_file.rows)?;
        self.add(column, Kind::Zones, block_rows, &Encoded { dictionary, heap: Vec::new() });
        Ok(())
    }

    fn add(&mut self, column: &str, kind: Kind, block_rows: u32, encoded: &Encoded) {
        let dictionary = self.section(&encoded.dictionary);
        let heap = self.section(&encoded.heap);
        let (name, file_rows) = (column.to_owned(), self.data_file.rows);
        let unicode = UNICODE;
        let info = ColumnInfo { name, kind, file_rows, block_rows, unicode, dictionary, heap };
        self.columns.push(info);
    }

    fn section(&mut self, bytes: &[u8]) -> Section {
        let offset = (self.taken + self.out.len() as u64).next_multiple_of(ALIGN as u64);
        self.out.resize((offset - self.taken) as usize, 0);
        self.out.extend_from_slice(bytes);
        Section::new(offset, bytes)
    }

    /// The bytes that are final and were not taken before.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// The bytes that were not taken, with the footer: the end of the file.
    ///
    /// # Errors
    /// [`IndexError::TooLarge`] if there are too many columns or a name is too long.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let offset = self.taken + self.out.len() as u64;
        let footer = Footer::new(self.data_file, self.columns)?.encode(offset)?;
        self.out.extend_from_slice(&footer);
        Ok(self.out)
    }
}
