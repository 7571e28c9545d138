//! Rows of this node that other nodes fetch: a file for each part of a step, in which the messages of a bucket lie apart.
//!
//! # Invariants
//! - What is stored is owned by the call of its part: when that ends, it is gone, with its file.
//! - The bytes of all files are within the spool's room ([`SpoolRoom`]).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow_flight::FlightData;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use uplake_engine::{
    Buckets, EngineError, HeldMemory, PartError, PartRows, Problem, Session, SqlState,
};

use super::messages::{Head, Size};
use super::row_messages::messages;
use crate::spool::{Share, SpoolRoom};

/// Rows of a bucket that are written together, and bytes of them, about.
const ROWS: usize = 8192;
const BYTES: usize = 2 << 20;

/// Which part of which step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub query: String,
    pub attempt: u32,
    pub shuffle: u32,
    pub part: usize,
}

impl Key {
    /// Of the part that a ticket is about.
    pub fn of(head: &Head, shuffle: u32) -> Self {
        let (query, attempt) = (head.query.clone(), head.shuffles.attempt);
        Self { query, attempt, shuffle, part: head.part }
    }
}

/// What this node has for others.
#[derive(Debug, Default)]
pub(super) struct ShuffleStore(Mutex<HashMap<Key, Arc<StoredRows>>>);

impl ShuffleStore {
    /// These rows can be fetched until what this gives is dropped.
    pub fn add(self: &Arc<Self>, key: Key, rows: StoredRows) -> Listed {
        self.lock().insert(key.clone(), Arc::new(rows));
        Listed { store: Arc::clone(self), key }
    }

    pub fn get(&self, key: &Key) -> Option<Arc<StoredRows>> {
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<StoredRows>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be fetched, until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    store: Arc<ShuffleStore>,
    key: Key,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.store.lock().remove(&self.key);
    }
}

/// The rows of one part, in buckets.
#[derive(Debug)]
pub(super) struct StoredRows {
    file: Arc<File>,
    buckets: Vec<Stored>,
    room: Arc<SpoolRoom>,
    bytes: u64,
}

/// The messages of one bucket: where they lie, and how long they are.
#[derive(Clone, Debug, Default)]
struct Stored {
    messages: Vec<(u64, usize)>,
    size: Size,
}

impl Drop for StoredRows {
    fn drop(&mut self) {
        self.room.give_back(&Share::default(), self.bytes);
    }
}

impl StoredRows {
    /// Stores rows as they are computed.
    pub async fn of(
        mut rows: PartRows,
        buckets: &Buckets,
        session: &Session,
        room: &Arc<SpoolRoom>,
    ) -> Result<Self, PartError> {
        let file = tempfile::tempfile_in(room.folder()).map_err(|error| unwritten(&error))?;
        let empty = vec![Stored::default(); buckets.count as usize];
        let stored =
            Self { file: Arc::new(file), buckets: empty, room: Arc::clone(room), bytes: 0 };
        let most = BYTES.saturating_mul(stored.buckets.len());
        let held = session.hold_memory("rows for other nodes", most, 1)?;
        let waiting = stored.buckets.iter().map(|_| None).collect();
        let mut writer = Writer { stored, waiting, _held: held };
        while let Some(batch) = rows.try_next().await? {
            for (bucket, batch) in buckets.of(&batch)? {
                writer.add(bucket as usize, batch).await?;
            }
        }
        writer.finish().await
    }

    /// How much there is in each bucket.
    pub fn sizes(&self) -> Vec<Size> {
        self.buckets.iter().map(|stored| stored.size).collect()
    }

    /// The messages of a bucket, one after the other, and how many rows these are; `None` if there is no such bucket.
    pub fn messages(
        self: Arc<Self>,
        bucket: u32,
    ) -> Option<(impl futures::Stream<Item = Result<FlightData, String>> + Send, u64)> {
        let Stored { messages, size } = self.buckets.get(bucket as usize)?.clone();
        let messages = stream::iter(messages).map(move |(at, length)| {
            let bytes = self.read(at, length).map_err(|error| error.to_string())?;
            FlightData::decode(bytes).map_err(|error| error.to_string())
        });
        Some((messages, size.rows))
    }

    fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }

    fn write(&mut self, bucket: usize, message: &FlightData) -> Result<(), PartError> {
        let bytes = message.encode_to_vec();
        let length = bytes.len() as u64;
        if !self.room.take(&Share::default(), length) {
            let message = "rows that other nodes need do not fit into --spool";
            let (code, message) = (SqlState::DiskFull, message.to_owned());
            let hint = Some("start nodes with a larger --spool".to_owned());
            let problem = Problem { code, message, hint, position: None };
            return Err(EngineError::Limit(problem).into());
        }
        let at = self.bytes;
        self.bytes += length;
        self.file.write_all_at(&bytes, at).map_err(|error| unwritten(&error))?;
        let stored = &mut self.buckets[bucket];
        stored.messages.push((at, bytes.len()));
        stored.size.bytes += length;
        Ok(())
    }
}

/// Rows of buckets that wait until there are enough of them.
struct Writer {
    stored: StoredRows,
    waiting: Vec<Option<BatchCoalescer>>,
    _held: HeldMemory,
}

impl Writer {
    async fn add(&mut self, bucket: usize, batch: RecordBatch) -> Result<(), PartError> {
        let rows = batch.num_rows() as u64;
        let schema = batch.schema();
        let waiting = self.waiting[bucket].get_or_insert_with(|| BatchCoalescer::new(schema, ROWS));
        waiting.push_batch(batch).map_err(unencoded)?;
        if waiting.size() > BYTES {
            waiting.finish_buffered_batch().map_err(unencoded)?;
        }
        self.stored.buckets[bucket].size.rows += rows;
        while let Some(batch) =
            self.waiting[bucket].as_mut().and_then(BatchCoalescer::next_completed_batch)
        {
            self.write(bucket, batch).await?;
        }
        Ok(())
    }

    async fn write(&mut self, bucket: usize, batch: RecordBatch) -> Result<(), PartError> {
        let mut messages = messages(stream::iter([Ok(batch)]));
        let is_first = self.stored.buckets[bucket].messages.is_empty();
        let mut is_schema = true;
        while let Some(message) = messages.next().await {
            let message = message.map_err(unencoded)?;
            if is_first || !is_schema {
                self.stored.write(bucket, &message)?;
            }
            is_schema = false;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<StoredRows, PartError> {
        for bucket in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting[bucket].take() else { continue };
            waiting.finish_buffered_batch().map_err(unencoded)?;
            while let Some(batch) = waiting.next_completed_batch() {
                self.write(bucket, batch).await?;
            }
        }
        Ok(self.stored)
    }
}

fn unwritten(error: &io::Error) -> PartError {
    let message = format!("rows that other nodes need cannot be kept: {error}");
    let problem = |code| Problem { code, message, hint: None, position: None };
    let error = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            EngineError::Limit(problem(SqlState::DiskFull))
        }
        _ => EngineError::Execution(problem(SqlState::IoError)),
    };
    error.into()
}

fn unencoded(error: impl std::fmt::Display) -> PartError {
    let message = format!("rows that other nodes need cannot be written down: {error}");
    EngineError::execution(SqlState::InternalError, message).into()
}
