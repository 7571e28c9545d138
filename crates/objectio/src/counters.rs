//! What was asked of the store, what it cost, and for whom.
//!
//! A [`Scope`] is a list of [`Counters`] that count the same events: a query's own and the store's
//! total. It travels with the work as a task-local, so that the HTTP connection at the bottom and
//! the cache in the middle count for the query that asked, and no layer passes it on by hand.
//! A [`Payer`] travels the same way above all handles: what is asked while it is there counts for it,
//! whichever handle is asked. What several payers wait for at once is counted aside, as [`Shares`],
//! and each pays its part once it is there.
//!
//! # Invariants
//! - Counters only grow. A number is exact once the work it counts has ended.
//! - What is asked is paid once: by the payer there is when the store is asked, or else by the one there
//!   was when the handle was made, or by those who wait for it, whose parts add up to it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::Stream;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use serde::Deserialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that are being counted; [`Counters::counts`] reads them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            busy: Mutex<Busy>,
        }

        /// What was counted.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
            /// Time in which at least one read was waited for, in microseconds: the part of the
            /// critical path that storage is.
            pub waited_micros: u64,
            /// Times a read began while none was under way: round trips that followed each other.
            pub rounds: u64,
        }

        impl Counters {
            /// Reads that began and have not ended.
            pub(crate) fn reads_under_way(&self) -> u64 {
                self.busy.lock().under_way
            }

            /// The numbers as of now.
            #[must_use]
            pub fn counts(&self) -> Counts {
                let (waited_micros, rounds) = self.busy.lock().read();
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* waited_micros, rounds }
            }
        }

        impl Counters {
            /// Moves what was counted to others, to each by its weight.
            fn share_out(&self, among: &[(&Self, u64)]) {
                $(share_out(among, |c| &c.$name, self.$name.swap(0, Ordering::Relaxed));)*
            }
        }

        impl Counts {
            /// What was counted since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name.saturating_sub(earlier.$name),)*
                    waited_micros: self.waited_micros.saturating_sub(earlier.waited_micros),
                    rounds: self.rounds.saturating_sub(earlier.rounds),
                }
            }

            /// Name and value of every count that is not 0, in a fixed order.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [
                    $((stringify!($name), self.$name),)*
                    ("waited_micros", self.waited_micros),
                    ("rounds", self.rounds),
                ]
                .into_iter()
                .filter(|(_, value)| *value > 0)
            }
        }
    };
}

counters! {
    /// Requests that read bytes or metadata of one object, retries and hedges included.
    gets,
    /// Requests that write: puts, parts of uploads, their start and end, copies.
    puts,
    /// Requests that list.
    lists,
    /// Requests that delete.
    deletes,
    /// Bytes of bodies received, those of hedges and short bodies included.
    bytes_read,
    /// Bytes of bodies sent.
    bytes_written,
    /// Requests made again because one before failed.
    retries,
    /// Second requests for a slow piece.
    hedges,
    /// Hedges that answered first.
    hedges_won,
    /// Requests the store refused because there were too many (503, 429).
    throttled,
    /// Bodies that ended before they should.
    short_bodies,
    /// Requests given up because no byte came for the stall time-out.
    stalls,
    /// Connections made.
    connects,
    /// Conditional writes whose answer was lost, so that the object was read back.
    read_backs,
    /// Bytes readers asked for.
    bytes_asked,
    /// Bytes taken from the cache's memory tier.
    bytes_from_memory,
    /// Bytes taken from the cache's disk tier.
    bytes_from_disk,
    /// Bytes of cacheable objects that were in neither tier.
    bytes_missed,
    /// Reads that waited for another reader's request instead of making one.
    reads_shared,
    /// Extents the cache did not take because its queue or its space was full.
    cache_dropped,
    /// Extents read from disk whose checksum was wrong; they count as misses.
    cache_corrupt,
}

/// The union of the times during which reads were under way.
#[derive(Debug, Default)]
struct Busy {
    under_way: u64,
    since: Duration,
    total: Duration,
    rounds: u64,
}

impl Busy {
    fn read(&self) -> (u64, u64) {
        (u64::try_from(self.total.as_micros()).unwrap_or(u64::MAX), self.rounds)
    }
}

