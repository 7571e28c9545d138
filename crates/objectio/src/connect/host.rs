//! One name's addresses and the idle connections to them.
//!
//! # Invariants
//! - A connection is used by one request at a time and reused only after its body was read to the
//!   end.
//! - Idle connections per address are bounded, and so is their age.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;

use super::dial::{Sender, dial};
use super::health::{Addresses, Failure, Turn};
use crate::clock::Clock;
use crate::counters::count;
use crate::dice::Dice;
use crate::ranges::Trace;
use crate::threads::on_io_threads;

/// S3 closes idle connections after some tens of seconds.
const LONGEST_IDLE: Duration = Duration::from_secs(20);
const MOST_IDLE: usize = 128;
/// A second connection is tried beside one that takes longer than this, so that an address that
/// swallows packets costs no more.
const SECOND_DIAL: Duration = Duration::from_millis(250);
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// A host that nobody has ever answered at is given up after this: a store that is starting is there by
/// then, and a typing mistake is told soon.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);

/// A name and port we send requests to.
#[derive(Debug)]
pub(super) struct Host {
    name: String,
    port: u16,
    tls: bool,
    /// Given in the settings instead of DNS.
    fixed: Option<Vec<IpAddr>>,
    refresh: Duration,
    clock: Arc<dyn Clock>,
    dice: Dice,
    state: Mutex<State>,
    is_asking: AtomicBool,
    /// When it was first wanted.
    begun: Duration,
    was_reached: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    addresses: Addresses,
    asked: Option<Duration>,
    idle: HashMap<SocketAddr, Vec<(Sender, Duration)>>,
}

/// A request's hold on an address; dropping it before an answer is noticed as such.
#[derive(Debug)]
pub(super) struct Hold {
    host: Arc<Host>,
    turn: Turn,
    is_decided: bool,
}

impl Hold {
    pub(super) fn address(&self) -> SocketAddr {
        self.turn.address
    }

    pub(super) fn answered(&mut self) {
        self.is_decided = true;
        self.host.state.lock().addresses.answered(self.turn, self.host.clock.now());
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        self.is_decided = true;
        self.host.state.lock().addresses.failed(self.turn, failure, self.host.clock.now());
    }

