//! Threads of tenants: each tenant's statements compute on threads of its own.
//!
//! A runtime's thread stays with a task until that waits, and a scan waits seldom: a short statement would stand behind
//! the long ones of others at each of its steps. Between threads the system shares the cores out every few
//! milliseconds, whatever they do.
//!
//! # Invariants
//! - Statements of those who are no tenant's, and of tenants beyond [`MOST_LANES`], are on the threads of the process.
//!
//! # Not here
//! Whose turn it is to compute at all (the engine's admission).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::drivers::{Drivers, STACK_BYTES};

/// Tenants that have threads of their own; each costs about twice as many threads as there are cores, which sleep.
const MOST_LANES: usize = 32;

/// The threads of one tenant, or of all others.
#[derive(Debug)]
pub(crate) struct Lane {
    /// They go first.
    drivers: Drivers,
    runtime: Option<Runtime>,
}

impl Lane {
    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // It may be dropped by a thread of another runtime, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The threads of all.
#[derive(Debug)]
pub(crate) struct Lanes {
    threads: usize,
    common: Arc<Lane>,
    tenants: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Lanes {
    /// What is no tenant's computes on `common`.
    pub fn new(common: &Handle) -> Self {
        let threads = common.metrics().num_workers();
        let common = Arc::new(Lane { drivers: Drivers::new(common), runtime: None });
        Self { threads, common, tenants: Mutex::default() }
    }

    /// Where statements of no tenant are.
    pub fn common(&self) -> &Arc<Lane> {
        &self.common
    }

    /// Where statements of a tenant are.
    pub fn of(&self, tenant: Option<&str>) -> Arc<Lane> {
        let Some(tenant) = tenant else { return Arc::clone(&self.common) };
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = tenants.get(tenant) {
            return Arc::clone(lane);
        }
        if tenants.len() >= MOST_LANES {
            return Arc::clone(&self.common);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("tenant")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                let drivers = Drivers::new(runtime.handle());
                let lane = Arc::new(Lane { drivers, runtime: Some(runtime) });
                tenants.insert(tenant.to_owned(), Arc::clone(&lane));
                lane
            }
            // Without threads of its own it is as everybody.
            Err(_) => Arc::clone(&self.common),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_tenant_that_keeps_its_threads_keeps_nobody_elses() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let (flood, small) = (lanes.of(Some("flood")), lanes.of(Some("small")));
        assert!(Arc::ptr_eq(&flood, &lanes.of(Some("flood"))));
        assert!(Arc::ptr_eq(&lanes.of(None), lanes.common()));
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
        let stopped = Arc::new(Mutex::new(stopped));
        let _busy = flood.drivers().spawn(async move {
            for _ in 0..4 {
                let stopped = Arc::clone(&stopped);
                tokio::spawn(async move { stopped.lock().unwrap().recv().is_err() });
            }
            std::future::pending::<()>().await;
        });
        std::thread::sleep(Duration::from_millis(20));
        for lane in [&small, lanes.common()] {
            let (tell, told) = oneshot::channel();
            let _works = lane.drivers().spawn(async move {
                let sum = tokio::spawn(async { 3 + 4 }).await.unwrap();
                tell.send(sum).unwrap();
            });
            assert_eq!(futures::executor::block_on(told), Ok(7));
        }
        drop(stop);
    }

    #[test]
    fn tenants_with_threads_are_bounded() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let all: Vec<Arc<Lane>> =
            (0..MOST_LANES + 1).map(|n| lanes.of(Some(&format!("tenant {n}")))).collect();
        assert!(Arc::ptr_eq(&all[MOST_LANES], lanes.common()));
        assert!(!Arc::ptr_eq(&all[0], lanes.common()));
    }
}
