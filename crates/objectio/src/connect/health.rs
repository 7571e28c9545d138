//! Which of a name's addresses a request goes to.
//!
//! # Invariants
//! - An address with a request that had no answer for 250 ms, and none to any other request since,
//!   gets no further ones until it answers or its time out is over.
//! - There is always an answer: when every address is out, the one that comes back first.
//!
//! # Not here
//! No socket and no clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// An address that does not answer anything for this long is suspected, or for so many times the
/// best address's latency: far stores take their 250 ms for everything.
const SUSPECT: Duration = Duration::from_millis(250);
const SUSPECT_LATENCIES: f64 = 4.0;
/// How long a dead address is left out at first, and at most; doubled with each failure.
const FIRST_TIME_OUT: Duration = Duration::from_secs(5);
const LONGEST_TIME_OUT: Duration = Duration::from_secs(60);
/// Broken connections in a row that take an address out: one may be chance.
const FAILURES: u32 = 3;
/// An address that DNS no longer names is forgotten after this, if nothing uses it.
const FORGET: Duration = Duration::from_secs(300);
/// DNS may name new addresses for ever; this many are kept.
const MOST_ADDRESSES: usize = 64;
/// Weight of the newest latency.
const WEIGHT: f64 = 0.2;

/// One request's hold on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) address: SocketAddr,
    id: u64,
}

/// How a request ended before its answer's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection could be made.
    Unreachable,
    /// The connection broke.
    Broken,
    /// Nobody waits for the answer any more.
    GivenUp,
}

/// The addresses of one name.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    all: Vec<Address>,
    next_id: u64,
}

#[derive(Debug)]
struct Address {
    address: SocketAddr,
    /// When DNS last named it.
    named: Duration,
    /// Start of the requests without an answer yet, by id: the first is the oldest.
    unanswered: BTreeMap<u64, Duration>,
    /// Requests under way, bodies included.
    load: u32,
    /// Mean milliseconds to the answer's head; `None` if never answered.
    latency_ms: Option<f64>,
    answered: Option<Duration>,
    failures: u32,
    /// Left out until then, and for how long; 0 if it is well.
    out_until: Duration,
    out_for: Duration,
}

impl Address {
    /// Has it answered anything since `then`?
    fn answered_since(&self, then: Duration) -> bool {
        self.answered.is_some_and(|at| at >= then)
    }

    fn is_suspect(&self, now: Duration, after: Duration) -> bool {
        let oldest = self.unanswered.values().next();
        oldest.is_some_and(|&at| now.saturating_sub(at) >= after && !self.answered_since(at))
    }

    /// Well, or due for a trial.
    fn is_in(&self, now: Duration) -> bool {
        self.out_for.is_zero() || (now >= self.out_until && self.unanswered.is_empty())
    }

    fn take_out(&mut self, now: Duration) {
        self.out_for = (self.out_for * 2).clamp(FIRST_TIME_OUT, LONGEST_TIME_OUT);
        self.out_until = now + self.out_for;
    }

    /// Expected milliseconds of waiting.
    fn cost(&self, now: Duration, usual_ms: f64) -> f64 {
        let oldest = self.unanswered.values().next();
        let age_ms = oldest.map_or(0.0, |&at| now.saturating_sub(at).as_secs_f64() * 1e3);
        self.latency_ms.unwrap_or(usual_ms).max(age_ms).max(0.1) * f64::from(self.load + 1)
    }
}

impl Addresses {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What DNS says now. Addresses it does not name are kept for a while: S3 names 8 of many at a
    /// time.
    pub(super) fn named(&mut self, found: &[SocketAddr], now: Duration) {
        for &address in found {
            match self.all.iter_mut().find(|known| known.address == address) {
                Some(known) => known.named = now,
                None => self.all.push(Address {
                    address,
                    named: now,
                    unanswered: BTreeMap::new(),
                    load: 0,
                    latency_ms: None,
                    answered: None,
                    failures: 0,
                    out_until: Duration::ZERO,
                    out_for: Duration::ZERO,
                }),
            }
        }
        self.all.retain(|a| a.load > 0 || now.saturating_sub(a.named) < FORGET);
        // The longest unnamed go first.
        while self.all.len() > MOST_ADDRESSES {
            let idle = self.all.iter().enumerate().filter(|(_, a)| a.load == 0);
            let Some((oldest, _)) = idle.min_by_key(|(_, a)| a.named) else { break };
            self.all.remove(oldest);
        }
    }

