//! Connections: accepted, encrypted, bounded, and ended when the server goes down.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::Service;

use super::auth::Peer;
use super::route::router;
use crate::server::Shared;
use crate::statements::Protocol;

/// Bytes of a request's head.
const HEADER_BYTES: usize = 64 << 10;
/// From its first byte, or the end of the request before it.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// Streams of one HTTP/2 connection.
const STREAMS: u32 = 128;
const TLS_TIME: Duration = Duration::from_secs(5);
/// From a connection to its first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_secs(10);
/// A peer of HTTP/2 that is gone without a word is found in the sum of both.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_TIME: Duration = Duration::from_secs(20);
/// After an accept that failed, as for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What one connection too many hears.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Serves HTTP until `drain` is true and what is under way then is done. To be called on the network's runtime;
/// dropping the future ends all connections.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    mut drain: watch::Receiver<bool>,
) {
    let router = router(Arc::clone(&shared), drain.clone());
    let room = Arc::new(Semaphore::new(shared.options.connections));
    let tls = tls.map(TlsAcceptor::from);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            // Whoever could say so is gone: the same.
            _ = drain.wait_for(|drain| *drain) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            // As much as its buffer takes.
            let _ = stream.try_write(TOO_MANY);
            continue;
        };
        let (router, tls) = (router.clone(), tls.clone());
        let connected = shared.metrics.connected(Protocol::Http);
        let drain = drain.clone();
        connections.spawn(async move {
            let _held = (permit, connected);
            encrypted(stream, peer, tls, router, drain).await;
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn encrypted(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    mut drain: watch::Receiver<bool>,
) {
    // Answers are written whole.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return connection(stream, peer, router, drain).await };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(TLS_TIME, tls.accept(stream)) => accepted,
        _ = drain.wait_for(|drain| *drain) => return,
    };
    if let Ok(Ok(stream)) = accepted {
        connection(stream, peer, router, drain).await;
    }
}

/// Answers the requests of one connection. Its errors are its client's.
async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: SocketAddr,
    router: Router,
    mut drain: watch::Receiver<bool>,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES as u32)
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME);
    let asked = Arc::new(AtomicBool::new(false));
    let service = OfPeer { router, peer, asked: Arc::clone(&asked) };
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut served = pin!(served);
    let mut first = pin!(tokio::time::sleep(FIRST_REQUEST_TIME));
    let (mut waits, mut drains) = (true, false);
    loop {
        tokio::select! {
            _ = served.as_mut() => return,
            _ = drain.wait_for(|drain| *drain), if !drains => {
                drains = true;
                served.as_mut().graceful_shutdown();
            }
            () = first.as_mut(), if waits => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
                waits = false;
            }
        }
    }
}

/// The router, which is told where requests come from.
#[derive(Clone)]
struct OfPeer {
    router: Router,
    peer: SocketAddr,
    asked: Arc<AtomicBool>,
}

impl<B> Service<Request<B>> for OfPeer
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(Peer(self.peer));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        self.router.call(request)
    }
}
