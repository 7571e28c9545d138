//! Reports of several definitions from one version of each table.
//!
//! # Invariants
//! - Each report can fail alone: what is wrong with one definition, or a table that it reads, is no other's business.
//! - All numbers of all reports of one call are from one version of each table, and what several read of a table is
//!   read once.

use uplake_experiment::query::{MomentsQuery, MomentsTable};
use uplake_experiment::report::Reproduce;
use uplake_experiment::{Experiment, Report, alternatives, analyze, plan};

use super::definitions::Definition;
use crate::base::error::Result;
use crate::engine::run::RunOptions;
use crate::engine::session::Session;

const ONE_EACH: &str = "moments are answered query by query";

/// What a report is to have beside what its definition says.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// Dimensions of the definition by which every metric is broken down.
    pub dimensions: Vec<String>,
    /// Only these metrics of the definition; all if there are none.
    pub metrics: Vec<String>,
    /// Experiments by whose arms metrics are broken down, too; the definition's own is left out.
    pub overlap: Vec<Experiment>,
}

/// A definition, and what is to be asked of the tables for its report.
#[derive(Clone, Debug)]
pub struct ReportRequest {
    definition: Definition,
    query: MomentsQuery,
}

impl ReportRequest {
    /// Plans a report; no table is looked at.
    ///
    /// # Errors
    /// [`EngineError::Definition`](crate::EngineError::Definition) for a name that the definition does not have, and
    /// for experiments that cannot be told apart.
    pub fn new(definition: Definition, options: &ReportOptions) -> Result<Self> {
        let experiment = definition.experiment();
        let metrics = (!options.metrics.is_empty()).then_some(options.metrics.as_slice());
        let mut query = plan(experiment, &options.dimensions, metrics)?;
        for other in options.overlap.iter().filter(|other| other.name != experiment.name) {
            query.tell_apart(other)?;
        }
        Ok(Self { definition, query })
    }

    /// What the definition defines.
    pub fn experiment(&self) -> &Experiment {
        self.definition.experiment()
    }

    /// What is asked of the tables.
    pub fn query(&self) -> &MomentsQuery {
        &self.query
    }
}

impl Session {
    /// Makes reports, with everything that a page can switch to, as one statement. They are in the order of the
    /// requests; each can fail alone. The command that makes one again is the caller's to say
    /// ([`Reproduce::command`]).
    ///
    /// Dropping the future stops the statement.
    ///
    /// # Errors
    /// Of each report those of [`Session::moments`], and [`EngineError::Table`](crate::EngineError::Table) if a table
    /// that it reads cannot be read.
    pub async fn report(
        &self,
        requests: &[ReportRequest],
        options: RunOptions,
    ) -> Vec<Result<Report>> {
        let mut tables: Vec<String> = requests.iter().flat_map(|r| r.query.tables()).collect();
        tables.sort();
        tables.dedup();
        let (session, versions, unreadable) = match Box::pin(self.pinned_if_readable(tables)).await
        {
            Ok(pinned) => pinned,
            Err(error) => return requests.iter().map(|_| Err(error.copy())).collect(),
        };
        let problem = |request: &ReportRequest| {
            let read = request.query.tables();
            unreadable.iter().find(|(table, _)| read.contains(table)).map(|(_, error)| error.copy())
        };
        let problems: Vec<_> = requests.iter().map(problem).collect();
        let asked = requests.iter().zip(&problems).filter(|(_, problem)| problem.is_none());
        let queries: Vec<&MomentsQuery> = asked.map(|(request, _)| &request.query).collect();
        let answers = Box::pin(session.moments_together_with(&queries, options)).await;
        let mut answers = answers.into_iter();
        let mut reports = Vec::with_capacity(requests.len());
        for (request, problem) in requests.iter().zip(problems) {
            let moments = match problem {
                Some(error) => Err(error),
                None => answers.next().expect(ONE_EACH),
            };
            reports.push(match moments {
                Ok(moments) => Box::pin(session.report_of(request, &moments, &versions)).await,
                Err(error) => Err(error),
            });
        }
        reports
    }

    /// The report that moments make. `versions`: of all tables that were read.
    async fn report_of(
        &self,
        request: &ReportRequest,
        moments: &MomentsTable,
        versions: &[(String, i64)],
    ) -> Result<Report> {
        let (experiment, query) = (request.experiment(), &request.query);
        let mut report = analyze(experiment, query, moments)?;
        report.alternatives = alternatives(experiment, query, moments)?;
        let read = query.tables();
        report.reproduce = Some(Reproduce {
            command: String::new(),
            definition: request.definition.pinned().to_owned(),
            sql: self.moments_sql(query).await?,
            tables: versions.iter().filter(|(table, _)| read.contains(table)).cloned().collect(),
        });
        Ok(report)
    }
}
