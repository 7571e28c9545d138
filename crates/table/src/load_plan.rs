//! What a load will write: its inputs opened, and the table that they are to become.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::{Field, Schema};

use crate::decode::{Input, InputFile, Place, Progress};
use crate::definition::{TableDefinition, check_definition, check_new_columns};
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::layout::{Layout, OnConflict};
use crate::load_options::LoadOptions;
use crate::schema::{type_name, widens};
use crate::snapshot::Snapshot;

/// Columns of a table: memory and the log's bounds grow with them, whatever they hold.
const MOST_COLUMNS: usize = 10_000;
/// Inputs that are open before their turn, each with its first records.
const KEPT_OPEN: usize = 8;

/// The opened inputs and the table they are to become.
pub(super) struct Plan {
    pub(super) base: Option<Snapshot>,
    pub(super) definition: TableDefinition,
    pub(super) new_columns: Vec<String>,
    pub(super) layout: Layout,
    pub(super) inputs: Vec<Input>,
}

impl Plan {
    pub(super) fn new(
        lake: &Lake,
        table: &str,
        base: Option<Snapshot>,
        files: &[InputFile],
        options: &LoadOptions,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let total: u64 = files.iter().filter_map(InputFile::size).sum();
        progress.bytes_total.store(total, Ordering::Relaxed);
        let declared = options.schema.as_deref();
        let mut columns = match &base {
            Some(base) => Columns::of_table(base.schema(), declared)?,
            None => Columns::default(),
        };
        let mut inputs = Vec::with_capacity(files.len());
        // A table that is there says itself what is not NULL.
        let key = if base.is_none() { options.primary_key.as_slice() } else { &[] };
        for file in files {
            let hints = columns.hints(declared);
            // Of an object more is fetched than was asked for, while it is open.
            let is_kept_open = match &file.place {
                Place::Object(_) => inputs.is_empty(),
                Place::File(_) | Place::StandardInput => inputs.len() < KEPT_OPEN,
            };
            let open = if is_kept_open { Input::open } else { Input::open_later };
            let input = open(file, &options.text, hints.as_ref(), key, progress)?;
            let may_add = inputs.is_empty() && base.is_none() || options.allow_new_columns;
            let known = columns.fields.len();
            columns.merge(&input.file.name, &input.schema, declared, may_add)?;
            check_new_columns(&Schema::new(columns.fields[known..].to_vec()))?;
            inputs.push(input);
        }
        columns.check_declared(declared)?;
        if base.is_some() {
            // Rows that are there have NULL in new columns.
            let is_asked = |name: &str| {
                declared
                    .and_then(|s| s.field_with_name(name).ok())
                    .is_some_and(|f| !f.is_nullable())
            };
            let Columns { fields, added } = &mut columns;
            for field in fields.iter_mut().filter(|field| added.contains(field.name())) {
                if is_asked(field.name()) {
                    return Err(TableError::Invalid(format!(
                        "column `{}` is new to table `{table}`, whose rows have NULL there; leave \
                         out NOT NULL",
                        field.name()
                    )));
                }
                field.set_nullable(true);
            }
        }
        let definition = definition(&base, &columns, options)?;
        check_definition(&definition)?;
        if definition.primary_key.is_empty() && options.on_conflict == OnConflict::Ignore {
            return Err(TableError::Invalid(format!(
                "table `{table}` has no primary key, so no row is in conflict with another; leave \
                 --on-conflict out, or make the table with --primary-key"
            )));
        }
        let on_conflict = options.on_conflict;
        let layout = Layout { on_conflict, ..Layout::new(lake, table, &definition)? };
        let new_columns = if base.is_some() { columns.added } else { Vec::new() };
        Ok(Self { base, definition, new_columns, layout, inputs })
    }
}