    /// Chooses an address, none of `tried` if there are others; `dice(n)` is random below `n`.
    ///
    /// A `careful` request is one that nobody sends twice when its answer is late: it goes to
    /// addresses that are known to answer, and is never the trial of one that was left out.
    pub(super) fn choose(
        &mut self,
        now: Duration,
        tried: &[SocketAddr],
        careful: bool,
        mut dice: impl FnMut(usize) -> usize,
    ) -> Option<Turn> {
        let is_new = |a: &Address| !tried.contains(&a.address);
        let pick = |wanted: &dyn Fn(&Address) -> bool| -> Vec<usize> {
            (0..self.all.len()).filter(|&i| wanted(&self.all[i])).collect()
        };
        let after = self.suspect_after();
        let is_known = |a: &Address| a.answered.is_some() && a.out_for.is_zero();
        let is_well = |a: &Address| a.is_in(now) && !a.is_suspect(now, after);
        let mut candidates = Vec::new();
        if careful {
            candidates = pick(&|a| is_new(a) && is_known(a) && is_well(a));
        }
        if candidates.is_empty() {
            candidates = pick(&|a| is_new(a) && is_well(a));
        }
        if candidates.is_empty() {
            candidates = pick(&is_well);
        }
        if candidates.is_empty() {
            candidates = pick(&|a| a.is_in(now));
        }
        let chosen = match candidates.len() {
            // All are out: the one that is back first, a new one before a tried one.
            0 => {
                let mut all = 0..self.all.len();
                let first = all.next()?;
                let key = |i: usize| (!is_new(&self.all[i]), self.all[i].out_until);
                all.fold(first, |best, i| if key(i) < key(best) { i } else { best })
            }
            1 => candidates[0],
            n => {
                // The better of two random ones: near the best choice without everybody rushing to
                // the same address.
                let first = dice(n);
                let second = (first + 1 + dice(n - 1)) % n;
                let known = self.all.iter().filter_map(|a| a.latency_ms);
                let usual_ms = known.fold(f64::INFINITY, f64::min);
                let usual_ms = if usual_ms.is_finite() { usual_ms } else { 1.0 };
                let cost = |i: usize| self.all[candidates[i]].cost(now, usual_ms);
                candidates[if cost(second) < cost(first) { second } else { first }]
            }
        };
        let id = self.next_id;
        self.next_id += 1;
        let address = &mut self.all[chosen];
        address.unanswered.insert(id, now);
        address.load += 1;
        Some(Turn { address: address.address, id })
    }

    /// Whether any of `tried` is suspected to be dead.
    pub(super) fn is_any_suspect(&self, tried: &[SocketAddr], now: Duration) -> bool {
        let after = self.suspect_after();
        self.all.iter().any(|a| tried.contains(&a.address) && a.is_suspect(now, after))
    }

    /// Silence from here on is suspicious.
    fn suspect_after(&self) -> Duration {
        let best_ms = self.all.iter().filter_map(|a| a.latency_ms).fold(f64::INFINITY, f64::min);
        let usual_ms = if best_ms.is_finite() { best_ms * SUSPECT_LATENCIES } else { 0.0 };
        SUSPECT.max(Duration::from_secs_f64(usual_ms / 1e3))
    }

    fn find(&mut self, turn: Turn) -> Option<&mut Address> {
        self.all.iter_mut().find(|a| a.address == turn.address)
    }

    /// The head of the answer came.
    pub(super) fn answered(&mut self, turn: Turn, now: Duration) {
        let Some(address) = self.find(turn) else { return };
        let Some(begun) = address.unanswered.remove(&turn.id) else { return };
        let took_ms = now.saturating_sub(begun).as_secs_f64() * 1e3;
        let mean = address.latency_ms.unwrap_or(took_ms);
        address.latency_ms = Some(mean + WEIGHT * (took_ms - mean));
        address.answered = Some(now);
        address.failures = 0;
        address.out_for = Duration::ZERO;
        address.out_until = Duration::ZERO;
    }

