//! Questions of reports as bytes, for who computes their cells for some of the users.
//!
//! # Invariants
//! - Bytes are given out only if reading them makes the same questions.
//! - What is read may be anything: it is refused if it is not as it was written.

use chrono::{DateTime, Utc};
use datafusion::common::{Result, plan_datafusion_err};
use uplake_experiment::query::MomentsQuery;

use crate::portable::bytes::{Reader, Writer};

/// What is asked about the users of one id domain.
#[derive(Debug, PartialEq)]
pub(crate) struct SentQuestions {
    /// The domain and log.
    pub source: String,
    pub questions: Vec<SentQuestion>,
}

/// What is asked of one experiment, and what its coordinator has found out of all users.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SentQuestion {
    pub query: MomentsQuery,
    /// Per column the most a number can be.
    pub caps: Vec<f64>,
    /// Up to when the data are known, if that matters.
    pub observed: Option<DateTime<Utc>>,
}

impl SentQuestions {
    /// The questions; `None` if they do not travel. The domain goes with what stands before them.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut to = Writer::default();
        to.number(self.questions.len() as u64);
        for SentQuestion { query, caps, observed } in &self.questions {
            to.bytes(&query.to_bytes()?);
            to.floats(caps);
            to.flag(observed.is_some());
            if let Some(observed) = observed {
                to.number(observed.timestamp() as u64);
                to.number(observed.timestamp_subsec_nanos().into());
            }
        }
        let read = Self::read(vec![self.source.clone()], &to.0).ok()?;
        (read == *self).then_some(to.0)
    }

    /// # Errors
    /// Bytes that are of none.
    pub fn read(domains: Vec<String>, bytes: &[u8]) -> Result<Self> {
        let [source] = <[String; 1]>::try_from(domains).map_err(|_| damaged())?;
        let mut from = Reader::new(bytes);
        let mut questions = Vec::new();
        for _ in 0..from.count()? {
            let query = MomentsQuery::from_bytes(from.bytes()?).ok_or_else(damaged)?;
            let caps = from.floats()?;
            let observed = match from.flag()? {
                true => {
                    let (seconds, nanos) = (from.number()? as i64, from.number()?);
                    let nanos = u32::try_from(nanos).map_err(|_| damaged())?;
                    Some(DateTime::from_timestamp(seconds, nanos).ok_or_else(damaged)?)
                }
                false => None,
            };
            if caps.len() != query.columns.len() {
                return Err(damaged());
            }
            questions.push(SentQuestion { query, caps, observed });
        }
        if from.is_at_end() { Ok(Self { source, questions }) } else { Err(damaged()) }
    }
}

fn damaged() -> datafusion::common::DataFusionError {
    plan_datafusion_err!("the questions of a report are damaged")
}

#[cfg(test)]
mod tests {
    use uplake_experiment::{Experiment, plan};

    use super::*;

