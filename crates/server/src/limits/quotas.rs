//! What tenants have used of their quotas: bytes and dollars of a day, seconds of an hour, bytes that come in a second.
//!
//! Days and hours are those of UTC. Statements are asked about when they come and about ten times a second while they
//! run: what is read in between is let through.
//!
//! # Invariants
//! - A tenant without a quota is counted all the same: one that is set later counts from the day's beginning.
//! - A tenant that is not of the access document counts for nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use serde::{Deserialize, Serialize};

use crate::access::{Directory, Tenant};
use crate::cost::{Cost, Prices};
use crate::failure::Failure;

const DAY_MILLIS: i64 = 86_400_000;
const HOUR_MILLIS: i64 = 3_600_000;
const MICRODOLLARS: f64 = 1e6;
/// Seconds whose bytes may come at once.
const INGEST_BURST: Duration = Duration::from_secs(1);

/// What a statement has used, or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// Of data files.
    pub bytes: u64,
    /// In slots.
    pub compute_seconds: f64,
    /// Of cores.
    pub core_seconds: f64,
    pub dollars: f64,
}

impl Used {
    /// What is more than before.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            compute_seconds: (self.compute_seconds - before.compute_seconds).max(0.0),
            core_seconds: (self.core_seconds - before.core_seconds).max(0.0),
            dollars: (self.dollars - before.dollars).max(0.0),
        }
    }
}

/// What a tenant has used today and in this hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Tally {
    /// Since 1970.
    day: i64,
    bytes: u64,
    dollars: f64,
    /// Since 1970.
    hour: i64,
    compute_seconds: f64,
    /// When the bytes that have come are those that may have.
    #[serde(skip)]
    comes_until: Option<Instant>,
}

impl Tally {
    /// As of this moment: what was in another day or hour is over.
    fn at(&mut self, millis: i64) -> &mut Self {
        let (day, hour) = (millis.div_euclid(DAY_MILLIS), millis.div_euclid(HOUR_MILLIS));
        if self.day != day {
            (self.day, self.bytes, self.dollars) = (day, 0, 0.0);
        }
        if self.hour != hour {
            (self.hour, self.compute_seconds) = (hour, 0.0);
        }
        self
    }

    /// The quota that is used up, with what is used, what is allowed, and when that ends.
    fn over(&self, quota: &Tenant) -> Option<(&'static str, String, i64)> {
        let tomorrow = (self.day + 1) * DAY_MILLIS;
        let bytes = quota.scan_bytes_per_day.filter(|most| self.bytes >= *most).map(|most| {
            ("scan_bytes_per_day", format!("{} of {most} bytes", self.bytes), tomorrow)
        });
        let dollars = || {
            let most = quota.microdollars_per_day? as f64 / MICRODOLLARS;
            let used = format!("{:.4} of {most} dollars", self.dollars);
            (self.dollars >= most).then_some(("dollars_per_day", used, tomorrow))
        };
        let seconds = || {
            let most = quota.compute_seconds_per_hour?;
            let used = format!("{:.1} of {most} seconds", self.compute_seconds);
            let end = (self.hour + 1) * HOUR_MILLIS;
            let is_over = self.compute_seconds >= most as f64;
            is_over.then_some(("compute_seconds_per_hour", used, end))
        };
        bytes.or_else(dollars).or_else(seconds)
    }
}

/// Quotas of all tenants.
pub(crate) struct Quotas {
    directory: Arc<Directory>,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    prices: Prices,
    tallies: Mutex<BTreeMap<String, Tally>>,
}

impl std::fmt::Debug for Quotas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quotas").field("tallies", &self.lock()).finish_non_exhaustive()
    }
}

