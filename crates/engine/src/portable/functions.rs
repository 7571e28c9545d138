//! Functions and tables as they travel: by name where a session knows the name, or by what they are made of.
//!
//! # Invariants
//! - A function that another session would take for another one is not written down. DataFusion's own code drops errors
//!   of functions; they are kept in [`Codec::refused`], which who writes a plan must ask.
//! - An expression that is read has no plan in it: DataFusion's code would make one of any file that it names. Subqueries
//!   travel as plans of ours ([`crate::portable::plan`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{FieldRef, Int64Type, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, TableReference, not_impl_err, plan_datafusion_err, plan_err};
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::{
    AggregateUDF, Expr, Extension, HigherOrderUDF, LogicalPlan, ScalarUDF, WindowUDF,
};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::protobuf::{self, LogicalExprNode};
use prost::Message;
use uplake_table::Domain;

use crate::functions::distinct_ids::distinct_ids;
use crate::functions::halves::{merged, of_merged, of_partial, partial};
use crate::mends;
use crate::optimizer::id_rewrite::id_keys;
use crate::portable::bytes::{Reader, Writer};
use crate::scan::lake_table::LakeTable;
use crate::sql::id_set::{IdSet, InIdSet};

/// What stands in front of what a function is made of.
const ID_SET: u8 = 1;
const KEYS_OF_IDS: u8 = 2;
const PRIVATE: u8 = 3;
const DISTINCT_IDS: u8 = 4;
const PARTIAL: u8 = 5;
const SORTED_AT_THE_END: u8 = 6;
const BOUND: u8 = 7;
const BY_NAME: u8 = 8;
const MERGED: u8 = 9;

/// Functions made of others, inside one another: three are. Each is read by code that calls itself.
const WITHIN_MAX: usize = 8;

/// Which table, in which version, and the sum of its files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pin {
    pub table: String,
    pub version: u64,
    /// CRC-32 of the files' paths and sizes, in order: a lake that was restored is another one.
    pub files: u32,
}

impl Pin {
    /// The pin of a table; `None` if it is a part of one, or not as the lake has it.
    pub fn of(table: &LakeTable) -> Option<Self> {
        table.rows_of().filter(|_| table.is_plain())?;
        let mut sum = crc32fast::Hasher::new();
        for file in table.files() {
            sum.update(file.path.as_bytes());
            sum.update(&file.size.to_le_bytes());
        }
        let snapshot = table.snapshot();
        Some(Self {
            table: snapshot.table().to_owned(),
            version: snapshot.version(),
            files: sum.finalize(),
        })
    }
}

/// What plans are written and read with.
pub(crate) struct Codec {
    /// The functions that a session knows.
    pub context: Arc<TaskContext>,
    /// The tables there are.
    pub tables: Vec<(Pin, Arc<LakeTable>)>,
    /// The domains, by their sources.
    pub domains: HashMap<String, Arc<Domain>>,
    refused: Mutex<Option<String>>,
    /// Operators of the plan that is read, so far.
    operators: AtomicUsize,
    /// Functions that are read now, each for the one before.
    within: AtomicUsize,
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}

impl Codec {
    pub fn new(
        context: Arc<TaskContext>,
        tables: Vec<(Pin, Arc<LakeTable>)>,
        domains: HashMap<String, Arc<Domain>>,
    ) -> Self {
        let (operators, within) = Default::default();
        Self { context, tables, domains, refused: Mutex::default(), operators, within }
    }

    /// A plan is read from its beginning.
    pub fn begins(&self) {
        self.operators.store(0, Ordering::Relaxed);
        self.within.store(0, Ordering::Relaxed);
    }

    /// One operator more was read of a plan, or of one of its subqueries; how many there are.
    pub fn operator(&self) -> usize {
        self.operators.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reads what a function is made of.
    fn read_within<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.within.fetch_add(1, Ordering::Relaxed) >= WITHIN_MAX {
            return plan_err!("a plan has too many functions inside one another");
        }
        let read = read();
        self.within.fetch_sub(1, Ordering::Relaxed);
        read
    }

