//! Is an id one of many?

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int32Type, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

/// Is an id one of a set? Too many for a list of literals.
#[derive(Debug)]
pub(crate) struct AmongIds {
    id: Arc<dyn PhysicalExpr>,
    bits: Arc<[u64]>,
}

impl AmongIds {
    pub fn new(id: Arc<dyn PhysicalExpr>, ids: impl Iterator<Item = i32>) -> Self {
        let mut bits: Vec<u64> = Vec::new();
        for id in ids.filter_map(|id| usize::try_from(id).ok()) {
            if bits.len() <= id / 64 {
                bits.resize((id / 64 + 1).next_power_of_two(), 0);
            }
            bits[id / 64] |= 1 << (id % 64);
        }
        Self { id, bits: bits.into() }
    }

    /// The ids, as bits from zero.
    pub fn bits(&self) -> &Arc<[u64]> {
        &self.bits
    }
}

impl PartialEq for AmongIds {
    fn eq(&self, other: &Self) -> bool {
        self.id.eq(&other.id) && Arc::ptr_eq(&self.bits, &other.bits)
    }
}

impl Eq for AmongIds {}

impl Hash for AmongIds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        (self.bits.as_ptr() as usize).hash(state);
    }
}

impl fmt::Display for AmongIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
        write!(f, "{} IN ({ids} ids)", self.id)
    }
}

impl PhysicalExpr for AmongIds {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.id.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let ids = self.id.evaluate(batch)?.into_array(batch.num_rows())?;
        let has = |id: i32| {
            let id = usize::try_from(id).unwrap_or(usize::MAX);
            self.bits.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
        };
        let found: BooleanArray =
            ids.as_primitive::<Int32Type>().iter().map(|id| id.map(has)).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.id]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let id = children.pop().unwrap_or_else(|| Arc::clone(&self.id));
        Ok(Arc::new(Self { id, bits: Arc::clone(&self.bits) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