impl Quotas {
    /// Nothing used yet, of the tenants of a directory.
    pub fn new(
        directory: Arc<Directory>,
        clock: Arc<dyn Fn() -> i64 + Send + Sync>,
        prices: Prices,
    ) -> Arc<Self> {
        let tallies = Mutex::default();
        Arc::new(Self { directory, clock, prices, tallies })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Tally>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of a statement's cost counts for its tenant.
    pub fn use_of(&self, cost: &Cost) -> Used {
        Used {
            bytes: cost.counts.bytes_read.saturating_add(cost.counts.nodes.bytes_read),
            compute_seconds: cost.counts.in_slot.as_secs_f64() + cost.node_seconds(),
            core_seconds: cost.core_seconds(),
            dollars: cost.dollars(&self.prices)
                + (cost.quota_seconds() - cost.compute_seconds()) / 3600.0 * self.prices.core_hour,
        }
    }

    /// The tenant that a role's statements are counted for, and its name.
    pub fn tenant_of(&self, role: &str) -> Option<(String, Tenant)> {
        let document = self.directory.current();
        let name = document.access.roles.get(role)?.tenant.as_ref()?;
        let tenant = document.access.tenants.get(name)?;
        Some((name.clone(), tenant.clone()))
    }

    /// A statement of a role has used so much more.
    pub fn used(&self, role: &str, used: Used) {
        let Some((name, _)) = self.tenant_of(role) else { return };
        let now = (self.clock)();
        let mut tallies = self.lock();
        let tally = tallies.entry(name).or_default().at(now);
        tally.bytes = tally.bytes.saturating_add(used.bytes);
        tally.dollars += used.dollars;
        tally.compute_seconds += used.compute_seconds;
    }

    /// May a statement of a role begin, or go on?
    ///
    /// # Errors
    /// 53400 with the quota, what is used of it, and when it ends.
    pub fn check(&self, role: &str) -> Result<(), Failure> {
        let Some((name, quota)) = self.tenant_of(role) else { return Ok(()) };
        let now = (self.clock)();
        let mut tallies = self.lock();
        let Some(tally) = tallies.get_mut(&name) else { return Ok(()) };
        let Some((what, used, end)) = tally.at(now).over(&quota) else { return Ok(()) };
        let end = timestamp_ms_to_datetime(end).map_or_else(String::new, |end| end.to_string());
        let message = format!("tenant `{name}` has used up {what}: {used}, until {end} UTC");
        Err(Failure::new("53400", message)
            .with_hint("wait until then, or ask an admin for a larger quota"))
    }

    /// So many bytes come for a load of a role; how long it has to wait before it takes more.
    pub fn comes(&self, role: &str, bytes: u64, now: Instant) -> Duration {
        let Some((name, quota)) = self.tenant_of(role) else { return Duration::ZERO };
        let Some(most) = quota.ingest_bytes_per_second else { return Duration::ZERO };
        let mut tallies = self.lock();
        let tally = tallies.entry(name).or_default();
        let before = tally.comes_until.unwrap_or(now).max(now);
        let takes = Duration::try_from_secs_f64(bytes as f64 / most.max(1) as f64);
        let until = before + takes.unwrap_or(DAY).min(DAY);
        tally.comes_until = Some(until);
        until.duration_since(now).saturating_sub(INGEST_BURST)
    }

    /// All that is counted, to be kept.
    pub fn text(&self) -> String {
        // Numbers and names: it can be written.
        serde_json::to_string(&*self.lock()).unwrap_or_default()
    }

    /// Counts on from what was kept; a text that is none of [`Self::text`] is nothing.
    pub fn go_on(&self, text: &str) {
        if let Ok(tallies) = serde_json::from_str(text) {
            *self.lock() = tallies;
        }
    }
}

/// More than anybody waits.
const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::access::{Access, Document, Role};

    const PRICES: Prices = Prices { storage: None, core_hour: 3.6 };

    /// 2026-11-26 23:30 UTC.
    const EVENING: i64 = 1_795_735_800_000;

    fn quotas(tenant: Tenant) -> (Arc<Quotas>, Arc<AtomicI64>) {
        let mut access = Access::default();
        access.tenants.insert("growth".into(), tenant);
        let role = Role { login: true, tenant: Some("growth".into()), ..Role::default() };
        access.roles.insert("ann".into(), role);
        access.roles.insert("bob".into(), Role::default());
        let document = Document { number: 1, at: 0, by: "test".into(), access };
        let now = Arc::new(AtomicI64::new(EVENING));
        let told = Arc::clone(&now);
        let clock = Arc::new(move || told.load(Ordering::Relaxed));
        (Quotas::new(Arc::new(Directory::from(document)), clock, PRICES), now)
    }