/// The layout is the table's; what the command line says must agree with it.
fn definition(
    base: &Option<Snapshot>,
    columns: &Columns,
    options: &LoadOptions,
) -> Result<TableDefinition> {
    let mut fields = columns.fields.clone();
    if base.is_none() {
        for field in &mut fields {
            let in_key = options.primary_key.contains(field.name());
            field.set_nullable(field.is_nullable() && !in_key);
        }
    }
    let schema = Arc::new(Schema::new(fields));
    let Some(base) = base else {
        return Ok(TableDefinition {
            schema,
            partition_columns: options.partition_by.clone(),
            cluster_by: options.cluster_by.clone(),
            indexes: options.indexes.clone(),
            id_domains: options.id_domains.clone(),
            primary_key: options.primary_key.clone(),
        });
    };
    if !options.id_domains.is_empty() && options.id_domains != base.id_domains() {
        let has: Vec<String> = base.id_domains().iter().map(ToString::to_string).collect();
        return Err(TableError::Invalid(format!(
            "table `{}` exists with {}; leave --id-domain out, or load into a new table",
            base.table(),
            if has.is_empty() {
                "no id domains".into()
            } else {
                format!("--id-domain {}", has.join(" "))
            }
        )));
    }
    if !options.indexes.is_empty() && options.indexes != base.indexes() {
        return Err(TableError::Invalid(format!(
            "table `{0}` exists with other indexes; leave --index out, and change them with \
             uplake table reindex {0} --index COLUMN",
            base.table()
        )));
    }
    for (flag, asked, has) in [
        ("--partition-by", &options.partition_by, base.partition_columns()),
        ("--cluster-by", &options.cluster_by, base.cluster_by()),
        ("--primary-key", &options.primary_key, base.primary_key()),
    ] {
        if !asked.is_empty() && asked.as_slice() != has {
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            return Err(TableError::Invalid(format!(
                "table `{}` exists with {flag} {has}; leave the option out",
                base.table()
            )));
        }
    }
    Ok(TableDefinition {
        schema,
        partition_columns: base.partition_columns().to_vec(),
        cluster_by: base.cluster_by().to_vec(),
        indexes: base.indexes().to_vec(),
        id_domains: base.id_domains().to_vec(),
        primary_key: base.primary_key().to_vec(),
    })
}

/// The table's columns as they grow while files are opened.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) fields: Vec<Field>,
    added: Vec<String>,
}

impl Columns {
    fn of_table(schema: &Schema, declared: Option<&Schema>) -> Result<Self> {
        for wanted in declared.map(Schema::fields).into_iter().flatten() {
            if let Ok(field) = schema.field_with_name(wanted.name())
                && field.data_type() != wanted.data_type()
            {
                return Err(TableError::Invalid(format!(
                    "--schema says column `{}` is {}, but the table has {}",
                    wanted.name(),
                    type_name(wanted.data_type()),
                    type_name(field.data_type())
                )));
            }
        }
        let fields = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        Ok(Self { fields, added: Vec::new() })
    }

    /// The columns whose types are settled: the table's so far, then what `--schema` declares.
    pub(super) fn hints(&self, declared: Option<&Schema>) -> Option<Schema> {
        let mut fields = self.fields.clone();
        for field in declared.map(Schema::fields).into_iter().flatten() {
            if !fields.iter().any(|f| f.name() == field.name()) {
                fields.push(field.as_ref().clone());
            }
        }
        (!fields.is_empty()).then(|| Schema::new(fields))
    }

    /// A declared column that neither the table nor a file has is a slip of the pen.
    fn check_declared(&self, declared: Option<&Schema>) -> Result<()> {
        let unknown = declared
            .map(Schema::fields)
            .into_iter()
            .flatten()
            .find(|d| !self.fields.iter().any(|f| f.name() == d.name()));
        match unknown {
            None => Ok(()),
            Some(field) => {
                let known: Vec<&str> = self.fields.iter().map(|f| f.name().as_str()).collect();
                Err(TableError::Invalid(format!(
                    "--schema names column `{}`, which no file has; the columns are {}",
                    field.name(),
                    known.join(", ")
                )))
            }
        }
    }

    pub(super) fn merge(
        &mut self,
        file: &str,
        found: &Schema,
        declared: Option<&Schema>,
        may_add: bool,
    ) -> Result<()> {
        let count = found.fields().len();
        if count > MOST_COLUMNS {
            return Err(TableError::Input {
                file: file.to_owned(),
                reason: format!(
                    "has {count} columns, and a table has at most {MOST_COLUMNS}; keys that differ from \
                     record to record belong in a column of values, not in names"
                ),
            });
        }
        for field in found.fields() {
            if let Some(known) = self.fields.iter().find(|f| f.name() == field.name()) {
                if !widens(field.data_type(), known.data_type()) {
                    return Err(TableError::TypeClash {
                        file: file.to_owned(),
                        column: field.name().clone(),
                        found: type_name(field.data_type()),
                        expected: type_name(known.data_type()),
                    });
                }
                continue;
            }
            if !may_add {
                return Err(TableError::NewColumn {
                    file: file.to_owned(),
                    column: field.name().clone(),
                    type_name: type_name(field.data_type()),
                });
            }
            let target = declared.and_then(|s| s.field_with_name(field.name()).ok());
            self.fields.push(target.unwrap_or(field).clone());
            self.added.push(field.name().clone());
        }
        Ok(())
    }
}
