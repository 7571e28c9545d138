//! Rows to a client: encoded on the compute runtime, through a spool, as messages of Flight.
//!
//! # Invariants
//! - The stream of a call owns what computes: dropped, it ends the statement.
//! - A message has at most about [`MESSAGE_BYTES`] of rows, if a row is not larger.
//! - Texts are sent as `Utf8`, which every client reads, unless it asks for views.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use tonic::Status;
use uplake_engine::{Answer, EngineError, Session, Statement};

use super::status::status;
use super::tickets::Id;
use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::server::Shared;
use crate::spool::{SpoolReader, SpoolWriter, spool};
use crate::statements::Running;

/// Bytes of rows in a message: clients take 4 MiB unless they are told otherwise.
const MESSAGE_BYTES: usize = 2 << 20;
/// Bytes before a message in the spool: how long its header, its metadata and its body are.
const HEAD_BYTES: usize = 16;

/// What a call of `DoGet` answers.
pub(super) type DoGet = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// A statement's columns as they are sent.
pub(super) fn sent_schema(schema: &Schema, views: bool) -> SchemaRef {
    // Planning knows less of NULLs than the plan that runs, and clients compare both.
    let sent = |field: &FieldRef| {
        let field = if views { Arc::clone(field) } else { without_views(field) };
        match field.is_nullable() {
            true => field,
            false => Arc::new(Field::clone(&field).with_nullable(true)),
        }
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(sent).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn without_views(field: &FieldRef) -> FieldRef {
    let plain = plain_type(field.data_type());
    match plain == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(plain)),
    }
}

/// The type without views in it.
pub(super) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) => DataType::List(without_views(field)),
        DataType::LargeList(field) => DataType::LargeList(without_views(field)),
        DataType::FixedSizeList(field, length) => {
            DataType::FixedSizeList(without_views(field), *length)
        }
        DataType::Map(field, sorted) => DataType::Map(without_views(field), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(without_views).collect()),
        DataType::Dictionary(_, values) => plain_type(values),
        other => other.clone(),
    }
}

/// The batch in the columns that are sent, in parts that are not too large.
fn parts(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    let pairs = batch.columns().iter().zip(schema.fields());
    let cast = pairs.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let columns = cast.collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    for column in &columns {
        bytes += column.to_data().get_slice_memory_size()?;
    }
    let rows = batch.num_rows();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
    let each = rows.div_ceil(bytes.div_ceil(MESSAGE_BYTES).max(1)).max(1);
    Ok((0..rows).step_by(each).map(|at| batch.slice(at, each.min(rows - at))).collect())
}

/// Statements whose rows are on their way, by the ticket or prepared statement that they were fetched with.
#[derive(Default)]
pub(super) struct Fetched(Mutex<BTreeSet<(Id, u64)>>);

impl Fetched {
    /// It is under way until what is given back is dropped.
    pub fn add(self: &Arc<Self>, id: Id, running: u64) -> Listed {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((id, running));
        Listed { all: Arc::clone(self), entry: (id, running) }
    }

    /// The numbers of the statements that were fetched with this.
    pub fn of(&self, id: Id) -> Vec<u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.range((id, 0)..=(id, u64::MAX)).map(|(_, running)| *running).collect()
    }
}

/// See [`Fetched::add`].
pub(super) struct Listed {
    all: Arc<Fetched>,
    entry: (Id, u64),
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.entry);
    }
}

/// Runs a statement; its rows.
///
/// # Errors
/// What is wrong with the statement; what fails later comes through the stream.
pub(super) async fn run(
    shared: &Shared,
    running: Running,
    listed: Listed,
    session: Arc<Session>,
    statement: Statement,
    views: bool,
) -> Result<DoGet, Failure> {
    let options = shared.run_options(&running);
    let begun = running
        .compute(async move { session.run_with(&statement, options).await.map_err(Failure::from) });
    let (schema, rows) = match begun.await? {
        Answer::Rows { schema, stream } => (sent_schema(&schema, views), stream.left_stream()),
        Answer::Done { .. } => (Arc::new(Schema::empty()), stream::empty().right_stream()),
    };
    let target = Arc::clone(&schema);
    let rows = rows.flat_map(move |batch| {
        let done = batch.map_err(EngineError::from).map_err(Failure::from).and_then(|batch| {
            parts(&batch, &target).map_err(|error| Failure::new("22000", error.to_string()))
        });
        stream::iter(match done {
            Ok(parts) => parts.into_iter().map(Ok).collect(),
            Err(failure) => vec![Err(FlightError::ExternalError(Box::new(failure)))],
        })
    });
    // What is too large was cut before.
    let encoded = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(usize::MAX)
        .build(rows);
    let share = shared.spool_share(running.role());
    let (writer, reader) = spool(&shared.spools, share, running.spooled());
    let task = running.spawn(async move {
        let end = write(encoded, &writer).await;
        writer.finish(end);
    });
    let frames = Frames { reader, held: Bytes::new() };
    let flow = Flow { frames, _task: task, _listed: listed, running };
    Ok(Box::pin(stream::unfold(Some(flow), |flow| async {
        let mut flow = flow?;
        match flow.running.unless_stopped(flow.frames.next()).await {
            Ok(None) => None,
            Ok(Some(data)) => {
                let bytes = data.data_header.len() + data.data_body.len();
                flow.running.sent(rows_of(&data), bytes as u64);
                Some((Ok(data), Some(flow)))
            }
            Err(failure) => Some((Err(status(&failure)), None)),
        }
    })))
}

