//! Which columns hold ids of which domain: a fact that the field of a column carries as metadata.
//!
//! ```text
//! __id_user_id: Int32 {uplake.id_domain: "users", uplake.id_log: "0123…"}
//! ```
//!
//! A lake's table says it ([`LakeTable`](crate::scan::lake_table::LakeTable)); DataFusion keeps metadata through
//! columns, aliases, joins, groups and casts, whatever the columns are called on the way.
//!
//! # Invariants
//! - Two columns of which [`IdColumn::of`] says the same have equal ids exactly where they have equal keys; ids
//!   that are from different logs are never taken for the same.
//! - A fact that is lost on the way costs speed. One that is not true (metadata of a file that somebody else
//!   wrote) does so, too: who believes it is right for any whole numbers.
//!
//! # Not here
//! Names: nothing is told by what a column is called.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

const DOMAIN: &str = "uplake.id_domain";
const LOG: &str = "uplake.id_log";

/// Where a column's ids are from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdColumn {
    domain: String,
    /// Tells logs of domains apart that had one name.
    log: String,
}

impl IdColumn {
    /// What a column of rows that have this field holds; `None` if they are no ids.
    pub fn of(field: &Field) -> Option<Self> {
        let said = |key: &str| field.metadata().get(key).cloned();
        let is_id = field.data_type() == &DataType::Int32;
        Some(Self { domain: said(DOMAIN)?, log: said(LOG)? }).filter(|_| is_id)
    }

    /// The same of an expression over rows of `schema`, which must be a column.
    pub fn of_column(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let column = expr.downcast_ref::<Column>()?;
        Self::of(schema.fields().get(column.index())?)
    }

    /// The same in a logical plan.
    pub fn of_expr(expr: &Expr, schema: &DFSchema) -> Option<Self> {
        let Expr::Column(column) = expr else { return None };
        let place = schema.maybe_index_of_column(column)?;
        Self::of(schema.field(place))
    }

    /// Of a domain and its log as tags of data files have them: `users:0123…`.
    pub fn of_source(source: &str) -> Option<Self> {
        let (domain, log) = source.split_once(':')?;
        Some(Self { domain: domain.to_owned(), log: log.to_owned() })
    }

    /// As [`Self::of_source`] reads it.
    pub fn source(&self) -> String {
        format!("{}:{}", self.domain, self.log)
    }

    /// The field, saying so.
    pub fn said_of(&self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(DOMAIN.to_owned(), self.domain.clone());
        metadata.insert(LOG.to_owned(), self.log.clone());
        field.with_metadata(metadata)
    }
}

