//! What a table says of its columns of ids, and its files do not say.
//!
//! # Invariants
//! - It is said only if the ids of all files are from one log ([`Snapshot::ids_of`]).

use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use uplake_table::{Snapshot, id_column};

use crate::base::id_column::{IdColumn, without_ids_said};

/// The schema, saying which of its columns hold ids, and of which log.
pub(crate) fn with_ids_said(schema: &Schema, snapshot: &Snapshot) -> SchemaRef {
    let said = |field: &FieldRef| {
        let mut specs = snapshot.id_domains().iter();
        let spec = specs.find(|spec| id_column(&spec.column) == *field.name());
        let source = spec.and_then(|spec| snapshot.ids_of(&spec.column));
        match source.and_then(IdColumn::of_source) {
            Some(ids) => Arc::new(ids.said_of(field.as_ref().clone())),
            None => Arc::clone(field),
        }
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(said).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// DataFusion's adapter of expressions to files, which would cast a column of ids for what its table says and the
/// file does not: in each row for nothing, and out of sight of all that looks for columns.
#[derive(Debug)]
pub(crate) struct AsFilesHave;

impl PhysicalExprAdapterFactory for AsFilesHave {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        DefaultPhysicalExprAdapterFactory.create(without_ids_said(&table), file)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::Column;

    use super::*;

    #[test]
    fn columns_of_ids_are_read_without_a_cast() {
        let plain = Field::new("__id_user_id", DataType::Int32, true);
        let said = IdColumn::of_source("users:01").unwrap().said_of(plain.clone());
        let (table, file) = (Schema::new(vec![said]), Schema::new(vec![plain]));
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("__id_user_id", 0));
        let adapter = AsFilesHave.create(Arc::new(table), Arc::new(file)).unwrap();
        assert!(adapter.rewrite(column).unwrap().is::<Column>());
    }
}