/// Adds `n` to counters, to each by its weight. Parts are cut from the sum of the weights so far, so that together
/// they are exactly `n`.
fn share_out(among: &[(&Counters, u64)], field: fn(&Counters) -> &AtomicU64, n: u64) {
    let whole: u128 = among.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let (mut weights, mut given) = (0, 0);
    for (counters, weight) in among {
        weights += u128::from(*weight);
        // Weights are not 0, and this is no more than `n`.
        let upto = (u128::from(n) * weights / whole) as u64;
        field(counters).fetch_add(upto - given, Ordering::Relaxed);
        given = upto;
    }
}

/// Whose work is being done.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    counters: Arc<[Arc<Counters>]>,
    pays: Pays,
}

#[derive(Debug, Clone)]
enum Pays {
    /// Whoever is there when the store is asked, or else this one.
    Whoever(Option<Arc<Payer>>),
    /// Those who wait for it.
    Together(Arc<Shares>),
}

tokio::task_local! {
    static SCOPE: Scope;
    static PAYER: Arc<Payer>;
}

impl Scope {
    /// Counts into all of `counters`.
    pub(crate) fn new(counters: &[Arc<Counters>]) -> Self {
        Self { counters: counters.into(), pays: Pays::Whoever(None) }
    }

    /// The first counters: the scope's own.
    pub(crate) fn own(&self) -> &Arc<Counters> {
        &self.counters[0]
    }

    /// A scope below this one, with counters of its own.
    pub(crate) fn child(&self) -> Self {
        let counters = std::iter::once(Arc::default()).chain(self.counters.iter().cloned());
        Self { counters: counters.collect(), pays: self.charged().pays }
    }

    /// The same for whoever pays now.
    pub(crate) fn charged(&self) -> Self {
        let pays = match (&self.pays, Payer::current()) {
            (Pays::Whoever(_), Some(payer)) => Pays::Whoever(Some(payer)),
            (pays, _) => pays.clone(),
        };
        Self { counters: Arc::clone(&self.counters), pays }
    }

    /// The same for all who wait.
    pub(crate) fn shared(&self, shares: &Arc<Shares>) -> Self {
        let pays = Pays::Together(Arc::clone(shares));
        Self { counters: Arc::clone(&self.counters), pays }
    }

    /// All that count.
    fn all(&self) -> impl Iterator<Item = &Counters> {
        let pays = match &self.pays {
            Pays::Whoever(payer) => payer.as_ref().map(|payer| &payer.counters),
            Pays::Together(shares) => Some(&shares.counters),
        };
        self.counters.iter().map(Arc::as_ref).chain(pays)
    }

    /// Runs `work` for this scope.
    pub(crate) fn run<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(self.charged(), work)
    }

    /// Polls `stream` for this scope.
    pub(crate) fn stream<T: 'static>(
        &self,
        stream: BoxStream<'static, T>,
    ) -> BoxStream<'static, T> {
        Box::pin(Scoped { scope: self.charged(), stream })
    }

    pub(crate) fn count(&self, field: fn(&Counters) -> &AtomicU64, n: u64) {
        for counters in self.all() {
            field(counters).fetch_add(n, Ordering::Relaxed);
        }
    }

    /// A read began; drop the guard when it ends.
    pub(crate) fn reading(&self, clock: &Arc<dyn crate::Clock>) -> Reading {
        let now = clock.now();
        let scope = self.charged();
        for counters in scope.all() {
            let mut busy = counters.busy.lock();
            if busy.under_way == 0 {
                busy.since = now;
                busy.rounds += 1;
            }
            busy.under_way += 1;
        }
        Reading { scope, clock: Arc::clone(clock) }
    }
}

/// Whoever work is done for: what it asked of stores, and how long threads were at it.
///
/// It is there for what [`Payer::pays_for`] and [`Payer::run`] do, and for no task or thread that these
/// begin, unless whoever begins it hands [`Payer::current`] on.
#[derive(Debug, Default)]
pub struct Payer {
    counters: Counters,
    busy_nanos: AtomicU64,
    /// Who it is to others, if anybody has said so.
    name: OnceLock<Arc<str>>,
    commit: Mutex<Commit>,
}

/// What becomes of what the work writes, for who ends it before it is done.
#[derive(Debug, Default)]
enum Commit {
    /// Nothing was sent, and may be.
    #[default]
    Unsent,
    /// To this table, with an outcome that is not known, or that is.
    Sent(String),
    /// None is sent any more: who waited was told so.
    Refused,
}