    /// What could not be written since the last call.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, what: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get_or_insert_with(|| what.to_owned());
    }

    pub fn write_expr(&self, expr: &Expr, to: &mut Writer) -> Result<()> {
        let node = serialize_expr(expr, self).map_err(|error| plan_datafusion_err!("{error}"))?;
        to.bytes(&node.encode_to_vec());
        Ok(())
    }

    pub fn read_expr(&self, from: &mut Reader) -> Result<Expr> {
        let node = LogicalExprNode::decode(from.bytes()?)
            .map_err(|error| plan_datafusion_err!("an expression of a plan: {error}"))?;
        let expr = parse_expr(&node, &self.context, self);
        let expr = expr.map_err(|error| plan_datafusion_err!("{error}"))?;
        let has_plan = |part: &Expr| {
            let is_one = matches!(
                part,
                Expr::ScalarSubquery(_)
                    | Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
            );
            Ok(is_one)
        };
        match expr.exists(has_plan)? {
            true => plan_err!("an expression has a plan of another format in it"),
            false => Ok(expr),
        }
    }

    /// The function's name, and what else is to be known of it.
    fn write_aggregate(&self, function: &Arc<AggregateUDF>, to: &mut Writer) -> Result<()> {
        let mut bytes = Vec::new();
        self.try_encode_udaf(function, &mut bytes)?;
        to.text(function.name());
        to.bytes(&bytes);
        Ok(())
    }

    fn read_aggregate(&self, from: &mut Reader) -> Result<Arc<AggregateUDF>> {
        let (name, bytes) = (from.text()?, from.bytes()?);
        match bytes {
            [] => self.context.udaf(name),
            bytes => self.read_within(|| self.try_decode_udaf(name, bytes)),
        }
    }
}

impl LogicalExtensionCodec for Codec {
    fn try_decode(&self, _: &[u8], _: &[LogicalPlan], _: &TaskContext) -> Result<Extension> {
        not_impl_err!("no operator of ours travels")
    }

    fn try_encode(&self, node: &Extension, _: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("{} does not travel", node.node.name())
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(self.read_table(&mut Reader::new(bytes))? as Arc<dyn TableProvider>)
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        node: Arc<dyn TableProvider>,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(table) = node.downcast_ref::<LakeTable>() else {
            return not_impl_err!("{name} is no table of the lake");
        };
        let mut writer = Writer::default();
        self.write_table(table, &mut writer)?;
        to.append(&mut writer.0);
        Ok(())
    }

    fn try_encode_udf(&self, function: &ScalarUDF, to: &mut Vec<u8>) -> Result<()> {
        if self.context.udf(function.name()).is_ok_and(|known| known.as_ref() == function) {
            return Ok(());
        }
        let mut writer = Writer::default();
        if let Some(set) = function.inner().downcast_ref::<InIdSet>() {
            writer.byte(ID_SET);
            write_set(&set.set, &mut writer);
        } else if let Some((source, domain)) = id_keys::source_of(function) {
            writer.byte(KEYS_OF_IDS);
            writer.text(source);
            writer.flag(domain.is_some());
        } else if let Some(bytes) = mends::private_to_bytes(function) {
            writer.byte(PRIVATE);
            writer.bytes(&bytes);
        } else {
            self.refuse(&format!("the function {}", function.name()));
            return not_impl_err!("{} does not travel", function.name());
        }
        to.append(&mut writer.0);
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let mut reader = Reader::new(bytes);
        match reader.byte()? {
            ID_SET => {
                let set = Arc::new(read_set(&mut reader)?);
                Ok(Arc::new(InIdSet::function(name.to_owned(), set)))
            }
            KEYS_OF_IDS => {
                let (source, is_resolved) = (reader.text()?, reader.flag()?);
                let domain = self.domains.get(source).cloned();
                if is_resolved && domain.is_none() {
                    return plan_err!("the id domain {source} is not there");
                }
                Ok(id_keys::function(source, domain.filter(|_| is_resolved)))
            }
            PRIVATE => mends::private_from_bytes(name, reader.bytes()?)
                .map(Arc::new)
                .ok_or_else(|| plan_datafusion_err!("nobody knows the function {name}")),
            _ => plan_err!("nobody knows the function {name}"),
        }
    }

