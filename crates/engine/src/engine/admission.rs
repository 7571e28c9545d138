//! Who computes now, and who waits for a slot.
//!
//! A statement takes a slot before it is planned, so that one that waits holds its text and nothing
//! else. More statements at once than keep the cores busy only divide the memory into smaller parts,
//! and each of them takes longer than it would have waited.
//!
//! # Invariants
//! - Within a class and a tenant the first to come is the first to compute.
//! - Of tenants that wait, the one goes next whose statements have computed least for its weight. One that comes
//!   anew begins with as much as the least of the others has: nobody saves up for later.
//! - Batch statements leave a slot to interactive ones, and one of them may always compute.
//! - While those that compute hold more than half of the memory, no further one is begun.
//! - A statement that ran out of memory beside others waits until it has the memory for itself, and
//!   runs again; nobody overtakes it.
//! - A tenant of which nothing computes gets a slot beside those that there are, so that others' long statements do
//!   not keep it waiting.
//! - So many wait, of each tenant and in all; one more is refused.
//! - Dropping a [`Ticket`] leaves the queue, or gives the slot back.
//!
//! # Not here
//! What a statement is, and what it does with its slot (`run`).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::base::alarm::{ended, until};
use crate::base::error::{EngineError, Problem, Result};
use crate::base::sql_state::SqlState;
use crate::base::stop::{Deadline, before};

/// Statements that wait, of all tenants.
const QUEUE: usize = 5000;
/// Slots beside the others, for tenants of which nothing computes, as a part of those.
const GUESTS: usize = 2;
/// Characters of a statement that the queue shows.
const SHOWN_CHARACTERS: usize = 200;

/// What the shortest statement counts, in seconds: tenants whose statements take no time take turns.
const LEAST_SECONDS: f64 = 0.001;

/// Whose statement it is, where several share an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub name: Arc<str>,
    /// Of two tenants that both wait, one of weight 2 gets twice the time of one of weight 1; at least 1.
    pub weight: u32,
    /// Statements of it that compute at once; `None` is as many as there are.
    pub slots: Option<usize>,
    /// Statements of it that wait; `None` is as many as may in all.
    pub queue: Option<usize>,
}

impl Default for Tenant {
    /// Everybody who is nobody's.
    fn default() -> Self {
        Self { name: "".into(), weight: 1, slots: None, queue: None }
    }
}

/// How much a statement's sender minds waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Somebody looks at the screen.
    #[default]
    Interactive,
    /// One of many; all of them together count. Those of a [`Session::batch`](crate::Session::batch)
    /// leave a quarter of the memory to others.
    Batch,
}

/// The statements of a session, as of now.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Statements that may compute at once.
    pub slots: usize,
    /// Those that do, the oldest first.
    pub running: Vec<Listed>,
    /// Those that wait, the next first.
    pub waiting: Vec<Listed>,
}

/// A statement that computes or waits.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Which one it is in its session, from 1.
    pub number: u64,
    /// How it begins.
    pub text: Arc<str>,
    pub class: Class,
    pub tenant: Arc<str>,
    /// Since when it computes, or waits.
    pub since: Instant,
}

/// The slots of a session, and who waits for one.
pub(crate) struct Admission {
    slots: usize,
    /// Is there memory for one more?
    has_room: Box<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Statements that came so far.
    came: u64,
    /// Times that a slot was given so far.
    begun: u64,
    running: Vec<Listed>,
    /// The one that computes has the memory for itself.
    alone: bool,
    /// Those that want to be alone come first.
    waiting: VecDeque<Waiter>,
    /// Of tenants that have statements here, by name.
    shares: HashMap<Arc<str>, Share>,
}

/// What a tenant may have and has had.
struct Share {
    weight: f64,
    slots: usize,
    /// Seconds that its statements computed, those that still do aside, by its weight.
    spent: f64,
}

impl State {
    fn running_of(&self, tenant: &str) -> impl Iterator<Item = &Listed> {
        self.running.iter().filter(move |listed| &*listed.tenant == tenant)
    }

