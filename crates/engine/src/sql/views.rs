//! Queries of views in the places where statements name them.
//!
//! # Invariants
//! - Names in a view's query mean what they mean there: a WITH of the statement around it is none of theirs.
//! - What is left of a statement names tables alone, so rights, snapshots and plans are those of the tables.
//!
//! # Not here
//! Which names are views (`engine::views`).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor, VisitMut, VisitorMut,
};

use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;

use crate::base::error::{EngineError, Result};
use crate::sql::words::spelled;

/// What the names of a query mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meaning {
    /// Names of views, by how the query has them.
    pub views: HashMap<String, String>,
    /// Those that are tables of the lake.
    pub tables: HashSet<String>,
}

/// A view that a statement reads.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub name: String,
    /// The statement that makes it, as it is stored.
    pub text: String,
    /// Its query, and the words of it.
    pub body: DfStatement,
    pub tokens: Vec<TokenWithSpan>,
    pub meaning: Meaning,
}

/// The views of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    /// Each behind those that it reads.
    pub all: Vec<View>,
    pub meaning: Meaning,
    /// The catalog and schema of tables.
    pub place: [&'static str; 2],
}

/// Times that queries of views may be put into a statement: one that reads another twice, and so on, doubles.
const MOST_VIEWS: usize = 1000;

/// The statement with the queries of its views, each as `body_of` has it.
pub(crate) fn expanded(
    mut parsed: DfStatement,
    views: &Views,
    body_of: impl Fn(&View) -> Result<DfStatement>,
) -> Result<DfStatement> {
    let (mut bodies, mut counts) = (HashMap::new(), HashMap::<&str, usize>::new());
    for view in &views.all {
        let mut body = body_of(view)?;
        let mut placer = Placer::new(views.place, &bodies, &view.meaning);
        placer.counts = counts.clone();
        placer.qualifies = true;
        placer.place(&mut body)?;
        let count = 1 + placer.placed;
        if let DfStatement::Statement(inner) = body
            && let ast::Statement::Query(query) = *inner
        {
            counts.insert(&view.name, count);
            bodies.insert(view.name.clone(), *query);
        }
    }
    let mut placer = Placer::new(views.place, &bodies, &views.meaning);
    placer.counts = counts;
    placer.place(&mut parsed)?;
    Ok(parsed)
}

struct Placer<'a> {
    lake: [&'static str; 2],
    bodies: &'a HashMap<String, ast::Query>,
    meaning: &'a Meaning,
    /// How many queries each view stands for.
    counts: HashMap<&'a str, usize>,
    placed: usize,
    /// Are names of tables written with their schema?
    qualifies: bool,
    /// Names of WITH around this place.
    names: Vec<HashSet<String>>,
    /// What is taken out while its query is visited: it is visited before.
    withs: Vec<Option<ast::With>>,
}

impl<'a> Placer<'a> {
    fn new(
        lake: [&'static str; 2],
        bodies: &'a HashMap<String, ast::Query>,
        meaning: &'a Meaning,
    ) -> Self {
        let (names, withs, counts) = (Vec::new(), Vec::new(), HashMap::new());
        Self { lake, bodies, meaning, counts, placed: 0, qualifies: false, names, withs }
    }

    fn place(&mut self, parsed: &mut DfStatement) -> Result<()> {
        let visited = match parsed {
            DfStatement::Statement(inner) => inner.as_mut().visit(self),
            DfStatement::Explain(explain) => return self.place(&mut explain.statement),
            DfStatement::CopyTo(copy) => match &mut copy.source {
                CopyToSource::Query(query) => query.as_mut().visit(self),
                CopyToSource::Relation(name) => {
                    let body = self.called(name).and_then(|(called, _)| self.body(&called));
                    if let Some(body) = body.cloned() {
                        copy.source = CopyToSource::Query(Box::new(body));
                    }
                    ControlFlow::Continue(())
                }
            },
            _ => ControlFlow::Continue(()),
        };
        match visited {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn body(&self, called: &str) -> Option<&'a ast::Query> {
        self.bodies.get(self.meaning.views.get(called)?)
    }

    /// What a name of the lake's schema calls, and whether it stands alone.
    fn called(&self, name: &ObjectName) -> Option<(String, bool)> {
        let parts: Option<Vec<String>> =
            name.0.iter().map(|part| part.as_ident().map(spelled)).collect();
        let mut parts = parts?;
        let called = parts.pop()?;
        let within = self.lake.iter().skip(self.lake.len().checked_sub(parts.len())?);
        within.eq(parts.iter()).then_some((called, parts.is_empty()))
    }

    /// The query that is visited has a WITH of that name.
    fn know(&mut self, name: &str) {
        if let Some(names) = self.names.last_mut() {
            names.insert(name.to_owned());
        }
    }

    fn is_of_with(&self, called: &str) -> bool {
        self.names.iter().any(|names| names.contains(called))
    }
}

impl VisitorMut for Placer<'_> {
    type Break = EngineError;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<EngineError> {
        self.names.push(HashSet::new());
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            for cte in &mut with.cte_tables {
                let name = spelled(&cte.alias.name);
                // One that reads itself knows its name.
                if with.recursive {
                    self.know(&name);
                }
                cte.query.visit(self)?;
                self.know(&name);
            }
        }
        self.withs.push(with);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<EngineError> {
        query.with = self.withs.pop().flatten();
        self.names.pop();
        ControlFlow::Continue(())
    }

    // After what is within: the query of a view is done.
    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<EngineError> {
        let TableFactor::Table { name, alias, args: None, .. } = table else {
            return ControlFlow::Continue(());
        };
        let Some((called, is_alone)) = self.called(name) else {
            return ControlFlow::Continue(());
        };
        if is_alone && self.is_of_with(&called) {
            return ControlFlow::Continue(());
        }
        let own =
            || TableAlias { explicit: true, name: quoted(&called), columns: Vec::new(), at: None };
        if let Some(body) = self.body(&called) {
            let view = self.meaning.views.get(&called).map_or("", String::as_str);
            self.placed += self.counts.get(view).copied().unwrap_or(1);
            if self.placed > MOST_VIEWS {
                let error = EngineError::unsupported(format!(
                    "more than {MOST_VIEWS} queries of views in one statement"
                ));
                let hint = "CREATE TABLE AS of those that are read most often";
                return ControlFlow::Break(error.with_hint(hint));
            }
            let alias = Some(alias.take().unwrap_or_else(own));
            let subquery = Box::new(body.clone());
            *table = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        } else if self.qualifies && is_alone && self.meaning.tables.contains(&called) {
            alias.get_or_insert_with(own);
            let parts = self.lake.iter().copied().chain([called.as_str()]);
            let parts = parts.map(|part| ObjectNamePart::Identifier(quoted(part)));
            *name = ObjectName(parts.collect());
        }
        ControlFlow::Continue(())
    }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}
