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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::Service;

use super::auth::Peer;
use super::refusal;
use super::route::router;
use crate::failure::Failure;
use crate::limits::Arrival;
use crate::roll::Member;
use crate::server::Shared;
use crate::sockets;
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
/// What one connection too many may take to hear so.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);
/// After an accept that failed, as for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves HTTP until `drain` is true and what is under way then is done. To be called on the network's runtime;
/// dropping the future ends all connections.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    mut drain: watch::Receiver<bool>,
) {
    let router = router(Arc::clone(&shared), drain.clone());
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
        // Those that are served go first, however many come.
        tokio::task::yield_now().await;
        let Some(door) = shared.connections.door() else {
            shared.metrics.refused("in_login");
            continue;
        };
        let seat = match shared.seat(peer) {
            Ok(seat) => seat,
            Err(failure) => {
                if tls.is_none() {
                    connections.spawn(async move {
                        let _door = door;
                        turn_away(stream, &failure).await;
                    });
                }
                continue;
            }
        };
        sockets::accepted(&stream);
        let (router, tls) = (router.clone(), tls.clone());
        let connected = shared.metrics.connected(Protocol::Http);
        let member = shared.roll.join(Member {
            id: 0,
            protocol: Protocol::Http.name(),
            role: String::new(),
            address: peer.to_string(),
            application: String::new(),
            since: (shared.options.clock)(),
        });
        let drain = drain.clone();
        connections.spawn(async move {
            let _held = (connected, member);
            let peer = Origin { peer, arrival: Arrival::new(seat, door) };
            encrypted(stream, peer, tls, router, drain).await;
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Tells a client that there is no place for it. What it sends is read for a moment: an answer is lost if its socket is
/// closed over a request.
async fn turn_away(mut stream: TcpStream, failure: &Failure) {
    let told = async {
        stream.write_all(&refusal::whole(failure)).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // It may not want to hear.
    let _ = tokio::time::timeout(TURN_AWAY_TIME, told).await;
}

/// Where a connection comes from, and its place.
#[derive(Clone)]
struct Origin {
    peer: SocketAddr,
    arrival: Arrival,
}

async fn encrypted(
    stream: TcpStream,
    peer: Origin,
    tls: Option<TlsAcceptor>,
    router: Router,
    mut drain: watch::Receiver<bool>,
) {
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
    from: Origin,
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
    let arrival = from.arrival.clone();
    let service = OfPeer { router, from, asked: Arc::clone(&asked) };
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut served = pin!(served);
    let mut first = pin!(tokio::time::sleep(FIRST_REQUEST_TIME));
    let (mut waits, mut drains) = (true, false);
    loop {
        tokio::select! {
            _ = served.as_mut() => return,
            _ = drain.wait_for(|drain| *drain), if !drains => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
                drains = true;
                served.as_mut().graceful_shutdown();
            }
            () = first.as_mut(), if waits => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
                if !arrival.is_let_in() {
                    // Nobody knows who it is: it has its answers, and its place is another's.
                    served.as_mut().graceful_shutdown();
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
    from: Origin,
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
        request.extensions_mut().insert(Peer(self.from.peer));
        request.extensions_mut().insert(ConnectInfo(self.from.peer));
        request.extensions_mut().insert(self.from.arrival.clone());
        self.router.call(request)
    }
}