    /// No answer came.
    pub(super) fn failed(&mut self, turn: Turn, failure: Failure, now: Duration) {
        let after = self.suspect_after();
        let Some(address) = self.find(turn) else { return };
        let Some(begun) = address.unanswered.remove(&turn.id) else { return };
        if address.answered_since(begun) {
            return;
        }
        let is_dead = match failure {
            Failure::Unreachable => true,
            Failure::Broken => {
                address.failures += 1;
                address.failures >= FAILURES
            }
            Failure::GivenUp if now.saturating_sub(begun) >= after => true,
            // Overtaken by a hedge before it was suspicious: several in a row are as telling.
            Failure::GivenUp if now.saturating_sub(begun) >= after / 8 => {
                address.failures += 1;
                address.failures >= FAILURES
            }
            Failure::GivenUp => false,
        };
        // Requests sent before it was taken out do not count again.
        if is_dead && (address.out_for.is_zero() || begun >= address.out_until) {
            address.take_out(now);
        }
    }

    /// The request, its body included, is over.
    pub(super) fn over(&mut self, turn: Turn) {
        if let Some(address) = self.find(turn) {
            address.load = address.load.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uplake_testkit::random::Random;

    fn at(i: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, i], 443))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn eight() -> Addresses {
        let mut addresses = Addresses::default();
        addresses.named(&(0..8).map(at).collect::<Vec<_>>(), ms(0));
        addresses
    }

