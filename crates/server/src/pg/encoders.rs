//! Rows of an answer as bytes of the wire, on as many threads as there are.
//!
//! What a short answer is, is encoded where its rows come. Encoding takes most of the time of a long one, so that its
//! rows go to tasks, a chunk each, one more than the runtime has threads.
//!
//! # Invariants
//! - Chunks come out in the order of their rows, each of whole messages.
//!
//! # Not here
//! What a row looks like (`encode`); how far chunks may run ahead of their reader (`spool`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use uplake_engine::QueryProgress;

use crate::failure::Failure;
use crate::pg::copy_options::CopyCommand;
use crate::pg::encode::copy::CopyEncoder;
use crate::pg::encode::{EncodeError, Options, RowEncoder};

/// Bytes after which a chunk goes to the client.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Rows that are encoded before their size is known.
const FIRST_ROWS: usize = 256;
const MOST_ROWS: usize = 8192;

/// How rows are to be written.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// DataRow, in these formats.
    Rows(Vec<i16>),
    /// CopyData.
    Copy(CopyCommand),
}

/// Rows in one of the forms.
enum Encoder {
    Rows(Box<RowEncoder>),
    Copy(Box<CopyEncoder>),
}

impl Encoder {
    fn new(
        schema: &Schema,
        form: &Form,
        options: Options,
        out: &mut Vec<u8>,
    ) -> Result<Self, Failure> {
        Ok(match form {
            Form::Rows(formats) => Self::Rows(Box::new(RowEncoder::new(schema, formats, options)?)),
            Form::Copy(copy) => {
                let fields = schema.fields().iter();
                let names: Vec<String> = fields.map(|field| field.name().clone()).collect();
                let mut encoder = CopyEncoder::new(schema, copy.writer(&names), options)?;
                encoder.begin(out);
                Self::Copy(Box::new(encoder))
            }
        })
    }

    /// One for rows further on.
    fn another(&self) -> Self {
        match self {
            Self::Rows(encoder) => Self::Rows(Box::new(encoder.another())),
            Self::Copy(encoder) => Self::Copy(Box::new(encoder.another())),
        }
    }

    fn encode(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self {
            Self::Rows(encoder) => encoder.encode(batch, rows, out),
            Self::Copy(encoder) => encoder.encode(batch, rows, out),
        }
    }

    fn cut_nanoseconds(&mut self) -> bool {
        match self {
            Self::Rows(encoder) => encoder.cut_nanoseconds(),
            Self::Copy(encoder) => encoder.cut_nanoseconds(),
        }
    }
}

/// Whole messages.
pub(crate) struct Chunk {
    pub bytes: Vec<u8>,
    pub rows: usize,
}

/// What encodes the rows of one answer.
pub(crate) struct Encoders {
    /// Of what is encoded here.
    first: Encoder,
    idle: Vec<Encoder>,
    /// In the order of their rows.
    tasks: VecDeque<JoinHandle<Result<(Encoder, Chunk), EncodeError>>>,
    /// What the next task gets.
    waiting: Vec<(RecordBatch, Range<usize>)>,
    waiting_rows: usize,
    /// About a chunk.
    piece: usize,
    progress: Option<Arc<QueryProgress>>,
    cut_nanoseconds: bool,
}