/// The schema as files have it, which know nothing of ids.
pub(crate) fn without_ids_said(schema: &SchemaRef) -> SchemaRef {
    let says = |field: &Field| field.metadata().contains_key(DOMAIN);
    if !schema.fields().iter().any(|field| says(field)) {
        return Arc::clone(schema);
    }
    let silent = |field: &Arc<Field>| {
        let mut metadata = field.metadata().clone();
        metadata.remove(DOMAIN);
        metadata.remove(LOG);
        field.as_ref().clone().with_metadata(metadata)
    };
    let fields: Vec<Field> = schema.fields().iter().map(silent).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
mod tests {
    use datafusion::datasource::MemTable;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn ids(name: &str, source: &str) -> Field {
        IdColumn::of_source(source).unwrap().said_of(Field::new(name, DataType::Int32, true))
    }

    #[test]
    fn ids_are_told_by_what_is_said_of_them() {
        let field = ids("whatever", "users:01");
        let found = IdColumn::of(&field).unwrap();
        assert_eq!(found.source(), "users:01");
        assert_eq!(Some(found), IdColumn::of_source("users:01"));
        let named = Field::new("__id_user_id", DataType::Int32, true);
        assert_eq!(IdColumn::of(&named), None);
        assert_eq!(IdColumn::of(&field.with_data_type(DataType::Int64)), None);
        assert_eq!(IdColumn::of_source("users"), None);
    }

    #[test]
    fn ids_of_two_domains_or_logs_are_not_the_same() {
        let of = |source: &str| IdColumn::of(&ids("id", source)).unwrap();
        assert_eq!(of("users:01"), of("users:01"));
        for other in ["users:02", "items:01", "users:01:", "user:s01"] {
            assert_ne!(of("users:01"), of(other), "{other}");
        }
    }

    #[test]
    fn columns_are_found_by_their_place() {
        let schema =
            Schema::new(vec![Field::new("__id_a", DataType::Int32, true), ids("b", "users:01")]);
        let of = |place: usize| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("__id_b", place));
            IdColumn::of_column(&column, &schema)
        };
        assert_eq!((of(0), of(1), of(2)), (None, IdColumn::of_source("users:01"), None));
        let schema = DFSchema::try_from(schema).unwrap();
        let of = |name: &str| IdColumn::of_expr(&datafusion::prelude::col(name), &schema);
        assert_eq!((of("b"), of("__id_a"), of("c")), (IdColumn::of_source("users:01"), None, None));
        let sum = datafusion::prelude::col("b") + datafusion::prelude::lit(1);
        assert_eq!(IdColumn::of_expr(&sum, &schema), None);
    }

    /// What rules of ours count on: the logical plan and the physical one say the same of each column.
    #[test]
    fn datafusion_keeps_what_is_said() {
        let context = SessionContext::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (table, source) in [("a", "users:01"), ("b", "users:01"), ("c", "items:02")] {
            let n = Field::new("n", DataType::Int64, true);
            let schema = Arc::new(Schema::new(vec![ids("id", source), n]));
            let rows = MemTable::try_new(schema, vec![vec![]]).unwrap();
            context.register_table(table, Arc::new(rows)).unwrap();
        }
        let groups = "(SELECT id AS k, count(*) AS c FROM a WHERE n > 1 GROUP BY id)";
        for (sql, expected) in [
            ("SELECT id AS renamed, n FROM a ORDER BY n LIMIT 3".to_owned(), ["users:01", ""]),
            (
                format!("SELECT x.k, b.id FROM {groups} x FULL JOIN b ON x.k = b.id"),
                ["users:01"; 2],
            ),
            (
                "SELECT a.id AS u, c.id AS i FROM a LEFT JOIN c ON a.n = c.n WHERE c.n > 2"
                    .to_owned(),
                ["users:01", "items:02"],
            ),
            (
                "SELECT id, lag(n) OVER (PARTITION BY id ORDER BY n) FROM a".to_owned(),
                ["users:01", ""],
            ),
            ("SELECT DISTINCT id, id + 1 FROM c".to_owned(), ["items:02", ""]),
            ("SELECT CAST(id AS BIGINT), max(n) FROM a GROUP BY 1".to_owned(), ["", ""]),
        ] {
            let plans = async {
                let plan = context.sql(&sql).await.unwrap().into_optimized_plan().unwrap();
                let physical = context.state().create_physical_plan(&plan).await.unwrap();
                (plan.schema().as_arrow().clone(), physical.schema())
            };
            let (logical, physical) = runtime.block_on(plans);
            let said = |schema: &Schema| -> Vec<String> {
                let of = |field: &Arc<Field>| IdColumn::of(field).map(|of| of.source());
                schema.fields().iter().map(|field| of(field).unwrap_or_default()).collect()
            };
            assert_eq!(said(&logical), expected, "{sql}");
            assert_eq!(said(&physical), expected, "{sql}");
        }
    }

    #[test]
    fn files_know_nothing_of_ids() {
        let schema = Arc::new(Schema::new(vec![ids("b", "users:01")]));
        let silent = without_ids_said(&schema);
        assert!(silent.field(0).metadata().is_empty() && silent.field(0).name() == "b");
        assert!(Arc::ptr_eq(&silent, &without_ids_said(&silent)));
    }
}