    fn try_encode_higher_order_function(
        &self,
        function: &HigherOrderUDF,
        _: &mut Vec<u8>,
    ) -> Result<()> {
        let known = self.context.higher_order_function(function.name());
        if known.is_ok_and(|known| known.as_ref() == function) {
            return Ok(());
        }
        self.refuse(&format!("the function {}", function.name()));
        not_impl_err!("{} does not travel", function.name())
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, to: &mut Vec<u8>) -> Result<()> {
        if self.context.udaf(function.name()).is_ok_and(|known| known.as_ref() == function) {
            return Ok(());
        }
        let mut writer = Writer::default();
        if *function == distinct_ids() {
            writer.byte(DISTINCT_IDS);
        } else if let Some(of) = of_partial(function) {
            writer.byte(PARTIAL);
            self.write_aggregate(of, &mut writer)?;
        } else if let Some((of, arguments, is_struct)) = of_merged(function) {
            writer.byte(MERGED);
            self.write_aggregate(of, &mut writer)?;
            writer.flag(is_struct);
            let fields: Vec<FieldRef> = arguments.iter().map(|(field, _)| field.clone()).collect();
            let fields = protobuf::Schema::try_from(&Schema::new(fields))
                .map_err(|error| plan_datafusion_err!("{error}"))?;
            writer.bytes(&fields.encode_to_vec());
            for (_, value) in arguments {
                writer.flag(value.is_some());
                if let Some(value) = value {
                    self.write_expr(&Expr::Literal(value.clone(), None), &mut writer)?;
                }
            }
        } else if let Some(of) = mends::sorted_at_the_end(function) {
            writer.byte(SORTED_AT_THE_END);
            self.write_aggregate(of, &mut writer)?;
        } else if let Some(bound) = uplake_functions::bound_constants(function) {
            writer.byte(BOUND);
            writer.number(bound.conditions as u64);
            self.write_expr(&Expr::Literal(bound.time.clone(), None), &mut writer)?;
            writer.number(bound.constants.len() as u64);
            for constant in &bound.constants {
                self.write_expr(&Expr::Literal(constant.clone(), None), &mut writer)?;
            }
        } else if theirs(function.name()).is_some_and(|theirs| theirs.as_ref() == function) {
            writer.byte(BY_NAME);
        } else {
            self.refuse(&format!("the aggregate {}", function.name()));
            return not_impl_err!("{} does not travel", function.name());
        }
        to.append(&mut writer.0);
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let mut reader = Reader::new(bytes);
        let unknown = || plan_datafusion_err!("nobody knows the aggregate {name}");
        match reader.byte()? {
            DISTINCT_IDS => Ok(Arc::new(distinct_ids())),
            PARTIAL => Ok(Arc::new(partial(self.read_aggregate(&mut reader)?))),
            MERGED => {
                let (of, is_struct) = (self.read_aggregate(&mut reader)?, reader.flag()?);
                let fields = protobuf::Schema::decode(reader.bytes()?);
                let fields = Schema::try_from(&fields.map_err(|_| unknown())?);
                let mut arguments = Vec::new();
                for field in fields.map_err(|_| unknown())?.fields() {
                    let value = match reader.flag()? {
                        true => match self.read_within(|| self.read_expr(&mut reader))? {
                            Expr::Literal(value, _) => Some(value),
                            _ => return Err(unknown()),
                        },
                        false => None,
                    };
                    arguments.push((Arc::clone(field), value));
                }
                Ok(Arc::new(merged(of, arguments, is_struct)))
            }
            SORTED_AT_THE_END => {
                Ok(Arc::new(mends::sorting_at_the_end(self.read_aggregate(&mut reader)?)))
            }
            BOUND => {
                let literal = |reader: &mut Reader| match self.read_expr(reader)? {
                    Expr::Literal(value, _) => Ok(value),
                    _ => Err(unknown()),
                };
                let conditions = usize::try_from(reader.number()?).map_err(|_| unknown())?;
                let (time, constants) = self.read_within(|| {
                    let time = literal(&mut reader)?;
                    let count = reader.count()?;
                    let constants = (0..count).map(|_| literal(&mut reader));
                    Ok((time, constants.collect::<Result<_>>()?))
                })?;
                let bound = uplake_functions::BoundConstants { constants, time, conditions };
                uplake_functions::bind(name, bound)?.map(Arc::new).ok_or_else(unknown)
            }
            BY_NAME => theirs(name).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }

    fn try_encode_udwf(&self, function: &WindowUDF, to: &mut Vec<u8>) -> Result<()> {
        if self.context.udwf(function.name()).is_ok_and(|known| known.as_ref() == function) {
            return Ok(());
        }
        if their_window(function.name()).is_some_and(|theirs| theirs.as_ref() == function) {
            to.push(BY_NAME);
            return Ok(());
        }
        self.refuse(&format!("the window {}", function.name()));
        not_impl_err!("{} does not travel", function.name())
    }

    fn try_decode_udwf(&self, name: &str, bytes: &[u8]) -> Result<Arc<WindowUDF>> {
        let theirs = their_window(name).filter(|_| bytes == [BY_NAME]);
        theirs.ok_or_else(|| plan_datafusion_err!("nobody knows the window {name}"))
    }
}

impl Codec {
    /// A table: its number among those there are, and whether it is the one with ids.
    pub fn write_table(&self, table: &LakeTable, to: &mut Writer) -> Result<()> {
        let pin = Pin::of(table);
        let place = self.tables.iter().position(|(known, _)| Some(known) == pin.as_ref());
        let Some(place) = place else {
            return not_impl_err!("{} is not as the lake has it", table.snapshot().table());
        };
        to.number(place as u64);
        to.flag(table.is_with_ids());
        Ok(())
    }

