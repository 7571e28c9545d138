//! What a report says, apart from how it looks.
//!
//! # Invariants
//! - Every number is finite or absent; an absent one comes with its reason.
//! - The same inputs give the same report, and each renderer the same bytes.
//!
//! # Not here
//! No computing (`analyze`), no layout (`text`, `html`).

use serde::Serialize;

use crate::definition::{About, Direction};
pub use crate::effect::Scale;
use crate::effect::{Estimate, Pivot, StatsError};
use crate::left_out::{NoExposures, Unmatched};
use crate::paths::{ConversionTime, PathReport};

/// Name and version of the JSON layout. The number grows when a reader would break.
pub const SCHEMA: &str = "uplake.report/1";

/// One experiment's results at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    pub experiment: String,
    pub hypothesis: Option<String>,
    /// First instant counted and first not counted, local to `time_zone`.
    pub period: Option<[String; 2]>,
    pub time_zone: String,
    /// Two-sided error rate. Intervals cover it alone or as a family: [`Comparison::interval_alpha`].
    pub alpha: f64,
    /// "fixed": look once, at the end. "anytime": intervals and p-values hold at every look.
    /// "group_sequential": they hold at the planned looks. "bayesian": beliefs.
    pub inference: &'static str,
    /// "holm", "benjamini-hochberg" or "none": how goals are corrected for their number.
    pub correction: &'static str,
    /// What p-values test.
    pub p_tests: PTests,
    /// What was assigned to arms: "users", "clusters" or "region-times".
    pub unit: &'static str,
    /// How the numbers were made, one sentence each.
    pub method: Vec<String>,
    pub arms: Vec<Arm>,
    pub progress: Progress,
    pub health: Health,
    pub verdict: Verdict,
    /// The one of [`Report::metrics`] that leads: the first primary one.
    pub primary: usize,
    pub metrics: Vec<MetricReport>,
    pub breakdowns: Vec<Breakdown>,
    /// Other experiments that the users are in, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<Overlap>,
    pub funnels: Vec<Funnel>,
    /// Absent if none is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
    /// Users first exposed per local day, one count per arm; empty without exposure times.
    pub first_exposures: Vec<Day>,
    /// Days of the cumulative series of metrics, "2026-11-01"; empty without a period.
    pub days: Vec<String>,
    /// Up to when the data are known, local; absent if no metric's window has an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_until: Option<String>,
    /// How to make this report again; absent until the command says.
    pub reproduce: Option<Reproduce>,
    /// The same data judged otherwise, for the switches of the page.
    #[serde(skip)]
    pub alternatives: Vec<Alternative>,
}

/// What p-values test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PTests {
    /// The difference is 0; on either scale.
    Difference,
    /// The effect on the scale beside it is 0.
    ShownEffect,
    /// Nothing: twice the smaller tail of the belief.
    Belief,
}

/// What it takes to make a report again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reproduce {
    pub command: String,
    /// The definition's text.
    pub definition: String,
    /// SQL that gives the numbers per user.
    pub sql: String,
    /// Tables read and their versions.
    pub tables: Vec<(String, i64)>,
}

/// All comparisons under another choice of a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// Arm compared with.
    pub baseline: usize,
    /// With what CUPED subtracts.
    pub cuped: bool,
    /// Intervals and p-values hold at every look.
    pub anytime: bool,
    /// Per metric, in the order of [`Report::metrics`].
    pub comparisons: Vec<Vec<Comparison>>,
}

/// Steps in order; each is a metric of its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Funnel {
    pub name: String,
    pub steps: Vec<FunnelStep>,
    /// Per arm; absent if not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion_time: Option<Vec<ConversionTime>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunnelStep {
    pub name: String,
    /// Index into [`Report::metrics`].
    pub metric: usize,
}

/// One arm and its users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    pub name: String,
    pub control: bool,
    /// Planned share of users.
    pub planned_share: f64,
    pub users: u64,
    /// Units of randomness: users, clusters or region-times.
    pub units: u64,
    /// Observed share of units, absent if there are none at all.
    pub share: Option<f64>,
}

impl Arm {
    /// Its name does not say that it is the control.
    pub(crate) fn is_control_by_another_name(&self) -> bool {
        self.control && !self.name.to_lowercase().contains("control")
    }
}

