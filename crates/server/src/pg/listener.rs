//! Who comes in, and how many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::pg::cancel::Cancels;
use crate::pg::conversation::{converse, drained};
use crate::pg::startup::{self, LOGIN_TIME};
use crate::server::Shared;
use crate::sockets;

/// After a socket could not be accepted, as when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves clients until `drain` says to stop; returns when the last is gone, however long that takes.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut drain: watch::Receiver<bool>,
) {
    let cancels = Arc::new(Cancels::default());
    let (of_server, of_connections) = (Arc::downgrade(&shared), Arc::clone(&cancels));
    shared.catalog.set_stops(Box::new(move |asks, process, what| match of_server.upgrade() {
        Some(shared) => of_connections.stop(&shared, asks, process, what),
        None => Ok(false),
    }));
    let mut clients = JoinSet::new();
    let for_clients = drain.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, peer)) => {
                    // Those that are served go first, however many come.
                    tokio::task::yield_now().await;
                    let Some(login) = shared.connections.door() else {
                        shared.metrics.refused("in_login");
                        continue;
                    };
                    sockets::accepted(&tcp);
                    let (shared, cancels) = (Arc::clone(&shared), Arc::clone(&cancels));
                    let mut drain = for_clients.clone();
                    clients.spawn(async move {
                        let begun = Box::pin(startup::begin(&shared, &cancels, tcp, peer));
                        let begun = tokio::select! {
                            begun = tokio::time::timeout(LOGIN_TIME, begun) => begun,
                            // Nobody that is not in yet is waited for.
                            () = drained(&mut drain) => return,
                        };
                        drop(login);
                        if let Ok(Ok(Some(connection))) = begun {
                            converse(connection, drain).await;
                        }
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = clients.join_next() => {}
            () = drained(&mut drain) => break,
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}