impl Encoders {
    /// For an answer with this schema; what is in front of its rows is appended to `out`. Tasks count for `progress`.
    ///
    /// # Errors
    /// Those of [`RowEncoder::new`] and [`CopyEncoder::new`].
    pub fn new(
        schema: &Schema,
        form: &Form,
        options: Options,
        progress: Option<Arc<QueryProgress>>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            first: Encoder::new(schema, form, options, out)?,
            idle: Vec::new(),
            tasks: VecDeque::new(),
            waiting: Vec::new(),
            waiting_rows: 0,
            piece: FIRST_ROWS,
            progress,
            cut_nanoseconds: false,
        })
    }

    /// Appends rows of a batch from `at` on until `out` is a chunk, or the batch is over: the row behind the last.
    ///
    /// # Errors
    /// As [`RowEncoder::encode`].
    pub fn encode_here(
        &mut self,
        batch: &RecordBatch,
        mut at: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Failure> {
        while at < batch.num_rows() && out.len() < CHUNK_BYTES {
            let end = batch.num_rows().min(at + self.piece);
            let before = out.len();
            self.first.encode(batch, at..end, out)?;
            self.see(out.len() - before, end - at);
            at = end;
        }
        Ok(at)
    }

    /// So many rows took so many bytes.
    fn see(&mut self, bytes: usize, rows: usize) {
        let row = (bytes / rows.max(1)).max(1);
        self.piece = (CHUNK_BYTES / row).clamp(1, MOST_ROWS);
    }

    /// Takes rows of a batch from `at` on for a task, up to a chunk: the row behind the last.
    pub fn take(&mut self, batch: &RecordBatch, at: usize) -> usize {
        let room = self.piece.saturating_sub(self.waiting_rows).max(1);
        let end = batch.num_rows().min(at + room);
        self.waiting.push((batch.clone(), at..end));
        self.waiting_rows += end - at;
        if self.waiting_rows >= self.piece {
            self.begin();
        }
        end
    }

    fn begin(&mut self) {
        let mut encoder = self.idle.pop().unwrap_or_else(|| self.first.another());
        let (pieces, rows) = (std::mem::take(&mut self.waiting), self.waiting_rows);
        self.waiting_rows = 0;
        let work = async move {
            let mut bytes = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8);
            for (batch, rows) in pieces {
                encoder.encode(&batch, rows, &mut bytes)?;
            }
            Ok((encoder, Chunk { bytes, rows }))
        };
        self.tasks.push_back(match &self.progress {
            Some(progress) => tokio::spawn(Arc::clone(progress).during(work)),
            None => tokio::spawn(work),
        });
    }

    /// The next chunk, if there are more tasks than threads.
    ///
    /// # Errors
    /// As [`RowEncoder::encode`]; a panic is one.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Failure> {
        match self.tasks.len() > Handle::current().metrics().num_workers() {
            true => self.done().await,
            false => Ok(None),
        }
    }

    /// The next chunk, once all rows are here; `None` after the last.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn rest(&mut self) -> Result<Option<Chunk>, Failure> {
        if !self.waiting.is_empty() {
            self.begin();
        }
        self.done().await
    }

    async fn done(&mut self) -> Result<Option<Chunk>, Failure> {
        let Some(task) = self.tasks.pop_front() else { return Ok(None) };
        let lost = |_| Failure::bug("rows could not be encoded: a panic");
        let (mut encoder, chunk) = task.await.map_err(lost)??;
        self.cut_nanoseconds |= encoder.cut_nanoseconds();
        self.idle.push(encoder);
        self.see(chunk.bytes.len(), chunk.rows);
        Ok(Some(chunk))
    }

    /// Appends what is behind the rows.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Encoder::Copy(encoder) = &mut self.first {
            encoder.finish(out);
        }
    }

    /// Were nanoseconds left out, which Postgres' types do not have?
    pub fn cut_nanoseconds(&mut self) -> bool {
        self.cut_nanoseconds | self.first.cut_nanoseconds()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampNanosecondArray};

    use super::*;

    fn batch(rows: Range<i64>, filler: usize) -> RecordBatch {
        let text = rows.clone().map(|row| format!("{row}{}", "x".repeat(filler)));
        let columns: [(&str, ArrayRef); 2] = [
            ("k", Arc::new(Int64Array::from_iter_values(rows))),
            ("s", Arc::new(StringArray::from_iter_values(text))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// All of an answer: a first chunk here, the rest by tasks.
    async fn encoded(batches: &[RecordBatch], form: &Form) -> (Vec<u8>, usize, bool) {
        let (mut out, mut chunks) = (Vec::new(), 1);
        let schema = batches[0].schema();
        let mut encoders =
            Encoders::new(&schema, form, Options::default(), None, &mut out).unwrap();
        for batch in batches {
            let mut at = encoders.encode_here(batch, 0, &mut out).unwrap();
            while at < batch.num_rows() {
                at = encoders.take(batch, at);
                while let Some(chunk) = encoders.next().await.unwrap() {
                    out.extend(chunk.bytes);
                    chunks += 1;
                }
            }
        }
        while let Some(chunk) = encoders.rest().await.unwrap() {
            out.extend(chunk.bytes);
            chunks += 1;
        }
        encoders.finish(&mut out);
        (out, chunks, encoders.cut_nanoseconds())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn chunks_of_tasks_are_those_of_one_thread() {
        let few = [batch(0..10, 3)];
        let many: Vec<_> = (0..40).map(|n| batch(n * 3000..(n + 1) * 3000, 20)).collect();
        let tiny: Vec<_> = (0..30_000).map(|n| batch(n..n + 1, 30)).collect();
        for (batches, is_long) in [(&few[..], false), (&many, true), (&tiny, true)] {
            let form = Form::Rows(vec![0]);
            let mut whole = Vec::new();
            let mut one = RowEncoder::new(&batches[0].schema(), &[0], Options::default()).unwrap();
            for batch in batches {
                one.encode(batch, 0..batch.num_rows(), &mut whole).unwrap();
            }
            let (out, chunks, cut) = encoded(batches, &form).await;
            assert!(out == whole && !cut, "{} of {} bytes", out.len(), whole.len());
            assert!(if is_long { chunks > 4 } else { chunks == 1 }, "{chunks}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_task_finds_is_told() {
        let nanoseconds: ArrayRef =
            Arc::new(TimestampNanosecondArray::from_iter_values((0..40_000).map(|n| n * 1000)));
        let cut: ArrayRef =
            Arc::new(TimestampNanosecondArray::from_iter_values((0..40_000).map(|n| n * 1000 + 1)));
        let [nanoseconds, cut] =
            [nanoseconds, cut].map(|times| RecordBatch::try_from_iter([("t", times)]).unwrap());
        let form = Form::Rows(Vec::new());
        assert!(!encoded(&[nanoseconds.clone(), nanoseconds.clone()], &form).await.2);
        // Behind the first chunk.
        assert!(encoded(&[nanoseconds, cut], &form).await.2);
        let mut out = Vec::new();
        let good = batch(0..10, 1);
        let mut encoders =
            Encoders::new(&good.schema(), &form, Options::default(), None, &mut out).unwrap();
        encoders.take(&good, 0);
        // Another answer's batch.
        encoders.take(&RecordBatch::new_empty(Schema::empty().into()), 0);
        assert_eq!(encoders.rest().await.err().unwrap().code, "XX000");
    }
}
