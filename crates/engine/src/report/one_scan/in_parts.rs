//! Reports in parts: each answers the cells of some of the users, as rows like those of any other part.
//!
//! # Invariants
//! - Cells are put together in the order of their ids, so that the same parts give the same bytes whoever was first.
//! - What others sent is not believed: cells that are not of the layout, of no part or of one twice are an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, LargeBinaryArray, RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use futures::TryStreamExt;
use uplake_experiment::query::MomentsQuery;

use super::{Counted, KeyKind, ScanQuery};
use crate::base::error::{EngineError, Result};
use crate::base::stop;
use crate::engine::parts::ALONE;
use crate::engine::session::Session;
use crate::portable::elsewhere::{Asked, Elsewhere, Fragment, Share, Undivided, Wanted};
use crate::portable::fragment::{self, Header, Kind};
use crate::portable::functions::Pin;
use crate::portable::questions::{SentQuestion, SentQuestions};
use crate::report::cells::Layout;
use crate::report::sql::Sql;
use crate::report::time::Times;
use crate::scan::file_bounds::{FileIds, highest_id as highest_of};

impl Session {
    /// Who computes the cells of the users of these questions in parts, and what is asked of them; `None` if it is computed
    /// here.
    pub(super) async fn report_in_parts(
        &self,
        kind: &KeyKind,
        questions: &[ScanQuery<'_>],
    ) -> Result<Option<(Arc<dyn Elsewhere>, Asked)>> {
        let elsewhere = self.elsewhere(&self.context().state_ref().read());
        let (Some((elsewhere, always)), KeyKind::Ids(source)) = (elsewhere, kind) else {
            return Ok(None);
        };
        // What a transaction has written nobody else can read, and what files add up to is remembered here.
        if self.catalog.pending.is_some() || self.shelf.is_some() || questions.is_empty() {
            return Ok(None);
        }
        let tables: BTreeSet<String> = questions.iter().flat_map(|q| q.query.tables()).collect();
        let (mut rows, mut bytes, mut highest_id) = (0u64, 0u64, Some(0));
        let mut pins: Vec<Pin> = Vec::new();
        // Of the table with the most rows, and how many these are.
        let (mut files, mut most_rows): (Vec<FileIds>, u64) = (Vec::new(), 0);
        for name in tables {
            let found = self.catalog.find(&name).await?;
            // Parts find tables by the names of their pins: not one at a version that the definition says.
            let Some(table) = found.filter(|table| table.snapshot().table() == name) else {
                return Ok(None);
            };
            let Some(pin) = Pin::of(&table) else { return Ok(None) };
            let of_table = table.rows().unwrap_or(u64::MAX);
            rows = rows.saturating_add(of_table);
            bytes = table.files().iter().fold(bytes, |sum, file| sum.saturating_add(file.size));
            // Tables without ids of these users are for other statements of the report.
            if let Some(of_files) = table.file_ids().remove(source) {
                let most = of_files.as_deref().and_then(highest_of);
                highest_id = highest_id.zip(most).map(|(known, most)| known.max(most));
                if of_table > most_rows {
                    (files, most_rows) = (of_files.unwrap_or_default(), of_table);
                }
            }
            pins.push(pin);
        }
        let wanted = Wanted {
            source: Some(source),
            highest_id,
            files: &files,
            rows,
            remote_bytes: if self.engine.lake.is_remote() { bytes } else { 0 },
            is_raw: false,
            shuffles: false,
            always,
        };
        let parts = match elsewhere.divide(&wanted) {
            Ok(parts) => parts,
            Err(Undivided { why, is_alone }) => {
                if is_alone {
                    self.warn(ALONE, &format!("the report was computed by one node: {why}"));
                }
                return Ok(None);
            }
        };
        let sent = SentQuestions {
            source: source.clone(),
            questions: questions.iter().map(ScanQuery::sent).collect(),
        };
        let travels = !questions.iter().any(|question| self.reads_more(question.query));
        let Some(bytes) = travels.then(|| sent.to_bytes()).flatten() else { return Ok(None) };
        let header = Header {
            kind: Kind::Report,
            pins,
            domains: vec![source.clone()],
            divided: Vec::new(),
            settings: self.settings_of_parts(),
        };
        let bytes = fragment::write(&header, &bytes).into();
        let asked = Asked {
            shuffles: Vec::new(),
            reads: Vec::new(),
            fragment: Fragment { bytes, schema: schema() },
            parts,
            is_raw: false,
            deadline: stop::deadline(),
            here: self.here(),
            told: Arc::default(),
        };
        Ok(Some((elsewhere, asked)))
    }

    /// Cells of all users, put together from those of parts; `None` if a part says that they cannot be had in this way.
    pub(super) async fn of_parts(
        &self,
        questions: &[ScanQuery<'_>],
        (elsewhere, asked): (Arc<dyn Elsewhere>, Asked),
    ) -> Result<Option<Vec<Counted>>> {
        let layout = |question: &ScanQuery<'_>| {
            let sql = Sql::new(question.query, question.times)?;
            Ok(Arc::new(Layout::new(&sql, question.caps.clone())))
        };
        let layouts: Vec<Arc<Layout>> = questions.iter().map(layout).collect::<Result<_>>()?;
        // Whoever computes may do so in one part, too.
        let firsts: BTreeSet<u32> = asked.parts.iter().map(|part| first(&part.share)).collect();
        let mut found: BTreeMap<u32, Vec<Option<Counted>>> = BTreeMap::new();
        let mut rows = elsewhere.rows(asked);
        while let Some(batch) = rows.try_next().await? {
            for (from, number, cells) in rows_of(&batch).ok_or_else(damaged)? {
                let Some(cells) = cells else { return Ok(None) };
                let number = usize::try_from(number).map_err(|_| damaged())?;
                let layout = layouts.get(number).ok_or_else(damaged)?;
                if !firsts.contains(&from) && from != ALL {
                    return Err(damaged());
                }
                let part =
                    found.entry(from).or_insert_with(|| layouts.iter().map(|_| None).collect());
                let cells = Counted::from_bytes(layout, cells).map_err(|_| damaged())?;
                if part[number].replace(cells).is_some() {
                    return Err(damaged());
                }
            }
        }
        if !found.keys().eq(&firsts) && !found.keys().eq([&ALL]) {
            return Err(damaged());
        }
        let mut whole: Option<Vec<Counted>> = None;
        for part in found.into_values() {
            let part = part.into_iter().collect::<Option<Vec<_>>>().ok_or_else(damaged)?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => {
                    whole.iter_mut().zip(part).try_for_each(|(whole, part)| whole.merge(part))?;
                }
            }
        }
        Ok(Some(whole.ok_or_else(damaged)?))
    }