    /// Puts `sender` back for the next request.
    pub(super) fn keep(&self, sender: Sender) {
        let now = self.host.clock.now();
        let mut state = self.host.state.lock();
        let idle = state.idle.entry(self.turn.address).or_default();
        if idle.len() < MOST_IDLE {
            idle.push((sender, now));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let now = self.host.clock.now();
        let mut state = self.host.state.lock();
        if !self.is_decided {
            state.addresses.failed(self.turn, Failure::GivenUp, now);
        }
        state.addresses.over(self.turn);
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

impl Host {
    pub(super) fn new(
        name: &str,
        port: u16,
        tls: bool,
        fixed: Option<Vec<IpAddr>>,
        refresh: Duration,
        clock: Arc<dyn Clock>,
        dice: Dice,
    ) -> Arc<Self> {
        Arc::new(Self {
            begun: clock.now(),
            name: name.to_owned(),
            port,
            tls,
            fixed,
            refresh,
            clock,
            dice,
            state: Mutex::default(),
            is_asking: AtomicBool::new(false),
            was_reached: AtomicBool::new(false),
        })
    }

    /// A connection to an address, none that `trace` has tried if there are others.
    pub(super) async fn connect(
        self: &Arc<Self>,
        trace: &Trace,
        careful: bool,
    ) -> io::Result<(Hold, Sender)> {
        self.resolve().await?;
        let mut hold = self.choose(trace, careful)?;
        if let Some(sender) = self.idle(hold.address()) {
            return Ok((hold, sender));
        }
        let first = pin!(self.dial(hold.address()));
        match select(first, self.clock.sleep(SECOND_DIAL)).await {
            Either::Left((Ok(sender), _)) => Ok((hold, sender)),
            Either::Left((Err(error), _)) => {
                hold.failed(Failure::Unreachable);
                Err(error)
            }
            Either::Right(((), first)) => {
                let mut other = self.choose(trace, careful)?;
                if let Some(sender) = self.idle(other.address()) {
                    return Ok((other, sender));
                }
                let second = pin!(self.dial(other.address()));
                match select(first, second).await {
                    Either::Left((Ok(sender), _)) => {
                        // Nobody asked the other for an answer: it is not to blame.
                        Ok((hold, sender))
                    }
                    Either::Right((Ok(sender), _)) => Ok((other, sender)),
                    Either::Left((Err(_), second)) => {
                        hold.failed(Failure::Unreachable);
                        second.await.map(|sender| (other, sender))
                    }
                    Either::Right((Err(_), first)) => {
                        other.failed(Failure::Unreachable);
                        first.await.map(|sender| (hold, sender))
                    }
                }
            }
        }
    }

    /// Whether an address that `trace` tried has gone silent.
    pub(super) fn is_silent(&self, trace: &Trace) -> bool {
        let tried = trace.tried();
        self.state.lock().addresses.is_any_suspect(&tried, self.clock.now())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Sender> {
        count(|c| &c.connects, 1);
        // A connection is read by tasks of the threads that made it, whoever asks over it later.
        let tls = self.tls.then(|| self.name.clone());
        let dialled = on_io_threads(async move { dial(address, tls.as_deref()).await }).await;
        if dialled.is_ok() {
            self.was_reached.store(true, Ordering::Relaxed);
        }
        dialled
    }

    /// Does it make no sense to try again after `error`?
    pub(super) fn is_hopeless(&self, error: &io::Error) -> bool {
        if self.was_reached.load(Ordering::Relaxed) {
            return false;
        }
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        tls.is_some() || self.clock.now().saturating_sub(self.begun) >= FIRST_CONNECTION
    }

    fn choose(self: &Arc<Self>, trace: &Trace, careful: bool) -> io::Result<Hold> {
        let now = self.clock.now();
        let mut avoided = trace.tried();
        let dice = |limit| self.dice.below(limit);
        let turn = self.state.lock().addresses.choose(now, &avoided, careful, dice);
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let turn = turn.ok_or_else(none)?;
        if !avoided.contains(&turn.address) {
            avoided.push(turn.address);
        }
        Ok(Hold { host: Arc::clone(self), turn, is_decided: false })
    }

    /// The connection to `address` that was used last: it is the likeliest to be open.
    fn idle(&self, address: SocketAddr) -> Option<Sender> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let idle = state.idle.get_mut(&address)?;
        idle.retain(|(sender, since)| {
            !sender.is_closed() && now.saturating_sub(*since) < LONGEST_IDLE
        });
        idle.pop().map(|(sender, _)| sender)
    }

    /// Makes sure there are addresses; asks again in the background when they are old.
    async fn resolve(self: &Arc<Self>) -> io::Result<()> {
        let now = self.clock.now();
        let (is_empty, asked) = {
            let state = self.state.lock();
            (state.addresses.is_empty(), state.asked)
        };
        if is_empty {
            return self.ask().await;
        }
        let is_old = asked.is_none_or(|at| now.saturating_sub(at) >= self.refresh);
        if is_old && !self.is_asking.swap(true, Ordering::AcqRel) {
            let host = Arc::clone(self);
            tokio::spawn(async move {
                // If DNS does not answer, the addresses we have are the best there are.
                let _ = host.ask().await;
                host.is_asking.store(false, Ordering::Release);
            });
        }
        Ok(())
    }

    async fn ask(&self) -> io::Result<()> {
        let found: Vec<SocketAddr> = match &self.fixed {
            Some(fixed) => fixed.iter().map(|&ip| SocketAddr::new(ip, self.port)).collect(),
            None => {
                let lookup = tokio::net::lookup_host((self.name.as_str(), self.port));
                let late = || io::Error::new(io::ErrorKind::TimedOut, "DNS does not answer");
                let found = tokio::time::timeout(DNS_TIMEOUT, lookup).await.map_err(|_| late())?;
                found?.collect()
            }
        };
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.addresses.named(&found, now);
        state.asked = Some(now);
        Ok(())
    }
}