/// Runs a statement for what it does: the rows that it changed, or gave.
///
/// # Errors
/// What is wrong with the statement.
pub(super) async fn update(
    shared: &Shared,
    running: &Running,
    session: Arc<Session>,
    statement: Statement,
) -> Result<i64, Failure> {
    let options = shared.run_options(running);
    let done = running.compute(async move {
        let mut stream = match session.run_with(&statement, options).await? {
            Answer::Done { rows, .. } => return Ok(rows.unwrap_or(0)),
            Answer::Rows { stream, .. } => stream,
        };
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            rows += batch.map_err(EngineError::from)?.num_rows() as u64;
        }
        Ok(rows)
    });
    Ok(i64::try_from(done.await?).unwrap_or(i64::MAX))
}

/// What a call owns; the task goes first.
struct Flow {
    frames: Frames,
    _task: AbortOnDrop,
    _listed: Listed,
    running: Running,
}

async fn write(
    mut encoded: impl Stream<Item = Result<FlightData, FlightError>> + Unpin,
    writer: &SpoolWriter,
) -> Result<(), Failure> {
    while let Some(data) = encoded.next().await {
        let data = data.map_err(failure_of)?;
        let (header, metadata) = (&data.data_header, &data.app_metadata);
        let mut head = BytesMut::with_capacity(HEAD_BYTES + header.len() + metadata.len());
        head.put_u32(header.len() as u32);
        head.put_u32(metadata.len() as u32);
        head.put_u64(data.data_body.len() as u64);
        head.extend_from_slice(header);
        head.extend_from_slice(metadata);
        writer.push(head.freeze()).await?;
        // The body is not copied on its way, if it does not go through a file.
        if !data.data_body.is_empty() {
            writer.push(data.data_body).await?;
        }
    }
    Ok(())
}

/// What failed when rows were encoded or decoded.
pub(super) fn failure_of(error: FlightError) -> Failure {
    match error {
        FlightError::ExternalError(inner) => match inner.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(other) => Failure::bug(format!("rows could not be sent: {other}")),
        },
        FlightError::Tonic(status) => Failure::new("08006", status.message().to_owned()),
        other => Failure::new("22000", other.to_string()),
    }
}

/// Rows of a message.
fn rows_of(data: &FlightData) -> u64 {
    let message = arrow::ipc::root_as_message(&data.data_header).ok();
    let batch = message.and_then(|message| message.header_as_record_batch());
    batch.map_or(0, |batch| u64::try_from(batch.length()).unwrap_or(0))
}

/// Messages out of a spool, whose chunks may be cut anywhere.
struct Frames {
    reader: SpoolReader,
    held: Bytes,
}

impl Frames {
    async fn next(&mut self) -> Result<Option<FlightData>, Failure> {
        let Some(head) = self.take(HEAD_BYTES).await? else { return Ok(None) };
        let length = |from: usize, to: usize| {
            head[from..to].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) as usize
        };
        Ok(Some(FlightData {
            flight_descriptor: None,
            data_header: self.rest(length(0, 4)).await?,
            app_metadata: self.rest(length(4, 8)).await?,
            data_body: self.rest(length(8, 16)).await?,
        }))
    }

    async fn rest(&mut self, length: usize) -> Result<Bytes, Failure> {
        let cut = || Failure::bug("a message was cut");
        self.take(length).await?.ok_or_else(cut)
    }

    /// So many bytes; `None` at the end.
    async fn take(&mut self, length: usize) -> Result<Option<Bytes>, Failure> {
        if length == 0 {
            return Ok(Some(Bytes::new()));
        }
        if self.held.is_empty() {
            match self.reader.next().await {
                Some(chunk) => self.held = chunk?,
                None => return Ok(None),
            }
        }
        if self.held.len() >= length {
            return Ok(Some(self.held.split_to(length)));
        }
        let mut joined = BytesMut::with_capacity(length);
        loop {
            let part = self.held.split_to(self.held.len().min(length - joined.len()));
            joined.extend_from_slice(&part);
            if joined.len() == length {
                return Ok(Some(joined.freeze()));
            }
            match self.reader.next().await {
                Some(chunk) => self.held = chunk?,
                None => return Err(Failure::bug("a message was cut")),
            }
        }
    }
}

/// These batches, as a whole.
pub(super) fn given(schema: SchemaRef, batch: RecordBatch) -> DoGet {
    let batches = stream::iter([Ok(batch)]);
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Box::pin(encoded.map(|data| data.map_err(|error| status(&failure_of(error)))))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn batches_are_cut_and_views_are_plain() {
        let texts: StringViewArray = (0..8192).map(|n| Some(format!("{n:>1024}"))).collect();
        let numbers: Int64Array = (0..8192).map(Some).collect();
        let columns: [(&str, ArrayRef); 2] = [("t", Arc::new(texts)), ("n", Arc::new(numbers))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = sent_schema(&batch.schema(), false);
        assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
        let views = sent_schema(&batch.schema(), true);
        assert_eq!(views.field(0).data_type(), &DataType::Utf8View);
        assert!(views.fields().iter().all(|field| field.is_nullable()));
        let parts = parts(&batch, &schema).unwrap();
        assert!(parts.len() > 3 && parts.len() < 8, "{}", parts.len());
        let all: Vec<i64> = parts
            .iter()
            .flat_map(|part| part.column(1).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(all, (0..8192).collect::<Vec<i64>>());
    }

    #[test]
    fn types_are_plain_at_any_depth() {
        let inner = Arc::new(Field::new("a", DataType::Utf8View, true));
        let list = DataType::List(Arc::new(Field::new_struct("item", vec![inner], true)));
        let plain = plain_type(&list);
        assert!(!format!("{plain:?}").contains("View"), "{plain:?}");
    }
}