    /// Refuses what somebody else asks that is not about tables of the lake alone, each of which he has named.
    pub(crate) fn refuse_questions(&self, sent: &SentQuestions) -> Result<()> {
        let pinned: Vec<String> = self.catalog.pins().into_iter().map(|(name, _)| name).collect();
        for SentQuestion { query, .. } in &sent.questions {
            self.refuse(query)?;
            let is_pinned = |name: &String| pinned.contains(name);
            if self.reads_more(query) || !query.tables().iter().all(is_pinned) {
                return Err(EngineError::bug(
                    "a part of a report reads tables that it does not name",
                ));
            }
        }
        Ok(())
    }

    /// Do expressions of a definition read tables that it does not name as such? Nobody has pinned those.
    fn reads_more(&self, query: &MomentsQuery) -> bool {
        self.tables_in(query).map_or(true, |tables| !tables.is_empty())
    }

    /// The cells of a part that somebody else asks for.
    ///
    /// # Errors
    /// Those of the questions, and [`EngineError::Limit`] if it does not fit into memory.
    pub(crate) async fn cells_of_part(
        &self,
        sent: &SentQuestions,
        share: &Share,
    ) -> Result<RecordBatch> {
        let times = |question: &SentQuestion| {
            Ok(Times { observed: question.observed, ..Times::of(&question.query)? })
        };
        let times: Vec<Times> = sent.questions.iter().map(times).collect::<Result<_>>()?;
        let question = |(sent, times)| {
            let SentQuestion { query, caps, .. }: &SentQuestion = sent;
            ScanQuery { query, times, caps: caps.clone() }
        };
        let questions: Vec<ScanQuery<'_>> =
            sent.questions.iter().zip(&times).map(question).collect();
        let kind = KeyKind::Ids(sent.source.clone());
        let counted = Box::pin(self.one_part(&kind, &questions, Some(share))).await?;
        let cells: Vec<Option<Vec<u8>>> = match counted {
            Some(counted) => counted.into_iter().map(|one| Some(one.into_bytes())).collect(),
            None => vec![None],
        };
        let count = cells.len() as u32;
        let columns: [ArrayRef; 3] = [
            Arc::new(UInt32Array::from(vec![first(share); cells.len()])),
            Arc::new(UInt32Array::from_iter_values(0..count)),
            Arc::new(LargeBinaryArray::from_iter(cells)),
        ];
        RecordBatch::try_new(schema(), columns.into()).map_err(|e| EngineError::bug(e.to_string()))
    }
}

impl ScanQuery<'_> {
    fn sent(&self) -> SentQuestion {
        SentQuestion {
            query: self.query.clone(),
            caps: self.caps.clone(),
            observed: self.times.observed,
        }
    }
}

/// What parts answer: the first id of the part, the number of the question, and its cells.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("first_id", DataType::UInt32, false),
        Field::new("question", DataType::UInt32, false),
        Field::new("cells", DataType::LargeBinary, true),
    ]))
}

fn rows_of(batch: &RecordBatch) -> Option<impl Iterator<Item = (u32, u32, Option<&[u8]>)>> {
    let [first, question, cells] = batch.columns() else { return None };
    let first = first.as_primitive_opt::<UInt32Type>()?.values();
    let question = question.as_primitive_opt::<UInt32Type>()?.values();
    let cells = cells.as_binary_opt::<i64>()?;
    Some(first.iter().zip(question).zip(cells).map(|((f, q), cells)| (*f, *q, cells)))
}

/// What a part is called that has all users: no id is that high.
const ALL: u32 = u32::MAX;

/// What tells a part from the others: its first id, which none of them has.
fn first(share: &Share) -> u32 {
    match share {
        Share::Ids { ranges, .. } => match ranges.as_slice() {
            [all] if *all == (0..u32::MAX) => ALL,
            [first, ..] => first.start,
            [] => ALL,
        },
        Share::Stretch { part, .. } => *part,
    }
}

fn damaged() -> EngineError {
    EngineError::bug("the cells of a part are not those that were asked for")
}