    #[test]
    fn a_quota_of_a_day_ends_with_the_day() {
        let tenant = Tenant { scan_bytes_per_day: Some(1000), ..Tenant::default() };
        let (quotas, now) = quotas(tenant);
        assert!(quotas.check("ann").is_ok());
        quotas.used("ann", Used { bytes: 999, ..Used::default() });
        quotas.used("bob", Used { bytes: 999, ..Used::default() });
        assert!(quotas.check("ann").is_ok());
        quotas.used("ann", Used { bytes: 2, ..Used::default() });
        let refused = quotas.check("ann").unwrap_err();
        assert_eq!(refused.code, "53400");
        assert_eq!(
            refused.message,
            "tenant `growth` has used up scan_bytes_per_day: 1001 of 1000 bytes, until \
             2026-11-27 00:00:00 UTC"
        );
        assert!(quotas.check("bob").is_ok(), "who has no tenant has no quota");
        now.fetch_add(30 * 60_000, Ordering::Relaxed);
        assert!(quotas.check("ann").is_ok());
    }

    #[test]
    fn seconds_end_with_the_hour_and_dollars_are_of_requests_and_computing() {
        let tenant = Tenant {
            compute_seconds_per_hour: Some(60),
            microdollars_per_day: Some(1_000_000),
            ..Tenant::default()
        };
        let (quotas, now) = quotas(tenant);
        let mut cost = Cost::default();
        cost.counts.in_slot = Duration::from_secs(61);
        cost.counts.busy = Duration::from_secs(561);
        let used = quotas.use_of(&cost);
        assert!((used.dollars - 0.561).abs() < 1e-9, "{used:?}");
        quotas.used("ann", used);
        let message = quotas.check("ann").unwrap_err().message;
        assert!(message.contains("compute_seconds_per_hour: 61.0 of 60 seconds"), "{message}");
        assert!(message.ends_with("until 2026-11-27 00:00:00 UTC"), "{message}");
        now.store(EVENING + HOUR_MILLIS, Ordering::Relaxed);
        assert!(quotas.check("ann").is_ok());
        quotas.used("ann", Used { dollars: 1.5, ..Used::default() });
        let message = quotas.check("ann").unwrap_err().message;
        assert!(message.contains("dollars_per_day: 1.5000 of 1 dollars"), "{message}");
        assert!(message.ends_with("until 2026-11-28 00:00:00 UTC"), "{message}");
    }

    #[test]
    fn what_is_kept_counts_on_and_what_is_no_such_text_does_not() {
        let tenant = || Tenant { scan_bytes_per_day: Some(10), ..Tenant::default() };
        let (before, _) = quotas(tenant());
        before.used("ann", Used { bytes: 11, ..Used::default() });
        let folder = tempfile::tempdir().unwrap();
        super::super::keep(folder.path(), &before.text()).unwrap();
        let (after, now) = quotas(tenant());
        after.go_on(&super::super::kept(folder.path()).unwrap());
        after.go_on("{ damaged");
        assert!(after.check("ann").is_err());
        now.fetch_add(DAY_MILLIS, Ordering::Relaxed);
        assert!(after.check("ann").is_ok());
    }

    #[test]
    fn bytes_that_come_wait_for_their_second() {
        let tenant = Tenant { ingest_bytes_per_second: Some(1000), ..Tenant::default() };
        let (quotas, _) = quotas(tenant);
        let now = Instant::now();
        assert_eq!(quotas.comes("ann", 1000, now), Duration::ZERO);
        assert_eq!(quotas.comes("ann", 1000, now), Duration::from_secs(1));
        assert_eq!(quotas.comes("bob", 1 << 40, now), Duration::ZERO);
        let later = now + Duration::from_secs(3);
        assert_eq!(quotas.comes("ann", 500, later), Duration::ZERO);
        assert!(quotas.comes("ann", u64::MAX, later) < DAY * 2);
    }

    #[test]
    fn use_is_counted_once() {
        let (first, second) = (
            Used { bytes: 10, compute_seconds: 1.0, core_seconds: 2.0, dollars: 0.5 },
            Used { bytes: 15, compute_seconds: 1.5, core_seconds: 2.5, dollars: 0.5 },
        );
        let more = second.since(first);
        assert_eq!(more, Used { bytes: 5, compute_seconds: 0.5, core_seconds: 0.5, dollars: 0.0 });
        assert_eq!(first.since(second), Used::default());
    }
}