/// How far the experiment is, by what the data hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// The last day with data, counted from the period's first, which is 1; absent without a period
    /// or without days.
    pub day: Option<u32>,
    /// Days that the period touches.
    pub days: Option<u32>,
    /// Of all arms.
    pub users: u64,
    pub planned_users: Option<u64>,
}

/// Can the numbers be trusted?
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    pub sample_ratio: SampleRatioCheck,
    /// Left out of every number.
    pub users_in_many_variants: u64,
    pub unknown_variants: Vec<UnknownVariant>,
    /// Values of the breakdown's dimension whose own sample ratio is off, after dividing the
    /// alarm level by the number of values.
    pub sample_ratio_alarms: Vec<DimensionAlarm>,
    /// Days on which the sample ratio of those first exposed is off, after dividing the alarm
    /// level by the number of days.
    pub sample_ratio_days: Vec<DimensionAlarm>,
    /// Were the arms alike before exposure? Only metrics with CUPED read that time.
    pub balance: Balance,
    /// Days within the period and before the data end on which a metric's table has no row of an
    /// exposed user, or nobody was exposed although others came before and after.
    pub missing_days: Vec<MissingDay>,
    /// Users whose arm is not the one the definition's assignment gives.
    pub users_assigned_otherwise: Option<u64>,
    /// As in [`crate::left_out::LeftOut`].
    pub exposures_without_user: u64,
    pub exposures_without_time: u64,
    pub users_exposed_before: Option<u64>,
    pub no_exposures: Option<NoExposures>,
    /// Conditions of metrics that no row of their table passes.
    pub unmatched: Vec<Unmatched>,
    /// Where exposures are, for words.
    #[serde(skip)]
    pub exposures: String,
    /// Users whom the definition excludes, in its order; each is counted by the first that does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ExcludedUsers>,
    /// Of a triggered analysis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationCheck>,
}

/// Users left out because they are in a holdout or another experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExcludedUsers {
    pub table: String,
    /// The SQL of `where`.
    #[serde(rename = "where")]
    pub filter: Option<String>,
    pub users: u64,
}

/// Were users of all arms activated alike? Otherwise the treatment moved who is activated, and those who
/// are do not compare.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActivationCheck {
    /// Users exposed, in the order of `arms`.
    pub exposed: Vec<u64>,
    /// Those of them who were activated.
    pub activated: Vec<u64>,
    /// Pearson's test that the share activated is the same in all arms; absent if it is 0 or 1.
    pub independence: Option<Independence>,
    /// Its p below 0.001: effects cannot be trusted. The alarm of the sample ratio is then one, too.
    pub alarm: bool,
}

impl ActivationCheck {
    /// Share of exposed users who were activated, all arms together; absent without users.
    pub fn rate(&self) -> Option<f64> {
        let exposed: u64 = self.exposed.iter().sum();
        (exposed > 0).then(|| self.activated.iter().sum::<u64>() as f64 / exposed as f64)
    }
}

/// Pearson's chi-squared test that rows and columns of a table of counts do not depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Independence {
    pub chi_square: f64,
    pub df: u32,
    pub p: f64,
}

/// What users of this experiment are in another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overlap {
    /// The other's name.
    pub experiment: String,
    /// The dimension of the breakdown by its arms.
    pub dimension: String,
    /// The other's arms.
    pub arms: Vec<String>,
    /// Index of its control.
    pub control: usize,
    /// Users of this experiment per arm of the other, and then per arm of this.
    pub users: Vec<Vec<u64>>,
    /// Likewise who are in several arms of the other, and who are in none.
    pub several: Vec<u64>,
    pub not_there: Vec<u64>,
    /// Do arms of one depend on those of the other? Absent if either has users in one arm only, and of
    /// clusters, whose users come together.
    pub arms_independent: Option<Independence>,
    /// Does being in the other depend on the arm of this?
    pub presence_independent: Option<Independence>,
    /// Either p is below 0.001: effects of one are mixed with those of the other.
    pub alarm: bool,
    /// Per metric, treatment arm of this and treatment arm of the other.
    pub interactions: Vec<Interaction>,
}

impl Overlap {
    /// Users who are in one arm of each.
    pub fn users_in_both(&self) -> u64 {
        self.users.iter().flatten().sum()
    }
}

/// How much an effect of this experiment differs between users of an arm of the other and users of the
/// other's control: the difference of two differences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interaction {
    pub metric: String,
    /// Index into `arms`.
    pub arm: usize,
    /// Index into the other's arms.
    pub other_arm: usize,
    #[serde(serialize_with = "outcome")]
    pub difference: Result<Estimate, StatsError>,
    /// By Holm's method over all interactions of the report; absent without an estimate.
    pub p_adjusted: Option<f64>,
}