impl Payer {
    /// A commit to a table is about to be sent: from now on nobody can say that there was none. False if who waited for
    /// it was told that there is none; it is not to be sent then.
    pub fn sends_commit(&self, table: &str) -> bool {
        let mut commit = self.commit.lock();
        if matches!(*commit, Commit::Refused) {
            return false;
        }
        *commit = Commit::Sent(table.to_owned());
        true
    }

    /// What was sent was refused, and has no effect. Another may be sent.
    pub fn commit_was_refused(&self) {
        let mut commit = self.commit.lock();
        if matches!(*commit, Commit::Sent(_)) {
            *commit = Commit::Unsent;
        }
    }

    /// Other work begins; what was sent before was told of.
    pub fn begins(&self) {
        self.commit_was_refused();
    }

    /// The table of a commit that was sent and may have taken effect, or may yet.
    #[must_use]
    pub fn sent_commit(&self) -> Option<String> {
        match &*self.commit.lock() {
            Commit::Sent(table) => Some(table.clone()),
            Commit::Unsent | Commit::Refused => None,
        }
    }

    /// The same for who ends the work from elsewhere, while it may still go on for a moment: if nothing was sent, nothing
    /// is from now on.
    #[must_use]
    pub fn refuse_commits(&self) -> Option<String> {
        let mut commit = self.commit.lock();
        match &*commit {
            Commit::Sent(table) => Some(table.clone()),
            Commit::Unsent | Commit::Refused => {
                *commit = Commit::Refused;
                None
            }
        }
    }

    /// Whoever pays for what is done here.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        PAYER.try_with(Arc::clone).ok()
    }

    /// Says who it is; the first one who says so counts.
    pub fn known_as(&self, name: &str) {
        self.name.get_or_init(|| name.into());
    }

    /// Who it is, if it was said.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.get().map(AsRef::as_ref)
    }

    /// What was asked of stores.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// How long threads were at it, all of them together: the time of polls, in which a thread may also
    /// have waited for a core, and the CPU time of threads of its own where the system tells it.
    #[must_use]
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
    }

    /// Does `work`, and pays for it.
    pub fn run<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        if self.is_current() {
            return work();
        }
        let began = Instant::now();
        let done = PAYER.sync_scope(Arc::clone(self), work);
        self.add(began.elapsed());
        done
    }

    /// The same of all that a thread does, which may wait a long time.
    pub fn run_thread<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), thread_time());
        let done = PAYER.sync_scope(Arc::clone(self), work);
        let used = before.zip(thread_time()).map(|(before, after)| after.saturating_sub(before));
        self.add(used.unwrap_or_else(|| began.elapsed()));
        done
    }

    /// Pays for a future whenever it is polled.
    pub async fn pays_for<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| self.run(|| work.as_mut().poll(context))).await
    }

    fn is_current(self: &Arc<Self>) -> bool {
        PAYER.try_with(|payer| Arc::ptr_eq(payer, self)).unwrap_or(false)
    }

    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// What work costs that several wait for, until they pay: each by its weight, such as the bytes that it asked for.
///
/// Who gives up before the end pays nothing, unless it is the last: then it pays for what was done in vain.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    counters: Counters,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By number, with their weights.
    payers: BTreeMap<u64, (Arc<Payer>, u64)>,
    /// The last one, if all have gone.
    last: Option<Arc<Payer>>,
    next: u64,
}

impl Shares {
    /// Whoever asks here waits until what is given back is dropped.
    pub(crate) fn join(self: &Arc<Self>, weight: u64) -> Option<Share> {
        let Pays::Whoever(Some(payer)) = current()?.pays else { return None };
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.payers.insert(number, (payer, weight.max(1)));
        Some(Share { shares: Arc::clone(self), number })
    }

    /// Those who wait pay for what was done by now.
    pub(crate) fn pay(&self) {
        self.paid_by(&self.waiting.lock());
    }

    fn paid_by(&self, waiting: &Waiting) {
        let all = waiting.payers.values().map(|(payer, weight)| (payer, *weight));
        // Without anybody there is nobody to tell.
        let last = waiting.last.iter().filter(|_| waiting.payers.is_empty());
        let among = all.chain(last.map(|payer| (payer, 1)));
        let among: Vec<_> = among.map(|(payer, weight)| (&payer.counters, weight)).collect();
        self.counters.share_out(&among);
    }

