//! Parse, Bind, Describe, Execute and Close: a statement that is planned once and run with values.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete,
    PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;
use uplake_engine::Prepared;

use crate::access_sql::token_columns;
use crate::catalog::{catalog_parameters, rewrite};
use crate::failure::Failure;
use crate::pg::commands::Command;
use crate::pg::connection::{Connection, Kind, MOST_STATEMENTS, Parsed, Portal, Table, located};
use crate::pg::encoders::Form;
use crate::pg::own::{self, Own};
use crate::pg::rows::{Ask, Begun, description, named};
use crate::pg::simple::split;
use crate::pg::tags::tag;
use crate::pg::wire::Step;
use crate::pg::{params, types};

fn no_statement(name: &str) -> Failure {
    Failure::new("26000", format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> Failure {
    Failure::new("34000", format!("portal \"{name}\" does not exist"))
}

impl Connection {
    /// # Errors
    /// Those of the statement, with places in its text.
    pub async fn parse(&mut self, parse: Parse) -> Step {
        let name = parse.name.unwrap_or_default();
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::new("42P05", message).into());
        }
        if self.statements.len() >= MOST_STATEMENTS {
            let message = format!("a connection has at most {MOST_STATEMENTS} prepared statements");
            return Err(Failure::new("54000", message).with_hint("DEALLOCATE some").into());
        }
        let text = parse.query;
        let parts = split(&text).map_err(|failure| located(failure, &text, 0))?;
        let (at, part) = match parts.as_slice() {
            [] => (0, ""),
            [one] => *one,
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(Failure::new("42601", message).into());
            }
        };
        let command = Command::of(part).map_err(|failure| located(failure, &text, at))?;
        self.check(&command)?;
        let mut oids = parse.type_oids;
        let kind = match command {
            Command::Engine => {
                let planned = self.prepare(part, &oids).await;
                planned.map_err(|stop| stop.map(|failure| located(failure, &text, at)))?
            }
            Command::Declare { name, query, query_at } => {
                let planned = self.prepare(&query, &oids).await;
                let place = |failure| located(failure, &text, at + query_at);
                match planned.map_err(|stop| stop.map(place))? {
                    Kind::Prepared(query) if query.statement().command() == "SELECT" => {
                        Kind::Cursor(name, query)
                    }
                    _ => return Err(own::no_query().into()),
                }
            }
            // What the connection has no answer for is the engine's.
            Command::Show(name) if !crate::pg::session::Settings::knows(&name) => Kind::Text,
            command => Kind::Own(command),
        };
        let inferred = match &kind {
            Kind::Prepared(prepared) | Kind::Cursor(_, prepared) => prepared.types(),
            _ => &[],
        };
        oids.resize(oids.len().max(inferred.len()), 0);
        for (place, of_catalog) in catalog_parameters(part) {
            let unsaid = |oid: &&mut u32| matches!(**oid, 0 | types::UNKNOWN);
            if let Some(oid) = oids.get_mut(place).filter(unsaid) {
                *oid = of_catalog;
            }
        }
        for (oid, inferred) in oids.iter_mut().zip(inferred) {
            if matches!(*oid, 0 | types::UNKNOWN) {
                *oid = inferred.as_ref().map_or(types::TEXT, |inferred| types::of(inferred).oid);
            }
        }
        for oid in &mut oids {
            if *oid == 0 {
                *oid = types::TEXT;
            }
        }
        let parsed = Parsed { text: part.to_owned(), kind, oids };
        self.statements.insert(name, Arc::new(parsed));
        self.wire.put(&ParseComplete::new());
        Ok(())
    }

    async fn prepare(&mut self, part: &str, oids: &[u32]) -> Step<Kind> {
        let session = self.session_of(part)?;
        let text = part.to_owned();
        let said: Vec<Option<DataType>> = oids.iter().map(|oid| types::arrow_type(*oid)).collect();
        let plan = async move {
            let missing = || Failure::new("42601", "there is no statement");
            let statement = uplake_engine::parse(&rewrite(&text))?.pop().ok_or_else(missing)?;
            if !statement.can_be_prepared() {
                return Ok(Kind::Text);
            }
            let prepared = session.prepare_typed(&statement, &said).await?;
            Ok(Kind::Prepared(Box::new(prepared)))
        };
        self.plan(part, Box::pin(plan)).await
    }

    /// # Errors
    /// 26000, 34000, 08P01 and those of values.
    pub fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let name = bind.statement_name.unwrap_or_default();
        let parsed = self.statements.get(&name).cloned().ok_or_else(|| no_statement(&name))?;
        let portal = bind.portal_name.unwrap_or_default();
        if portal.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&portal) {
            return Err(Failure::new("42P03", format!("portal \"{portal}\" already exists")));
        }
        self.check_portals()?;
        let (given, wanted) = (bind.parameters.len(), parsed.oids.len());
        if given != wanted {
            let message = format!(
                "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {wanted}"
            );
            return Err(Failure::new("08P01", message));
        }
        let formats = &bind.parameter_format_codes;
        if formats.len() > 1 && formats.len() != given {
            let formats = formats.len();
            let message =
                format!("bind message has {formats} parameter formats but {given} parameters");
            return Err(Failure::new("08P01", message));
        }
        let format = |at: usize| match formats.as_slice() {
            [] => 0,
            [all] => *all,
            each => each[at],
        };
        let mut schema = None;
        let ask = match &parsed.kind {
            Kind::Own(_) => None,
            Kind::Text => {
                schema = token_columns(&parsed.text);
                Some(Ask::Text(parsed.text.clone()))
            }
            Kind::Prepared(prepared) | Kind::Cursor(_, prepared) => {
                let values = bind.parameters.iter().enumerate().map(|(at, value)| {
                    let data_type = type_of(prepared, &parsed.oids, at);
                    let decode = |data_type: &DataType| {
                        params::decode(value.as_deref(), format(at), data_type, parsed.oids[at])
                    };
                    // A `numeric` has digits of its own, whatever it is compared with.
                    let decoded =
                        decode(&data_type).or_else(|error| match data_type.is_decimal() {
                            true => decode(&types::WIDEST_DECIMAL).map_err(|_| error),
                            false => Err(error),
                        });
                    decoded.map_err(|error| {
                        Failure::new(error.code(), format!("${}: {error}", at + 1))
                    })
                });
                let values = values.collect::<Result<Vec<_>, _>>()?;
                // Of a cursor the client hears when it fetches.
                schema = matches!(parsed.kind, Kind::Prepared(_))
                    .then(|| named(prepared.statement(), prepared.schema()));
                Some(Ask::Bound(Box::new(prepared.bind(&values)?)))
            }
        };
        let made = Portal {
            text: parsed.text.clone(),
            kind: parsed.kind.clone(),
            ask,
            formats: bind.result_column_format_codes,
            schema,
            rows: None,
            is_over: false,
        };
        self.portals.insert(portal, made);
        self.wire.put(&BindComplete::new());
        Ok(())
    }

    /// # Errors
    /// 26000 and 34000; those of a statement that must run to be described.
    pub async fn describe(&mut self, describe: Describe) -> Step {
        let name = describe.name.unwrap_or_default();
        if describe.target_type == b'S' {
            let parsed = self.statements.get(&name).cloned().ok_or_else(|| no_statement(&name))?;
            self.wire.put(&ParameterDescription::new(parsed.oids.clone()));
            match &parsed.kind {
                Kind::Prepared(prepared) => {
                    let schema = named(prepared.statement(), prepared.schema());
                    self.put_description(&schema, &[]);
                }
                Kind::Own(command) => self.describe_own(command, &[]),
                Kind::Text if is_shown(&parsed.text) => {
                    // It changes nothing, so it is run to see.
                    let ask = Ask::Text(parsed.text.clone());
                    match self.begin(&parsed.text, ask, Form::Rows(Vec::new())).await? {
                        Begun::Rows(rows) => self.put_description(&rows.schema, &[]),
                        Begun::Done { .. } => self.wire.put(&NoData::new()),
                    }
                }
                Kind::Text => match token_columns(&parsed.text) {
                    Some(schema) => self.put_description(&schema, &[]),
                    None => self.wire.put(&NoData::new()),
                },
                Kind::Cursor(..) => self.wire.put(&NoData::new()),
            }
            return Ok(());
        }
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        if matches!(portal.kind, Kind::Text)
            && is_shown(&portal.text)
            && let Some(ask) = portal.ask.take()
        {
            let form = Form::Rows(portal.formats.clone());
            if let Begun::Rows(rows) = self.begin(&portal.text, ask, form).await? {
                portal.schema = Some(Arc::clone(&rows.schema));
                portal.rows = Some(rows);
            }
        }
        match (&portal.schema, &portal.kind) {
            (Some(schema), _) => self.put_description(schema, &portal.formats),
            (None, Kind::Own(command)) => self.describe_own(command, &portal.formats),
            (None, _) => self.wire.put(&NoData::new()),
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    fn put_description(&mut self, schema: &Schema, formats: &[i16]) {
        match schema.fields().is_empty() {
            true => self.wire.put(&NoData::new()),
            false => self.wire.put(&description(schema, formats)),
        }
    }

    fn describe_own(&mut self, command: &Command, formats: &[i16]) {
        if let Command::Fetch { cursor, moves: false, .. } = command
            && let Some(portal) = self.portals.get(cursor)
            && let Some(schema) = portal.schema.clone()
        {
            let begun = portal.rows.is_some() || portal.is_over;
            let formats = if begun { portal.formats.clone() } else { formats.to_vec() };
            return self.put_description(&schema, &formats);
        }
        match own::columns(command) {
            Some(columns) => self.wire.put(&Table::description(&columns, formats)),
            None => self.wire.put(&NoData::new()),
        }
    }

    /// # Errors
    /// 34000 and those of the statement.
    pub async fn execute(&mut self, execute: Execute) -> Step {
        self.over = None;
        let name = execute.name.unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let most = u64::try_from(execute.max_rows).ok().filter(|most| *most > 0);
        if let Kind::Own(command) = &portal.kind {
            let command = command.clone();
            self.execute_own(command, &portal).await?;
            return Ok(());
        }
        self.transaction.check()?;
        if let Kind::Cursor(cursor, query) = &portal.kind {
            self.check_cursor(cursor)?;
            let ask = portal.ask.take().ok_or_else(|| no_portal(&name))?;
            let schema = named(query.statement(), query.schema());
            self.put_cursor(cursor.clone(), query.statement().text.clone(), ask, schema);
            self.complete("DECLARE CURSOR");
            return Ok(());
        }
        if let Some(ask) = portal.ask.take() {
            let form = Form::Rows(portal.formats.clone());
            match self.begin(&portal.text, ask, form).await? {
                Begun::Done { command, rows } => {
                    self.complete(tag(command, rows));
                    self.warnings();
                    return Ok(());
                }
                Begun::Rows(rows) => {
                    if let Some(schema) = &portal.schema {
                        same_types(schema, &rows.schema)?;
                    }
                    portal.rows = Some(rows);
                }
            }
        }
        match portal.rows.as_deref_mut().filter(|_| !portal.is_over) {
            None => self.complete("SELECT 0"),
            Some(rows) => {
                let (sent, is_over) = self.send(rows, most.unwrap_or(u64::MAX)).await?;
                match is_over {
                    true => self.complete(tag(rows.command, Some(sent))),
                    false => self.wire.put(&PortalSuspended::new()),
                }
                portal.is_over = is_over;
            }
        }
        if portal.is_over {
            self.over = portal.rows.take();
        }
        self.warnings();
        self.portals.insert(name, portal);
        Ok(())
    }

    async fn execute_own(&mut self, command: Command, portal: &Portal) -> Step {
        self.check(&command)?;
        match command {
            Command::Empty => self.wire.put(&EmptyQueryResponse::new()),
            Command::Copy(copy) => {
                let tag = Box::pin(self.copy(copy, &portal.text)).await?;
                self.complete(tag);
            }
            Command::Fetch { cursor, rows, moves } => {
                let count = self.fetch(&cursor, rows, moves, Some(&portal.formats)).await?;
                let word = if moves { "MOVE" } else { "FETCH" };
                self.complete(format!("{word} {count}"));
            }
            command => match Box::pin(self.own(command, &portal.text)).await? {
                Own::Tag(tag) => self.complete(tag),
                Own::Rows(table, tag) => {
                    self.put_rows(&table);
                    self.complete(tag);
                }
                Own::Engine => {
                    let ask = Ask::Text(portal.text.clone());
                    match self.begin(&portal.text, ask, Form::Rows(Vec::new())).await? {
                        Begun::Done { command, rows } => self.complete(tag(command, rows)),
                        Begun::Rows(rows) => self.complete(tag(rows.command, Some(0))),
                    }
                }
            },
        }
        Ok(())
    }

    pub fn close(&mut self, close: Close) {
        let name = close.name.unwrap_or_default();
        match close.target_type {
            b'S' => drop(self.statements.remove(&name)),
            _ => drop(self.portals.remove(&name)),
        }
        self.wire.put(&CloseComplete::new());
    }
}

/// The type of a parameter's value: what the client said, but decimals and lists as the statement has them.
fn type_of(prepared: &Prepared, oids: &[u32], at: usize) -> DataType {
    let inferred = prepared.types().get(at).cloned().flatten();
    let oid = oids[at];
    match inferred {
        Some(inferred) if types::of(&inferred).oid == oid => inferred,
        // Elements are read as the client said, and fitted.
        Some(inferred)
            if types::element(&inferred).is_some() && types::element_oid(oid).is_some() =>
        {
            inferred
        }
        _ => types::arrow_type(oid).unwrap_or(DataType::Null),
    }
}

/// SHOW, DESCRIBE and EXECUTE answer with rows that are known when they are run.
fn is_shown(text: &str) -> bool {
    let text = text.trim_start();
    let is =
        |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    ["show", "describe", "desc", "execute", "explain"].iter().any(|word| is(word))
}

/// Are these the columns that the client was told of?
fn same_types(told: &Schema, found: &Schema) -> Result<(), Failure> {
    let oid = |data_type: &DataType| types::of(data_type).oid;
    let same = told.fields().len() == found.fields().len()
        && told
            .fields()
            .iter()
            .zip(found.fields())
            .all(|(told, found)| oid(told.data_type()) == oid(found.data_type()));
    if same {
        return Ok(());
    }
    Err(Failure::new("0A000", "cached plan must not change result type").with_hint(
        "prepare the statement again, and cast parameters whose type nothing says: $1::BIGINT",
    ))
}