    /// Seconds of a tenant by its weight, those of now included; and whether it may have one more slot.
    fn spent(&self, tenant: &str) -> (f64, bool) {
        let Some(share) = self.shares.get(tenant) else { return (0.0, true) };
        let (mut seconds, mut count) = (0.0, 0);
        for listed in self.running_of(tenant) {
            seconds += listed.since.elapsed().as_secs_f64();
            count += 1;
        }
        (share.spent + seconds / share.weight, count < share.slots)
    }

    /// A statement of a tenant comes.
    fn meet(&mut self, tenant: &Tenant) {
        let is_here = |name: &Arc<str>| {
            self.running.iter().any(|listed| listed.tenant == *name)
                || self.waiting.iter().any(|waiter| waiter.listed.tenant == *name)
        };
        let here: Vec<&Arc<str>> = self.shares.keys().filter(|name| is_here(name)).collect();
        let least = here.iter().map(|name| self.spent(name).0).min_by(f64::total_cmp);
        let is_new = !here.contains(&&tenant.name);
        if here.is_empty() {
            self.shares.clear();
        }
        let (weight, slots) = (f64::from(tenant.weight.max(1)), tenant.slots.unwrap_or(usize::MAX));
        let share = Share { weight, slots, spent: 0.0 };
        let share_here = self.shares.entry(Arc::clone(&tenant.name)).or_insert(share);
        (share_here.weight, share_here.slots) = (weight, slots.max(1));
        if is_new {
            share_here.spent = share_here.spent.max(least.unwrap_or(0.0));
        }
    }

    /// A statement computes no longer.
    fn charge(&mut self, listed: &Listed) {
        if let Some(share) = self.shares.get_mut(&listed.tenant) {
            let seconds = listed.since.elapsed().as_secs_f64();
            share.spent += seconds.max(LEAST_SECONDS) / share.weight;
        }
    }

    /// Takes a statement out of those that compute.
    fn end(&mut self, number: u64) {
        if let Some(at) = self.running.iter().position(|listed| listed.number == number) {
            let listed = self.running.remove(at);
            self.charge(&listed);
        }
    }
}

struct Waiter {
    listed: Listed,
    alone: bool,
    tell: oneshot::Sender<()>,
}

