//! The one place where it is asked whether somebody may: connect, log in, run a statement, load rows.
//!
//! # Not here
//! What there is of limits and what is counted (`limits`); who may see or change what (`users`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use uplake_engine::{EngineError, HeldMemory, RunOptions, Session};

use crate::failure::Failure;
use crate::limits::{Arrival, Seat, keep};
use crate::server::Shared;
use crate::spool::Share;
use crate::statements::{Client, Running};

/// What a load takes of memory if there is so much, and what it can do with.
const LOAD_BYTES: usize = 512 << 20;
const LEAST_LOAD_BYTES: usize = 16 << 20;
/// What a load waits for memory that statements have, and how often it looks.
const LOAD_WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Room for a load, until it is dropped.
pub(crate) struct LoadRoom {
    memory: HeldMemory,
    _turn: OwnedSemaphorePermit,
}

impl LoadRoom {
    /// What the load may take.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

fn ip(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().ok().map(|address| address.ip())
}

impl Shared {
    /// A place for a connection from this address.
    ///
    /// # Errors
    /// 53300.
    pub fn seat(&self, peer: SocketAddr) -> Result<Seat, Failure> {
        self.connections.seat(peer.ip()).map_err(|full| {
            self.metrics.refused(full.name());
            full.failure()
        })
    }

    /// The connection is this role's.
    ///
    /// # Errors
    /// 53300 if it has as many as it may.
    pub fn sit(&self, seat: &Seat, role: &str) -> Result<(), Failure> {
        let document = self.directory.current();
        // Without users all are the same one.
        let Some(found) = document.access.roles.get(role) else { return Ok(()) };
        let most = found.connection_limit.map(|most| most as usize);
        let most = most.unwrap_or(self.options.limits.connections_of_role);
        seat.of_role(role, most).map_err(|full| {
            self.metrics.refused(full.name());
            full.failure()
        })
    }

    /// A request of this connection is let in.
    ///
    /// # Errors
    /// As [`Self::sit`].
    pub fn let_in(&self, arrival: Option<&Arrival>, role: &str) -> Result<(), Failure> {
        let Some(arrival) = arrival else { return Ok(()) };
        self.sit(arrival.seat(), role)?;
        arrival.let_in();
        Ok(())
    }

    /// Waits until a login from this address may be looked at.
    ///
    /// # Errors
    /// 53400 if that is long.
    pub async fn pace_login(&self, address: IpAddr) -> Result<(), Failure> {
        let wait = self.login_rate.take(address, Instant::now());
        self.wait(wait, "login_rate", "too many logins from this address").await
    }

    /// Is this name looked at, from this address, after logins of it that failed?
    ///
    /// # Errors
    /// 53400, whether there is such a name or not.
    pub fn may_guess(&self, name: &str, address: IpAddr) -> Result<(), Failure> {
        match self.failed_logins.wait(name, address, Instant::now()) {
            None => Ok(()),
            Some(left) => {
                self.metrics.refused("failed_logins");
                Err(later("too many failed logins of this name from this address", left))
            }
        }
    }

    async fn wait(
        &self,
        wait: Result<Duration, Duration>,
        why: &'static str,
        message: &str,
    ) -> Result<(), Failure> {
        match wait {
            Ok(Duration::ZERO) => Ok(()),
            Ok(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Err(left) => {
                self.metrics.refused(why);
                Err(later(message, left))
            }
        }
    }

    /// A statement of a client is listed, once its address and its tenant may have it.
    ///
    /// # Errors
    /// 53400.
    pub async fn admit(&self, client: Client, text: &str) -> Result<Running, Failure> {
        if let Some(address) = ip(&client.address) {
            let wait = self.statement_rate.take(address, Instant::now());
            self.wait(wait, "statement_rate", "too many statements from this address").await?;
        }
        let may = self.quotas.check(&client.role);
        let running = self.statements.begin(client, text);
        if let Err(failure) = may {
            self.metrics.refused("quota");
            running.failed(&failure);
            return Err(failure);
        }
        Ok(running)
    }

    /// How a statement is run.
    pub fn run_options(&self, running: &Running) -> RunOptions {
        RunOptions {
            tenant: self.tenant(running.role()),
            progress: Some(running.progress()),
            ..RunOptions::default()
        }
    }

    /// What statements that run have used is counted, and those of tenants that have had enough are stopped.
    pub fn count_use(&self) {
        for _ in 0..self.statements.charge() {
            self.metrics.refused("quota");
        }
    }

    /// Keeps what tenants have used, where this machine keeps anything.
    pub fn keep_used(&self) {
        let folder = self.engine.session().lake().local_folder();
        // Without, a restart gives tenants their day anew.
        let _ = folder.map(|folder| keep(&folder, &self.quotas.text()));
    }

    /// Whose spool the rows of a role's statements are kept in.
    pub fn spool_share(&self, role: &str) -> Share {
        let document = self.directory.current();
        let name = document.access.roles.get(role).and_then(|role| role.tenant.as_deref());
        let found = name.and_then(|name| document.access.tenants.get_key_value(name));
        match found.and_then(|(name, tenant)| Some((name, tenant.spool_bytes?))) {
            Some((name, limit)) => Share { tenant: Some(name.as_str().into()), limit },
            None => Share::default(),
        }
    }

    /// The session, whose statements take memory from their tenant's part if it has one.
    pub fn within_tenant(&self, role: &str, session: Session) -> Session {
        let document = self.directory.current();
        let name = document.access.roles.get(role).and_then(|role| role.tenant.as_deref());
        let found = name.and_then(|name| document.access.tenants.get_key_value(name));
        match found.and_then(|(name, tenant)| Some((name, tenant.memory_bytes?))) {
            Some((name, bytes)) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                session.sharing(self.memory_shares.of(&self.engine, name, bytes))
            }
            None => session,
        }
    }

    /// Waits until a load's bytes may come.
    pub async fn pace_load(&self, role: &str, bytes: usize) {
        let wait = self.quotas.comes(role, bytes as u64, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until it is a load's turn and there is memory for it, of what statements may take.
    ///
    /// # Errors
    /// 53200 if statements keep the memory.
    pub async fn load_room(&self, session: &Session) -> Result<LoadRoom, Failure> {
        let turn = Arc::clone(&self.loads).acquire_owned().await;
        let turn = turn.map_err(|_| Failure::bug("nobody may load"))?;
        let take = || session.hold_memory("a load", LOAD_BYTES, LEAST_LOAD_BYTES);
        let mut tries = LOAD_WAIT.div_duration_f64(LOOK_EVERY) as usize;
        let memory = loop {
            match take() {
                Ok(memory) => break memory,
                Err(EngineError::Limit(_)) if tries > 0 => tries -= 1,
                Err(error) => {
                    self.metrics.refused("load_memory");
                    return Err(error.into());
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        Ok(LoadRoom { memory, _turn: turn })
    }
}

fn later(message: &str, left: Duration) -> Failure {
    let seconds = left.as_secs_f64();
    Failure::new("53400", message).with_hint(format!("try again in {seconds:.1} s"))
}