/// A day without data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingDay {
    pub table: String,
    pub day: String,
}

/// Comparisons of the time before exposure, where no effect can be.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Balance {
    /// Comparisons made.
    pub checks: usize,
    /// Those with p below 0.001 divided by the number of checks.
    pub alarms: Vec<Imbalance>,
}

/// A metric that differed between arms before anyone was exposed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imbalance {
    pub metric: String,
    /// Index into `arms`.
    pub arm: usize,
    pub p: f64,
}

/// The sample-ratio check: did users fall into arms as planned?
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampleRatioCheck {
    pub p: Option<f64>,
    pub chi_square: Option<f64>,
    /// Valid at every look (Lindon & Malek's sequential test).
    pub sequential_p: Option<f64>,
    /// p below 0.001: effects cannot be trusted.
    pub alarm: bool,
    /// Users expected per arm; empty if there is no test.
    pub expected: Vec<f64>,
    pub unavailable: Option<String>,
}

/// A value of the variant column that the definition does not name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnknownVariant {
    pub value: String,
    pub users: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DimensionAlarm {
    /// Absent of a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    pub value: String,
    pub p: f64,
}

impl DimensionAlarm {
    pub(crate) fn is_of(&self, dimension: &str, value: &str) -> bool {
        self.dimension.as_deref() == Some(dimension) && self.value == value
    }
}

/// What to do, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub decision: Decision,
    pub sentence: String,
    /// One per treatment arm; empty when the data cannot be trusted.
    pub arms: Vec<ArmVerdict>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmVerdict {
    /// Index into `arms`.
    pub arm: usize,
    pub decision: Decision,
    pub sentence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The sample ratio is off: find the cause first.
    DoNotTrust,
    /// A goal got better and nothing got worse.
    Ship,
    /// A goal or guardrail got worse, and no goal better.
    RollBack,
    /// Some got better and some worse, or a guardrail cannot be judged: people must weigh them.
    TradeOff,
    /// Nothing is shown yet.
    KeepRunning,
}

impl Decision {
    /// Of several arms' decisions the first in this order is the experiment's.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Ship => 0,
            Self::TradeOff => 1,
            Self::KeepRunning => 2,
            Self::RollBack => 3,
            Self::DoNotTrust => 4,
        }
    }
}

/// One metric: a value per arm and a comparison per treatment arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricReport {
    pub name: String,
    /// "proportion", "retention", "threshold", "funnel", "mean", "count", "distinct", "ratio" or
    /// "quantile".
    pub kind: &'static str,
    /// Shown in percent: a share of users.
    #[serde(skip)]
    pub is_share: bool,
    #[serde(serialize_with = "direction")]
    pub direction: Direction,
    pub guardrail: bool,
    pub role: Role,
    /// Heading under which it is shown.
    pub group: Option<String>,
    /// In the order of `arms`.
    pub values: Vec<ArmValue>,
    pub comparisons: Vec<Comparison>,
    /// In the order of `arms`.
    pub moments: Vec<ArmMoments>,
    /// One per treatment arm; empty without days.
    pub series: Vec<Series>,
    /// The cap in use, where it is a quantile of the data.
    pub cap: Option<f64>,
    /// The smallest lift, up or down, that matters. In breakdowns absent, as what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_effect: Option<f64>,
    #[serde(flatten)]
    pub about: About,
    /// Of everyone, if the metric's window has an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<UsersInProgress>,
    /// One per treatment arm, if the definition asks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub since_exposure: Vec<SinceExposure>,
    /// Things a reader of this metric should know.
    pub notes: Vec<String>,
}

/// What a metric is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What the experiment is for.
    Primary,
    /// Should get better, too.
    Secondary,
    /// Must not get worse.
    Guardrail,
}

/// Users whose window is not over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsersInProgress {
    /// Left out of the metric; otherwise they count with what they did so far.
    pub excluded: bool,
    /// In the order of `arms`.
    pub users: Vec<u64>,
}

/// The comparison of one arm on each day since the users' first exposures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SinceExposure {
    /// Index into `arms`.
    pub arm: usize,
    pub points: Vec<DaySinceExposure>,
}