    /// Everything that a question can have.
    const DEFINITION: &str = r#"
name = "t"
start = "2026-10-12"
end = "2026-11-09T12:00:00"
time_zone = "Europe/Berlin"
observed_until = "2026-11-05"
in_progress = "exclude"
days_since_exposure = 3
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "n < 10"
exclude = [{ table = "bots", where = "score > 0.1" }]
[assignment]
system = "growthbook"
seed = "s"
[[variant]]
name = "ä"
share = 0.5
control = true
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
window = { from = "1 day", to = "3 days" }
cap = "99 %"
[[metric]]
name = "price"
type = "ratio"
table = "events"
numerator = { value = "amount", where = "event = 'buy'" }
denominator = { value = "1" }
[[metric]]
name = "median"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
[[metric]]
name = "log"
type = "mean"
table = "events"
value = "amount"
transform = "log1p"
cap = 40.25
[[metric]]
name = "way"
type = "funnel"
table = "events"
window = "6 days"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = "event = 'buy'" }]
[[path]]
name = "to payment"
table = "events"
event = "event"
from = "event = 'open'"
to = "event = 'pay'"
[[dimension]]
name = "size"
sql = "upper(plan)"
"#;

    fn query() -> MomentsQuery {
        let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
        let mut query = plan(&experiment, &["size".to_owned()], None).unwrap();
        let other = DEFINITION.replace("name = \"t\"", "name = \"other\"");
        query.tell_apart(&Experiment::parse(&other, "t.toml").unwrap()).unwrap();
        query
    }

    fn questions() -> SentQuestions {
        let (all, some) = (query(), query().of_metrics(&[0, 1]));
        let caps = |query: &MomentsQuery, cap: f64| vec![cap; query.columns.len()];
        let question = |query: MomentsQuery, cap: f64, observed| SentQuestion {
            caps: caps(&query, cap),
            query,
            observed,
        };
        let observed = DateTime::from_timestamp(-7, 999_999_999);
        let questions = vec![question(all, f64::INFINITY, observed), question(some, -0.1, None)];
        SentQuestions { source: "users:1".into(), questions }
    }

    fn read(bytes: &[u8]) -> Result<SentQuestions> {
        SentQuestions::read(vec!["users:1".into()], bytes)
    }

    #[test]
    fn questions_arrive_as_they_were() {
        let asked = questions();
        let query = &asked.questions[0].query;
        let has = (query.since.is_empty(), query.paths.is_empty(), query.others.is_empty());
        assert_eq!(has, (false, false, false));
        assert!(query.quantiles.len() == 1 && query.observed_until.is_some());
        assert_eq!(read(&asked.to_bytes().unwrap()).unwrap(), asked);
        let none = SentQuestions { source: "users:1".into(), questions: Vec::new() };
        assert_eq!(read(&none.to_bytes().unwrap()).unwrap(), none);
        // What it would be read as is something else.
        let mut changed = questions();
        changed.questions[0].caps[0] = f64::NAN;
        assert!(changed.to_bytes().is_none());
        changed = questions();
        changed.questions[1].query.columns[0].at_least = Some(f64::NAN);
        assert!(changed.to_bytes().is_none());
    }

    /// Bytes that are anything: an error, or questions that hold together.
    #[test]
    fn damaged_questions_are_refused_or_hold_together() {
        let asked = questions();
        let bytes = asked.to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut off after {end}");
        }
        assert!(read(&[bytes.as_slice(), &[0]].concat()).is_err(), "longer");
        let mut refused = 0;
        for place in 0..bytes.len() {
            for flip in [0x01, 0x10, 0x80] {
                let mut other = bytes.clone();
                other[place] ^= flip;
                match read(&other) {
                    // The name of what is not there may be damaged: then they are the same.
                    Ok(read_as) => {
                        if let Some(again) = read_as.to_bytes() {
                            assert_eq!(read(&again).unwrap(), read_as, "{place} {flip}");
                        }
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        // A text of JSON has no byte of 0x80 alone, and names are those that there are.
        assert!(refused > bytes.len(), "{refused} of {}", bytes.len());
    }

    #[test]
    fn counts_that_nothing_follows_take_no_memory() {
        let of = |write: &dyn Fn(&mut Writer)| {
            let mut to = Writer::default();
            write(&mut to);
            to.0
        };
        let query = query().to_bytes().unwrap();
        for count in [1 << 20, 1 << 40, u64::MAX] {
            assert!(read(&of(&|to| to.number(count))).is_err(), "{count} questions");
            let of_query = of(&|to| {
                to.number(1);
                to.number(count);
                to.0.extend_from_slice(&query);
            });
            assert!(read(&of_query).is_err(), "a query of {count} bytes");
            let of_caps = of(&|to| {
                to.number(1);
                to.bytes(&query);
                to.number(count);
                to.float(1.0);
            });
            assert!(read(&of_caps).is_err(), "{count} caps");
        }
        let deep = ["[".repeat(100_000), "{\"exposures\":".repeat(100_000)];
        for deep in deep {
            let bytes = of(&|to| {
                to.number(1);
                to.bytes(deep.as_bytes());
                to.number(0);
                to.flag(false);
            });
            assert!(read(&bytes).is_err());
        }
    }

    /// Caps of other columns, and times that are none.
    #[test]
    fn questions_that_do_not_hold_together_are_refused() {
        let mut asked = questions();
        asked.questions[0].caps.pop();
        assert!(asked.to_bytes().is_none(), "a cap is missing");
        let query = query().of_metrics(&[]).to_bytes().unwrap();
        let at = |seconds: u64, nanos: u64| {
            let mut to = Writer::default();
            to.number(1);
            to.bytes(&query);
            to.floats(&[]);
            to.flag(true);
            to.number(seconds);
            to.number(nanos);
            to.0
        };
        assert!(read(&at(0, 0)).is_ok());
        for (seconds, nanos) in [(u64::MAX / 2, 0), (0, u64::MAX), (0, 2_000_000_000)] {
            assert!(read(&at(seconds, nanos)).is_err(), "{seconds} {nanos}");
        }
        assert!(SentQuestions::read(Vec::new(), &at(0, 0)).is_err(), "of no domain");
    }
}