    pub fn read_table(&self, from: &mut Reader) -> Result<Arc<LakeTable>> {
        let (place, with_ids) = (from.number()?, from.flag()?);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match self.tables.get(place) {
            Some((_, table)) if with_ids => Ok(table.with_ids()),
            Some((_, table)) => Ok(Arc::clone(table)),
            None => plan_err!("a plan is about a table that is not there"),
        }
    }
}

/// DataFusion's aggregate of that name, in whose place sessions have one of ours.
fn theirs(name: &str) -> Option<Arc<AggregateUDF>> {
    let all = datafusion::execution::SessionStateDefaults::default_aggregate_functions();
    all.into_iter().find(|function| function.name() == name)
}

/// The same of windows: rows that EXCEPT ALL numbers are numbered by DataFusion's own.
fn their_window(name: &str) -> Option<Arc<WindowUDF>> {
    let all = datafusion::execution::SessionStateDefaults::default_window_functions();
    all.into_iter().find(|function| function.name() == name)
}

fn write_set(set: &IdSet, to: &mut Writer) {
    let values = set.to_array();
    match values.as_primitive_opt::<Int64Type>() {
        Some(ids) => {
            to.flag(true);
            to.number(ids.len() as u64);
            let mut last = 0i64;
            for id in ids.values() {
                // In order, so what is added is never negative but for the first.
                to.number(id.wrapping_sub(last) as u64);
                last = *id;
            }
        }
        None => {
            to.flag(false);
            let texts = values.as_string::<i32>();
            to.number(texts.len() as u64);
            texts.iter().flatten().for_each(|text| to.text(text));
        }
    }
}

fn read_set(from: &mut Reader) -> Result<IdSet> {
    let is_of_integers = from.flag()?;
    let count = from.count()?;
    if is_of_integers {
        let mut last = 0i64;
        let ids = (0..count).map(|_| {
            last = last.wrapping_add(from.number()? as i64);
            Ok(last)
        });
        return Ok(IdSet::of_integers(ids.collect::<Result<_>>()?));
    }
    let texts = (0..count).map(|_| Ok(from.text()?.to_owned()));
    Ok(IdSet::of_texts(texts.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> Codec {
        Codec::new(Arc::new(TaskContext::default()), Vec::new(), HashMap::new())
    }

    /// DataFusion would make a plan of it, of whatever files it names.
    #[test]
    fn an_expression_with_a_plan_in_it_is_refused() {
        let plan = LogicalPlan::EmptyRelation(datafusion::logical_expr::EmptyRelation {
            produce_one_row: true,
            schema: Arc::new(datafusion::common::DFSchema::empty()),
        });
        let subquery = Expr::ScalarSubquery(datafusion::logical_expr::Subquery {
            subquery: Arc::new(plan),
            outer_ref_columns: Vec::new(),
            spans: datafusion::common::Spans::new(),
        });
        let one = datafusion::logical_expr::lit(1);
        for expr in [subquery.clone(), subquery.clone().eq(one.clone()), one.eq(subquery)] {
            let mut writer = Writer::default();
            codec().write_expr(&expr, &mut writer).unwrap();
            let error = codec().read_expr(&mut Reader::new(&writer.0)).unwrap_err().to_string();
            assert!(error.contains("plan of another format"), "{error}");
        }
    }

    #[test]
    fn functions_inside_one_another_without_end_are_refused() {
        for depth in [WITHIN_MAX + 2, 100_000] {
            // The innermost has no more than its name.
            let mut bytes = Vec::new();
            for _ in 0..depth {
                let mut writer = Writer::default();
                writer.byte(PARTIAL);
                writer.text("sum");
                writer.bytes(&bytes);
                bytes = writer.0;
                if bytes.len() > 1 << 20 {
                    break;
                }
            }
            let error = codec().try_decode_udaf("sum", &bytes).unwrap_err().to_string();
            assert!(error.contains("inside one another"), "{error}");
        }
    }

    #[test]
    fn sets_are_written_as_what_is_added() {
        let numbers = [vec![], vec![5], vec![i64::MIN, -3, 0, 7, i64::MAX], (0..1000).collect()];
        for ids in numbers {
            let set = IdSet::of_integers(ids.clone());
            let mut writer = Writer::default();
            write_set(&set, &mut writer);
            assert!(read_set(&mut Reader::new(&writer.0)).unwrap() == set, "{ids:?}");
            assert!(ids.len() < 1000 || writer.0.len() < 1010, "a byte each");
        }
        let texts = IdSet::of_texts(vec!["b".into(), String::new(), "ü".into()]);
        let mut writer = Writer::default();
        write_set(&texts, &mut writer);
        assert!(read_set(&mut Reader::new(&writer.0)).unwrap() == texts);
        assert!(read_set(&mut Reader::new(&writer.0[..3])).is_err());
    }
}