/// What users did on one day of 24 hours, of those for whom it is over. Without CUPED, strata and
/// corrections; on the comparison's deciding scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DaySinceExposure {
    /// 0 begins with the exposure.
    pub day: u32,
    /// Of the control, and of the arm.
    pub users: [u64; 2],
    pub control: Option<f64>,
    pub treatment: Option<f64>,
    /// Absent, as its ends, if there is no estimate.
    pub effect: Option<f64>,
    /// Ends of the interval of a test that looks once.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// One arm's figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmValue {
    pub users: u64,
    /// Mean, share or ratio before any adjustment.
    pub value: Option<f64>,
    /// Sum over users, or the numerator's for a ratio.
    pub numerator: Option<f64>,
    /// Users, or the denominator's sum for a ratio.
    pub denominator: Option<f64>,
}

/// What a metric's figures are computed from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmMoments {
    /// Units of randomness.
    pub units: u64,
    /// Of each number per unit: the figure's one or two, then those before exposure.
    pub means: Vec<f64>,
    /// Sample covariances per pair `i <= j`, row by row.
    pub covariances: Vec<f64>,
}

/// The comparison of one arm as of the end of each day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Index into `arms`.
    pub arm: usize,
    /// One per day of [`Report::days`]; absent where there is no estimate yet. On the
    /// comparison's deciding scale.
    pub points: Vec<Option<Point>>,
}

/// The effect as of the end of one day.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Value of the control, before any adjustment, and of the arm.
    pub control: f64,
    pub treatment: f64,
    pub effect: f64,
    /// Ends of the interval of a test that looks once.
    pub low: f64,
    pub high: f64,
    /// Ends of the interval that holds at every look.
    pub anytime_low: f64,
    pub anytime_high: f64,
    /// The true effect that a fixed test on that day finds four times in five.
    pub detectable: f64,
}

/// One treatment arm against the control.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Index into `arms`.
    pub arm: usize,
    #[serde(serialize_with = "outcome")]
    pub absolute: Result<Estimate, StatsError>,
    #[serde(serialize_with = "outcome")]
    pub relative: Result<Estimate, StatsError>,
    /// The scale that decides and is drawn.
    pub scale: Scale,
    /// How the estimate was made, one sentence.
    pub method: String,
    /// Corrected over the family the method names; absent without an estimate.
    pub p_adjusted: Option<f64>,
    /// Intervals cover 1 minus this: [`Report::alpha`], or less of it where a correction has a family share it.
    pub interval_alpha: f64,
    pub call: Call,
    /// A group sequential test has no look at today's users, so nothing is called.
    pub unplanned_look: bool,
    /// The true effect, on the deciding scale, that a fixed test with today's users finds four
    /// times in five.
    pub detectable: Option<f64>,
    /// Share of the squared error that CUPED or strata removed.
    pub variance_reduction: Option<f64>,
    /// The difference times the users of all arms: the metric's total over the experiment's users,
    /// had all of them been in this arm instead of the control. Absent for ratios and quantiles.
    pub impact: Option<Impact>,
    /// Of a guardrail with a margin.
    pub non_inferiority: Option<NonInferiority>,
    /// Of a metric with an equivalence margin and a lift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equivalence: Option<Equivalence>,
    /// Of a triggered analysis, for everyone; absent for ratios and quantiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diluted: Option<Diluted>,
    /// Of Bayesian inference.
    pub belief: Option<Belief>,
    /// Times today's users that must still come until an effect of today's size is found four
    /// times in five; 0: enough.
    pub further_users: Option<f64>,
    /// The lift of one look, before looks and beliefs, where the control's value can be divided by.
    #[serde(skip)]
    pub observed: Option<Estimate>,
    /// What one look says, before looks and beliefs.
    #[serde(skip)]
    pub(crate) fixed: Option<(Estimate, Option<Pivot>)>,
}

/// What the effect on activated users is worth over all who were exposed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diluted {
    /// The difference per exposed user: the difference of activated users times the share activated.
    #[serde(serialize_with = "outcome")]
    pub absolute: Result<Estimate, StatsError>,
    /// That, as a share of what the control's exposed users have from first exposure on, activated or
    /// not.
    #[serde(serialize_with = "outcome")]
    pub relative: Result<Estimate, StatsError>,
}