/// A statement's place in the queue, then its slot.
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    number: u64,
    text: Arc<str>,
    class: Class,
    tenant: Arc<str>,
    granted: Option<oneshot::Receiver<()>>,
    came: Instant,
    timeout: Option<Duration>,
    queued: Duration,
    /// Too many wait.
    refused: Option<EngineError>,
    /// `begun` when this one was, if no other computed then.
    begun_alone: Option<u64>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Admission {
    /// `slots`: statements at once, at least 1. `has_room`: may one more begin beside others?
    pub fn new(slots: usize, has_room: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
        let has_room = Box::new(has_room);
        Arc::new(Self { slots: slots.max(1), has_room, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement comes, and may compute until `timeout` from now.
    pub fn join(
        self: &Arc<Self>,
        text: &str,
        class: Class,
        tenant: &Tenant,
        timeout: Option<Duration>,
    ) -> Ticket {
        let text: Arc<str> = text.trim().chars().take(SHOWN_CHARACTERS).collect::<String>().into();
        let came = Instant::now();
        let mut state = self.lock();
        state.came += 1;
        let number = state.came;
        let (tell, granted) = oneshot::channel();
        state.meet(tenant);
        let (tenant, queue) = (Arc::clone(&tenant.name), tenant.queue);
        let listed = Listed {
            number,
            text: Arc::clone(&text),
            class,
            tenant: Arc::clone(&tenant),
            since: came,
        };
        state.waiting.push_back(Waiter { listed, alone: false, tell });
        self.grant(&mut state);
        let refused = refused(&state, number, &tenant, queue);
        if refused.is_some() {
            state.waiting.pop_back();
        }
        drop(state);
        Ticket {
            admission: Arc::clone(self),
            number,
            text,
            class,
            tenant,
            granted: Some(granted),
            came,
            timeout,
            queued: Duration::ZERO,
            refused,
            begun_alone: None,
        }
    }

    /// Gives free slots to those whose turn it is.
    fn grant(&self, state: &mut State) {
        while let Some(next) = self.next(state) {
            let Some(waiter) = state.waiting.remove(next) else { return };
            state.begun += 1;
            state.alone = waiter.alone;
            state.running.push(Listed { since: Instant::now(), ..waiter.listed });
            // One that is not there any more gives its slot back itself.
            let _ = waiter.tell.send(());
        }
    }

    /// The place in the queue of who may begin now.
    fn next(&self, state: &State) -> Option<usize> {
        let running = state.running.len();
        let first = state.waiting.front()?;
        if first.alone {
            return (running == 0).then_some(0);
        }
        let most = self.slots + self.slots / GUESTS;
        if state.alone && running > 0 || running >= most || running > 0 && !(self.has_room)() {
            return None;
        }
        let batch = state.running.iter().filter(|l| l.class == Class::Batch).count();
        let of = |class| self.next_of(state, class);
        let may = batch == 0 || batch + 1 < self.slots;
        match (of(Class::Interactive), of(Class::Batch).filter(|_| may)) {
            (Some(interactive), Some(one)) if batch == 0 => Some(interactive.min(one)),
            (Some(interactive), _) => Some(interactive),
            (None, one) => one,
        }
    }

    /// The place of who is next of a class: the first of the tenant that has had least.
    fn next_of(&self, state: &State, class: Class) -> Option<usize> {
        let of_class = |waiter: &Waiter| waiter.listed.class == class;
        let first = state.waiting.iter().position(of_class)?;
        let is_full = state.running.len() >= self.slots;
        if state.shares.len() == 1 {
            let may = state.spent(&state.waiting[first].listed.tenant).1;
            return (may && !is_full).then_some(first);
        }
        let mut seen: Vec<&str> = Vec::new();
        let mut best: Option<(f64, usize)> = None;
        for (at, waiter) in state.waiting.iter().enumerate().filter(|(_, w)| of_class(w)) {
            let tenant = &*waiter.listed.tenant;
            if seen.contains(&tenant) {
                continue;
            }
            seen.push(tenant);
            let (spent, may) = state.spent(tenant);
            let may = may && (!is_full || state.running_of(tenant).next().is_none());
            if may && best.is_none_or(|(least, _)| spent < least) {
                best = Some((spent, at));
            }
        }
        best.map(|(_, at)| at)
    }

    fn leave(&self, number: u64) {
        let mut state = self.lock();
        state.end(number);
        state.waiting.retain(|waiter| waiter.listed.number != number);
        state.alone &= !state.running.is_empty();
        self.grant(&mut state);
    }

    /// Who computes and who waits.
    pub fn queue(&self) -> Queue {
        let state = self.lock();
        let waiting = state.waiting.iter().map(|waiter| waiter.listed.clone()).collect();
        Queue { slots: self.slots, running: state.running.clone(), waiting }
    }
}

/// Why a statement that has just come may not wait; `None` if it may, or need not.
fn refused(state: &State, number: u64, tenant: &str, queue: Option<usize>) -> Option<EngineError> {
    state.waiting.back().filter(|waiter| waiter.listed.number == number)?;
    let before = state.waiting.len() - 1;
    let of_tenant = || state.waiting.iter().filter(|w| &*w.listed.tenant == tenant).count() - 1;
    let message = match queue {
        _ if before >= QUEUE => format!("{before} statements wait already, which is the most"),
        Some(most) if of_tenant() >= most => {
            format!("{} of {most} statements of tenant `{tenant}` wait already", of_tenant())
        }
        _ => return None,
    };
    let problem = Problem::new(SqlState::ConfigurationLimitExceeded, message);
    Some(EngineError::Limit(problem).with_hint("ask again when some of them are done"))
}

impl Ticket {
    /// Waits for the slot. Dropping the future keeps the place, dropping the ticket does not.
    ///
    /// # Errors
    /// [`EngineError::TimedOut`] with the place in the queue; [`EngineError::Limit`] if too many wait.
    pub async fn granted(&mut self) -> Result<()> {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let (deadline, since) = (self.deadline(), Instant::now());
        let Some(granted) = &mut self.granted else { return Ok(()) };
        if granted.try_recv().is_err() {
            let waited = match deadline {
                Some(at) => matches!(until(at, granted).await, Some(Ok(()))),
                None => granted.await.is_ok(),
            };
            self.queued += since.elapsed();
            if !waited {
                return Err(self.timed_out());
            }
        }
        self.granted = None;
        let state = self.admission.lock();
        self.begun_alone = (state.running.len() == 1).then_some(state.begun);
        Ok(())
    }

    /// Gives the slot back, and waits for one with nobody else computing.
    ///
    /// # Errors
    /// As [`Self::granted`].
    pub async fn granted_alone(&mut self) -> Result<()> {
        let (tell, granted) = oneshot::channel();
        {
            let mut state = self.admission.lock();
            state.end(self.number);
            let behind = state.waiting.iter().take_while(|waiter| waiter.alone).count();
            let (text, since) = (Arc::clone(&self.text), Instant::now());
            let (class, tenant) = (self.class, Arc::clone(&self.tenant));
            let listed = Listed { number: self.number, text, class, tenant, since };
            state.waiting.insert(behind, Waiter { listed, alone: true, tell });
            self.admission.grant(&mut state);
        }
        self.granted = Some(granted);
        self.granted().await
    }

    /// Has it had the memory for itself since it began?
    pub fn is_alone(&self) -> bool {
        let state = self.admission.lock();
        self.begun_alone == Some(state.begun)
    }

    /// Does a part of the statement's work, until its deadline.
    ///
    /// # Errors
    /// [`EngineError::TimedOut`].
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match self.deadline() {
            None => Ok(work.await),
            Some(at) => {
                let (timeout, queued) = (self.timeout.unwrap_or_default(), self.queued);
                let work = before(Deadline { at, timeout, came: self.came, queued }, work);
                until(at, work).await.ok_or_else(|| ended(self.timed_out()))
            }
        }
    }

    /// When its time is over; `None` if it has no end.
    pub fn deadline(&self) -> Option<Instant> {
        self.came.checked_add(self.timeout?)
    }

    /// What to say at the deadline.
    pub fn timed_out(&self) -> EngineError {
        let queue = self.admission.queue();
        let place = queue.waiting.iter().position(|listed| listed.number == self.number);
        EngineError::TimedOut {
            timeout: self.timeout.unwrap_or_default(),
            queued: self.queued,
            ran: self.came.elapsed().saturating_sub(self.queued),
            place: place.map(|before| (before + 1, queue.waiting.len())),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.admission.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;

    use super::*;

    fn admission(slots: usize) -> Arc<Admission> {
        Admission::new(slots, || true)
    }

    fn numbers(listed: &[Listed]) -> Vec<u64> {
        listed.iter().map(|listed| listed.number).collect()
    }

    fn check(admission: &Admission, running: &[u64], waiting: &[u64]) {
        let queue = admission.queue();
        assert_eq!(
            (numbers(&queue.running), numbers(&queue.waiting)),
            (running.into(), waiting.into())
        );
    }

    #[test]
    fn the_first_to_come_is_the_first_to_compute() {
        let admission = admission(2);
        let mut tickets: Vec<Option<Ticket>> = (0..5)
            .map(|_| Some(admission.join("SELECT 1", Class::Interactive, &Tenant::default(), None)))
            .collect();
        check(&admission, &[1, 2], &[3, 4, 5]);
        // One that waits goes away, then one that computes.
        tickets[3] = None;
        tickets[0] = None;
        check(&admission, &[2, 3], &[5]);
        assert!(tickets[2].as_mut().unwrap().granted().now_or_never().is_some());
        assert!(tickets[4].as_mut().unwrap().granted().now_or_never().is_none());
        tickets.clear();
        check(&admission, &[], &[]);
    }

    #[test]
    fn batch_statements_leave_a_slot_and_get_one() {
        let admission = admission(3);
        let join = |class| admission.join("SELECT 1", class, &Tenant::default(), None);
        let mut batch: Vec<Ticket> = (0..4).map(|_| join(Class::Batch)).collect();
        check(&admission, &[1, 2], &[3, 4]);
        let one = join(Class::Interactive);
        let next = join(Class::Interactive);
        check(&admission, &[1, 2, 5], &[3, 4, 6]);
        drop(batch.remove(0));
        check(&admission, &[2, 5, 6], &[3, 4]);
        // The last of a class that came first gets the next slot.
        let later = join(Class::Interactive);
        drop(batch.remove(0));
        check(&admission, &[5, 6, 3], &[4, 7]);
        drop((one, next, later, batch));
        check(&admission, &[], &[]);
    }

    #[test]
    fn one_that_ran_out_of_memory_computes_alone() {
        let admission = admission(2);
        let join = || admission.join("SELECT 1", Class::Interactive, &Tenant::default(), None);
        let (mut first, mut second, third) = (join(), join(), join());
        assert!(
            first.granted().now_or_never().is_some() && second.granted().now_or_never().is_some()
        );
        assert!(!first.is_alone() && !second.is_alone());
        assert!(first.granted_alone().now_or_never().is_none());
        // Nobody overtakes.
        check(&admission, &[2], &[1, 3]);
        drop(second);
        check(&admission, &[1], &[3]);
        assert!(first.granted().now_or_never().is_some() && first.is_alone());
        drop(first);
        check(&admission, &[3], &[]);
        drop(third);
    }

    #[test]
    fn a_statement_without_others_is_alone_until_one_comes() {
        let admission = admission(2);
        let mut first = admission.join("SELECT 1", Class::Interactive, &Tenant::default(), None);
        assert!(first.granted().now_or_never().is_some() && first.is_alone());
        drop(admission.join("SELECT 2", Class::Interactive, &Tenant::default(), None));
        assert!(!first.is_alone());
    }

    #[test]
    fn none_is_begun_while_memory_is_taken() {
        let room = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&room);
        let admission = Admission::new(4, move || asked.load(Ordering::Relaxed));
        let join = || admission.join("SELECT 1", Class::Interactive, &Tenant::default(), None);
        let (first, second, third) = (join(), join(), join());
        check(&admission, &[1], &[2, 3]);
        room.store(true, Ordering::Relaxed);
        drop(first);
        check(&admission, &[2, 3], &[]);
        drop((second, third));
    }

    fn tenant(name: &str, weight: u32, slots: Option<usize>) -> Tenant {
        Tenant { name: name.into(), weight, slots, queue: None }
    }

    /// Tenants of statements in the order in which they are begun, one at a time.
    fn order(admission: &Arc<Admission>, mut tickets: Vec<(String, Ticket)>) -> Vec<String> {
        let mut order = Vec::new();
        while !tickets.is_empty() {
            let running = numbers(&admission.queue().running);
            let at = tickets.iter().position(|(_, ticket)| running.contains(&ticket.number));
            let (name, ticket) = tickets.remove(at.unwrap());
            order.push(name);
            drop(ticket);
        }
        order
    }

    #[test]
    fn tenants_take_turns_by_their_weights() {
        let admission = admission(1);
        let (flood, small) = (tenant("flood", 1, None), tenant("small", 1, None));
        let mut tickets = Vec::new();
        let mut join = |tenant: &Tenant| {
            let ticket = admission.join("SELECT 1", Class::Interactive, tenant, None);
            tickets.push((tenant.name.to_string(), ticket));
        };
        (0..20).for_each(|_| join(&flood));
        (0..3).for_each(|_| join(&small));
        let found = order(&admission, tickets);
        // One computes already when the other comes.
        assert!(found[..8].iter().filter(|name| *name == "small").count() == 3, "{found:?}");
        let heavy = tenant("heavy", 3, None);
        let mut tickets = Vec::new();
        for tenant in [&flood, &heavy] {
            for _ in 0..24 {
                let ticket = admission.join("SELECT 1", Class::Interactive, tenant, None);
                tickets.push((tenant.name.to_string(), ticket));
            }
        }
        let found = order(&admission, tickets);
        let heavy = found[..24].iter().filter(|name| *name == "heavy").count();
        assert!((16..=20).contains(&heavy), "{found:?}");
    }

    #[test]
    fn a_tenant_has_its_slots_and_nobody_saves_up() {
        let admission = admission(3);
        let (narrow, other) = (tenant("narrow", 1, Some(1)), tenant("other", 1, None));
        let join = |tenant: &Tenant| admission.join("SELECT 1", Class::Interactive, tenant, None);
        let (first, second) = (join(&narrow), join(&narrow));
        check(&admission, &[1], &[2]);
        let third = join(&other);
        check(&admission, &[1, 3], &[2]);
        drop(first);
        check(&admission, &[3, 2], &[]);
        drop((second, third));
        let state = admission.lock();
        assert!(state.running.is_empty() && state.waiting.is_empty());
        drop(state);
        // Whoever comes when nobody is there begins from nothing.
        let _ticket = join(&narrow);
        assert_eq!(admission.lock().shares.len(), 1);
    }

    #[test]
    fn a_tenant_of_which_nothing_computes_does_not_wait_for_others() {
        let admission = admission(2);
        let (flood, small) = (tenant("flood", 1, None), tenant("small", 1, None));
        let join = |tenant: &Tenant| admission.join("SELECT 1", Class::Interactive, tenant, None);
        let mut flooding: Vec<Ticket> = (0..4).map(|_| join(&flood)).collect();
        check(&admission, &[1, 2], &[3, 4]);
        let (first, second) = (join(&small), join(&small));
        check(&admission, &[1, 2, 5], &[3, 4, 6]);
        // The slot beside the others is not for those that have one.
        drop(first);
        check(&admission, &[1, 2, 6], &[3, 4]);
        drop(flooding.remove(0));
        check(&admission, &[2, 6], &[3, 4]);
        drop(second);
        check(&admission, &[2, 3], &[4]);
    }

    #[test]
    fn more_than_a_tenants_queue_are_refused() {
        let admission = admission(1);
        let (narrow, other) =
            (Tenant { queue: Some(1), ..tenant("t", 1, Some(1)) }, tenant("o", 1, None));
        let join = |tenant: &Tenant| admission.join("SELECT 1", Class::Interactive, tenant, None);
        let (mut first, mut second, mut third) = (join(&narrow), join(&narrow), join(&narrow));
        assert!(first.granted().now_or_never().unwrap().is_ok());
        assert!(second.granted().now_or_never().is_none());
        let refused = third.granted().now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code().as_str(), "53400");
        assert!(refused.message().contains("1 of 1"), "{refused}");
        drop(third);
        let mut others = [join(&other), join(&other)];
        assert!(others[1].granted().now_or_never().is_none(), "theirs is another queue");
        drop((first, others));
        check(&admission, &[2], &[]);
    }

    #[test]
    fn the_place_is_known_at_the_deadline() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let admission = admission(1);
            let _first = admission.join("SELECT 1", Class::Interactive, &Tenant::default(), None);
            let _second = admission.join("SELECT 2", Class::Interactive, &Tenant::default(), None);
            let mut third = admission.join(
                "SELECT 3",
                Class::Interactive,
                &Tenant::default(),
                Some(Duration::ZERO),
            );
            let error = third.granted().await.unwrap_err();
            assert!(matches!(error, EngineError::TimedOut { place: Some((2, 2)), .. }), "{error}");
        });
    }
}