    fn leave(&self, number: u64) {
        let mut waiting = self.waiting.lock();
        let left = waiting.payers.remove(&number);
        if waiting.payers.is_empty() {
            waiting.last = left.map(|(payer, _)| payer);
            self.paid_by(&waiting);
        }
    }
}

impl Drop for Shares {
    /// What a task has counted that was stopped in the middle.
    fn drop(&mut self) {
        self.pay();
    }
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    number: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.leave(self.number);
    }
}

/// What this thread has had of cores, where the system tells it.
fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// A read under way.
pub(crate) struct Reading {
    scope: Scope,
    clock: Arc<dyn crate::Clock>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let now = self.clock.now();
        for counters in self.scope.all() {
            let mut busy = counters.busy.lock();
            busy.under_way -= 1;
            if busy.under_way == 0 {
                let since = busy.since;
                busy.total += now.saturating_sub(since);
            }
        }
    }
}

/// Counts `n` for whoever's work is being polled; outside of any scope it counts for nobody.
pub(crate) fn count(field: fn(&Counters) -> &AtomicU64, n: u64) {
    let _ = SCOPE.try_with(|scope| scope.count(field, n));
}

/// The scope whose work is being polled, to hand on to a task of its own.
pub(crate) fn current() -> Option<Scope> {
    SCOPE.try_with(Clone::clone).ok()
}

struct Scoped<T> {
    scope: Scope,
    stream: BoxStream<'static, T>,
}

impl<T> Stream for Scoped<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        SCOPE.sync_scope(this.scope.clone(), || this.stream.as_mut().poll_next(cx))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

/// What requests cost; the defaults are S3 Standard in us-east-1, read from the same region.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// US dollars for 1,000 reading requests.
    pub per_1000_reads: f64,
    /// US dollars for 1,000 writing or listing requests.
    pub per_1000_writes: f64,
    /// US dollars for a GiB read.
    pub per_gib_read: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { per_1000_reads: 0.0004, per_1000_writes: 0.005, per_gib_read: 0.0 }
    }
}

impl Counts {
    /// All requests: what the store was asked, whoever asked again.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.gets + self.puts + self.lists + self.deletes
    }

    /// Estimated US dollars; deletes are free at the known providers.
    #[must_use]
    pub fn dollars(&self, prices: &Prices) -> f64 {
        self.gets as f64 * prices.per_1000_reads / 1e3
            + (self.puts + self.lists) as f64 * prices.per_1000_writes / 1e3
            + self.bytes_read as f64 / (1u64 << 30) as f64 * prices.per_gib_read
    }
}

impl fmt::Display for Counts {
    /// `name=value` of what is not 0, in a fixed order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.entries().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use futures::executor::block_on;
    use futures::future::BoxFuture;

    #[derive(Debug, Default)]
    struct ByHand(AtomicU64);

    impl Clock for ByHand {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_query_and_the_total_count_the_same_work() {
        let total = Scope::new(&[Arc::default()]);
        let (a, b) = (total.child(), total.child());
        block_on(a.run(async { count(|c| &c.gets, 2) }));
        block_on(b.run(async { count(|c| &c.gets, 3) }));
        count(|c| &c.gets, 100); // nobody's
        let gets = |scope: &Scope| scope.own().counts().gets;
        assert_eq!((gets(&a), gets(&b), gets(&total)), (2, 3, 5));
    }

    #[test]
    fn who_ends_work_knows_whether_a_commit_was_sent_and_none_is_afterwards() {
        let payer = Payer::default();
        assert_eq!(payer.sent_commit(), None);
        assert!(payer.sends_commit("a"));
        assert_eq!(
            (payer.sent_commit(), payer.refuse_commits()),
            (Some("a".into()), Some("a".into()))
        );
        // Another was first: the next attempt can still be given up.
        payer.commit_was_refused();
        assert_eq!(payer.sent_commit(), None);
        assert!(payer.sends_commit("a"));
        payer.begins();
        assert_eq!(payer.refuse_commits(), None);
        assert!(!payer.sends_commit("a"));
        payer.begins();
        assert!(!payer.sends_commit("a"), "the client was told");
    }