/// A total, in the metric's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Impact {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Is the arm worse by less than the margin?
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NonInferiority {
    /// Relative: 0.02 means 2 % of the control.
    pub margin: f64,
    /// Of being worse by the margin or more, one-sided; right at the looks made.
    pub p: f64,
    /// `p` is below half of alpha, and the look is a planned one.
    pub holds: bool,
}

/// Is the lift within the margin to both sides?
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Equivalence {
    /// Relative: 0.02 means within 2 % of the control.
    pub margin: f64,
    /// The larger of two one-sided tests: of the lift being the margin or more, up or down. With
    /// several looks the two-sided p-values that hold at them, which is cautious.
    pub p: f64,
    /// `p` is below alpha: for one look the interval that covers `1 - 2 alpha` is within the margin,
    /// with several the report's own.
    pub holds: bool,
}

/// What to believe of an effect, on the deciding scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Belief {
    /// Probability that the arm is better in the desired direction.
    pub chance_to_win: f64,
    /// Expected loss of choosing the arm, and of keeping the control.
    pub risk_of_arm: f64,
    pub risk_of_control: f64,
}

impl Comparison {
    /// The estimate on the deciding scale.
    pub fn estimate(&self) -> Result<Estimate, StatsError> {
        match self.scale {
            Scale::Relative => self.relative,
            Scale::Absolute => self.absolute,
        }
    }
}

/// What a comparison shows, seen from the desired direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Better,
    Worse,
    Inconclusive,
    Unavailable,
    /// Users did not fall into the arms as planned, so nothing is called.
    Untrusted,
}

/// All metrics for each value of one dimension.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Breakdown {
    pub dimension: String,
    /// Most users first; beyond the limit merged into the last, "(other)".
    pub rows: Vec<BreakdownRow>,
    /// Per metric and treatment arm: do the values differ from one another?
    pub differences: Vec<Heterogeneity>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakdownRow {
    pub value: String,
    /// In the order of `arms`.
    pub users: Vec<u64>,
    pub metrics: Vec<MetricReport>,
}

/// Do effects differ between the values of a dimension?
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heterogeneity {
    pub metric: String,
    /// Index into `arms`.
    pub arm: usize,
    /// What may differ: lifts, or differences.
    pub scale: Scale,
    /// Cochran's Q.
    pub q: f64,
    pub df: u32,
    pub p: f64,
    /// Corrected by Holm's method over all of the report.
    pub p_adjusted: f64,
}

impl Heterogeneity {
    pub(crate) fn effects(&self) -> &'static str {
        match self.scale {
            Scale::Relative => "lifts",
            Scale::Absolute => "differences",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Day {
    pub day: String,
    /// In the order of `arms`.
    pub users: Vec<u64>,
}

const ALWAYS_SERIALISES: &str = "a report holds strings and numbers, which always serialise";

impl Report {
    /// The report as JSON, schema [`SCHEMA`], keys in a fixed order, with a line break at the
    /// end. An estimate is `{value, error, df, low, high, p}`, or `{unavailable, reason}`;
    /// infinite degrees of freedom are null.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect(ALWAYS_SERIALISES);
        text.push('\n');
        text
    }

    /// The name of the correction for several goals, or nothing.
    pub(crate) fn correction_name(&self) -> &'static str {
        match self.correction {
            "holm" => "Holm",
            "benjamini-hochberg" => "Benjamini-Hochberg",
            _ => "",
        }
    }

    /// Index of the control arm.
    pub fn control(&self) -> usize {
        self.arms.iter().position(|arm| arm.control).unwrap_or(0)
    }
}

fn direction<S: serde::Serializer>(value: &Direction, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(match value {
        Direction::Increase => "increase",
        Direction::Decrease => "decrease",
    })
}

fn outcome<S: serde::Serializer>(
    value: &Result<Estimate, StatsError>,
    out: S,
) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeStruct;
    match value {
        Ok(estimate) => {
            let mut fields = out.serialize_struct("Estimate", 6)?;
            fields.serialize_field("value", &estimate.value)?;
            fields.serialize_field("error", &estimate.error)?;
            fields.serialize_field("df", &estimate.df)?;
            fields.serialize_field("low", &estimate.low)?;
            fields.serialize_field("high", &estimate.high)?;
            fields.serialize_field("p", &estimate.p)?;
            fields.end()
        }
        Err(error) => {
            let mut fields = out.serialize_struct("Unavailable", 2)?;
            fields.serialize_field("unavailable", error.code())?;
            fields.serialize_field("reason", &error.to_string())?;
            fields.end()
        }
    }
}