    /// Sends `requests`, one each millisecond; address `i` answers after `latency(i)` ms, or never.
    /// Returns the requests per address.
    fn run(latency: impl Fn(usize) -> Option<u64>, requests: u64) -> Vec<u32> {
        let mut addresses = eight();
        let mut random = Random::new(3);
        let mut counts = vec![0; 8];
        let mut due: BTreeMap<(Duration, u64), Turn> = BTreeMap::new();
        for now in (0..requests).map(ms) {
            while let Some(entry) = due.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                let turn = entry.remove();
                addresses.answered(turn, now);
                addresses.over(turn);
            }
            let turn = addresses.choose(now, &[], false, |n| random.below(n as u64) as usize);
            let turn = turn.expect("eight addresses");
            let index = (0..8).find(|&i| at(i) == turn.address).expect("one of ours");
            counts[usize::from(index)] += 1;
            if let Some(latency) = latency(usize::from(index)) {
                due.insert((now + ms(latency), turn.id), turn);
            }
        }
        counts
    }

    #[test]
    fn equal_addresses_share_the_load() {
        let counts = run(|_| Some(20), 8000);
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_slow_address_gets_little_and_a_dead_one_almost_nothing() {
        let counts = run(|i| Some(if i == 3 { 200 } else { 20 }), 8000);
        assert!(counts[3] < 150, "{counts:?}");
        let counts = run(|i| (i != 3).then_some(20), 8000);
        assert!(counts[3] <= 16, "{counts:?}");
    }

    #[test]
    fn a_dead_address_is_left_out_and_tried_again_later() {
        let mut addresses = eight();
        let not = |i: u8| (0..8).filter(|&j| j != i).map(at).collect::<Vec<_>>();
        let only_three = |now, addresses: &mut Addresses| {
            addresses.choose(now, &not(3), false, |_| 0).expect("an address")
        };
        let turn = only_three(ms(0), &mut addresses);
        assert_eq!(turn.address, at(3));
        let is_chosen = |addresses: &mut Addresses, now: Duration| {
            (0..100).any(|i| {
                let turn = addresses.choose(now, &[], false, |n| (i * 7 + n / 2) % n).expect("one");
                addresses.answered(turn, now);
                addresses.over(turn);
                turn.address == at(3)
            })
        };
        assert!(!is_chosen(&mut addresses, ms(251)), "suspected after 250 ms");
        addresses.failed(turn, Failure::GivenUp, ms(300));
        addresses.over(turn);
        assert!(!is_chosen(&mut addresses, ms(5_200)), "out for 5 s");
        assert!(is_chosen(&mut addresses, ms(5_301)), "tried again, and it answers");
        assert!(is_chosen(&mut addresses, ms(5_302)), "so it is well");
    }

    #[test]
    fn an_address_that_hedges_always_overtake_is_left_out() {
        let mut addresses = eight();
        let not_three: Vec<_> = (0..8).filter(|&i| i != 3).map(at).collect();
        for now in (0..4).map(|i| ms(100 * i)) {
            let turn = addresses.choose(now, &not_three, false, |_| 0).expect("one");
            let is_out = turn.address != at(3);
            assert_eq!(is_out, now >= ms(300), "after {now:?}");
            addresses.failed(turn, Failure::GivenUp, now + ms(60));
            addresses.over(turn);
        }
        // On one that answers others meanwhile it means nothing.
        let mut addresses = eight();
        for now in (0..20).map(|i| ms(100 * i)) {
            let slow = addresses.choose(now, &not_three, false, |_| 0).expect("one");
            let quick = addresses.choose(now, &not_three, false, |_| 0).expect("one");
            assert_eq!((slow.address, quick.address), (at(3), at(3)));
            addresses.answered(quick, now + ms(20));
            addresses.failed(slow, Failure::GivenUp, now + ms(60));
            addresses.over(slow);
            addresses.over(quick);
        }
    }

    #[test]
    fn a_far_store_is_not_a_dead_one() {
        let counts = run(|_| Some(600), 8000);
        assert!(counts.iter().all(|count| (500..1500).contains(count)), "{counts:?}");
    }

    #[test]
    fn one_trial_at_a_time_and_longer_each_time() {
        let mut addresses = Addresses::default();
        addresses.named(&[at(1), at(2)], ms(0));
        let mut out = Vec::new();
        let mut now = ms(0);
        for _ in 0..4 {
            let turn = addresses.choose(now, &[at(2)], false, |_| 0).expect("one");
            assert_eq!(turn.address, at(1));
            let other = addresses.choose(now, &[], false, |_| 0).expect("one");
            addresses.failed(turn, Failure::Unreachable, now);
            addresses.over(turn);
            addresses.over(other);
            let address = addresses.all.iter().find(|a| a.address == at(1)).expect("known");
            out.push(address.out_for.as_secs());
            now = address.out_until;
        }
        assert_eq!(out, [5, 10, 20, 40]);
    }

    #[test]
    fn when_all_are_out_the_first_to_return_is_taken() {
        let mut addresses = Addresses::default();
        addresses.named(&[at(1), at(2)], ms(0));
        for (i, now) in [(1, 0), (2, 10)] {
            let turn = addresses.choose(ms(now), &[at(3 - i)], false, |_| 0).expect("one");
            assert_eq!(turn.address, at(i));
            addresses.failed(turn, Failure::Unreachable, ms(now));
        }
        assert_eq!(
            addresses.choose(ms(20), &[], false, |_| 0).map(|turn| turn.address),
            Some(at(1))
        );
        assert_eq!(
            addresses.choose(ms(20), &[at(1)], false, |_| 0).map(|turn| turn.address),
            Some(at(2))
        );
    }

    #[test]
    fn careful_requests_go_where_answers_came_from() {
        let mut addresses = eight();
        let turn = addresses.choose(ms(0), &[], false, |_| 0).expect("one");
        addresses.answered(turn, ms(1));
        addresses.over(turn);
        for now in (2..50).map(ms) {
            let careful = addresses.choose(now, &[], true, |n| n - 1).expect("one");
            assert_eq!(careful.address, turn.address);
            addresses.answered(careful, now);
        }
    }

    #[test]
    fn single_breaks_do_not_take_an_address_out() {
        let mut addresses = eight();
        for now in (0..100).map(ms) {
            let turn = addresses.choose(now, &[], false, |_| 0).expect("one");
            addresses.failed(turn, Failure::Broken, now);
            addresses.over(turn);
            let turn = addresses.choose(now, &[], false, |_| 0).expect("one");
            addresses.answered(turn, now + ms(1));
            addresses.over(turn);
        }
        assert!(addresses.all.iter().all(|a| a.out_for.is_zero()));
    }

    #[test]
    fn what_dns_forgets_is_forgotten_and_the_number_is_bounded() {
        let mut addresses = eight();
        addresses.named(&[at(9)], ms(299_000));
        assert_eq!(addresses.all.len(), 9);
        addresses.named(&[at(9)], ms(300_000));
        assert_eq!(addresses.all.len(), 1);
        for i in 0..200 {
            addresses.named(&[at(i)], ms(300_000 + u64::from(i)));
        }
        assert_eq!(addresses.all.len(), MOST_ADDRESSES);
    }
}