    #[test]
    fn a_payer_pays_for_what_is_asked_while_it_is_there() {
        let total = Scope::new(&[Arc::default()]);
        let (ann, bob): (Arc<Payer>, Arc<Payer>) = Default::default();
        let asks = |scope: &Scope, n| block_on(scope.run(async move { count(|c| &c.gets, n) }));
        ann.run(|| asks(&total, 1));
        // A handle made for one counts for it where nobody pays, and for whoever does.
        let of_ann = ann.run(|| total.child());
        asks(&of_ann, 2);
        bob.run(|| asks(&of_ann, 4));
        asks(&total, 8); // nobody's
        assert_eq!((ann.counts().gets, bob.counts().gets), (3, 4));
        assert_eq!((total.own().counts().gets, of_ann.own().counts().gets), (15, 6));
    }

    #[test]
    fn what_several_wait_for_is_paid_by_all_of_them_and_once() {
        let total = Scope::new(&[Arc::default()]);
        let payers: [Arc<Payer>; 4] = Default::default();
        let [ann, bob, cem, dan] = &payers;
        let shares: Arc<Shares> = Arc::default();
        let join = |payer: &Arc<Payer>, weight| {
            payer.run(|| block_on(total.run(async { shares.join(weight) })))
        };
        let work = total.shared(&shares);
        // Whoever happens to be at it.
        let does = |gets, bytes| {
            ann.run(|| {
                block_on(work.run(async move {
                    count(|c| &c.gets, gets);
                    count(|c| &c.bytes_read, bytes);
                }));
            });
        };
        assert!(block_on(total.run(async { shares.join(1) })).is_none(), "nobody");
        let held = [join(ann, 2), join(bob, 1), join(cem, 1)];
        let gone = join(dan, 9);
        does(1, 90);
        drop(gone);
        does(1, 11);
        shares.pay();
        drop(held);
        let paid = |payer: &Arc<Payer>| (payer.counts().gets, payer.counts().bytes_read);
        assert_eq!(payers.each_ref().map(paid), [(1, 50), (0, 25), (1, 26), (0, 0)]);
        // What nobody waits for any more is the last one's.
        let last = join(dan, 1);
        does(5, 0);
        drop(last);
        does(2, 0);
        drop((work, shares));
        assert_eq!(payers.each_ref().map(paid), [(1, 50), (0, 25), (1, 26), (7, 0)]);
        assert_eq!((total.own().counts().gets, total.own().counts().bytes_read), (9, 101));
    }

    #[test]
    fn time_counts_once() {
        let payer = Arc::new(Payer::default());
        let nap = || std::thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        payer.run(|| payer.run(nap));
        assert!(payer.busy() >= Duration::from_millis(20) && payer.busy() <= began.elapsed());
        block_on(Arc::clone(&payer).pays_for(async { assert!(Payer::current().is_some()) }));
        assert!(Payer::current().is_none());
        // A thread that sleeps has nothing of the cores.
        let before = payer.busy();
        payer.run_thread(nap);
        if thread_time().is_some() {
            assert!(payer.busy() - before < Duration::from_millis(10));
        }
    }

    #[test]
    fn waiting_is_the_union_of_the_reads() {
        let by_hand = Arc::new(ByHand::default());
        let clock: Arc<dyn Clock> = Arc::<ByHand>::clone(&by_hand);
        let scope = Scope::new(&[Arc::default()]);
        let at = |micros| by_hand.0.store(micros, Ordering::Relaxed);
        at(10);
        let first = scope.reading(&clock);
        at(20);
        let second = scope.reading(&clock);
        at(30);
        drop(first);
        at(50);
        drop(second);
        at(100);
        let third = scope.reading(&clock);
        at(101);
        drop(third);
        let counts = scope.own().counts();
        assert_eq!((counts.waited_micros, counts.rounds), (41, 2));
    }

    #[test]
    fn money_follows_the_price_list() {
        let counts = Counts { gets: 10_000, puts: 1000, lists: 1000, ..Counts::default() };
        assert!((counts.dollars(&Prices::default()) - (0.004 + 0.01)).abs() < 1e-12);
        assert_eq!(counts.to_string(), "gets=10000 puts=1000 lists=1000");
    }
}
