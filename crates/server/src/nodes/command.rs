//! Nodes that compute for a command, which serves nobody.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use uplake_engine::Session;

use super::trust::{Clock, Trust};
use super::warehouse::Warehouse;
use super::wire::check_names;
use super::worker::Me;
use crate::metrics::Metrics;
use crate::node_options::NodeOptions;
use crate::random::system_random;
use crate::serve::ServeError;

/// What is waited for members to answer.
const NODES_TIME: Duration = Duration::from_secs(2);

/// Who computes for a command, and the connections to them; they end when this is dropped.
#[derive(Debug)]
pub struct CommandNodes {
    network: Option<Runtime>,
}

impl CommandNodes {
    /// The session whose statements and reports the members compute in parts; `command` is who they are told asks. Without
    /// members it is the session as it was.
    ///
    /// # Errors
    /// [`ServeError::NodeBeyond`] for a member on another machine without what that needs, [`ServeError::Trust`] for files
    /// that cannot be used.
    pub async fn join(
        session: Session,
        command: &str,
        options: &NodeOptions,
        clock: Clock,
    ) -> Result<(Session, Self), ServeError> {
        if let Some(beyond) = options.beyond_loopback() {
            return Err(ServeError::NodeBeyond(beyond));
        }
        let Some(members) = options.members.clone() else {
            return Ok((session, Self { network: None }));
        };
        // It ends before they are replaced.
        let trust = Trust::open(&options.trust, clock)?;
        check_names(&members, &trust)?;
        let network = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("network")
            .enable_all()
            .build()
            .map_err(ServeError::Thread)?;
        let me = Me::of_command(command, &options.warehouse);
        let (lake, metrics) = (session.lake().location(), Metrics::new(0));
        // A command takes no parts, and is never about to end for others.
        let (_, drain) = watch::channel(false);
        let handle = network.handle().clone();
        let random = Arc::new(system_random);
        let (warehouse, peers) =
            Warehouse::new((&lake, metrics), members, me, (false, handle, random), trust, drain);
        let (first, all_were_asked) = oneshot::channel();
        drop(network.spawn(Arc::clone(&peers).look(first)));
        let _ = tokio::time::timeout(NODES_TIME, all_were_asked).await;
        let session = session.with_elsewhere(Arc::new(warehouse));
        Ok((session, Self { network: Some(network) }))
    }
}

impl Drop for CommandNodes {
    fn drop(&mut self) {
        // It may be dropped where nobody may wait.
        if let Some(network) = self.network.take() {
            network.shutdown_background();
        }
    }
}
