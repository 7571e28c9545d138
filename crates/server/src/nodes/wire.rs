//! Connections between nodes: plain on one machine, or TLS in which both show a certificate.
//!
//! # Invariants
//! - A connection that is not encrypted as it should be carries nothing: it ends before anything is read of it.
//! - A handshake takes [`TLS_TIME`] at most, and does not hold up others.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::ready;
use futures::{Stream, StreamExt, stream};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tonic::transport::Uri;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tower::Service;
use uplake_cluster::members::Members;

use super::trust::{Trust, TrustError};
use crate::metrics::{Metrics, RefusedCall};
use crate::sockets;

const TLS_TIME: Duration = Duration::from_secs(5);
/// Handshakes at once.
const HANDSHAKES: usize = 256;
/// After an accept that failed, as for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A connection from another node.
#[derive(Debug)]
pub(super) enum NodeSocket {
    Plain(TcpStream),
    Encrypted(Box<server::TlsStream<TcpStream>>),
}

/// Connections from other nodes, which have shown who they are.
pub(super) fn incoming(
    listener: TcpListener,
    trust: Arc<Trust>,
    metrics: Arc<Metrics>,
) -> impl Stream<Item = io::Result<NodeSocket>> + Send {
    let accepted = stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((tcp, _)) => return Some((tcp, listener)),
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    });
    let shown = accepted.map(move |tcp| shown(tcp, Arc::clone(&trust), Arc::clone(&metrics)));
    shown.buffer_unordered(HANDSHAKES).filter_map(|socket| ready(socket.map(Ok)))
}

/// The connection, once who made it has shown its certificate.
async fn shown(tcp: TcpStream, trust: Arc<Trust>, metrics: Arc<Metrics>) -> Option<NodeSocket> {
    sockets::accepted(&tcp);
    let Some(tls) = trust.server() else { return Some(NodeSocket::Plain(tcp)) };
    match tokio::time::timeout(TLS_TIME, TlsAcceptor::from(tls).accept(tcp)).await {
        Ok(Ok(encrypted)) => Some(NodeSocket::Encrypted(Box::new(encrypted))),
        Ok(Err(error)) => {
            // Who only looks whether somebody listens ends its connection without a word.
            if error.kind() == io::ErrorKind::InvalidData {
                metrics.refused_call(RefusedCall::Certificate);
            }
            None
        }
        Err(_) => None,
    }
}

/// What makes connections to the node at an address, which has a certificate for that host; `None` for a host that no
/// certificate can be for.
pub(super) fn connector(
    address: &str,
    host: &str,
    tls: Arc<ClientConfig>,
) -> Option<
    impl Service<Uri, Response = TokioIo<client::TlsStream<TcpStream>>, Error = io::Error, Future: Send>
    + Send
    + 'static
    + use<>,
> {
    let (address, host) = (Arc::<str>::from(address), named(host)?);
    Some(tower::service_fn(move |_: Uri| {
        let (address, host, tls) = (Arc::clone(&address), host.clone(), Arc::clone(&tls));
        async move {
            let tcp = TcpStream::connect(&*address).await?;
            tcp.set_nodelay(true)?;
            TlsConnector::from(tls).connect(host, tcp).await.map(TokioIo::new)
        }
    }))
}

/// The host of `HOST:PORT`, without the brackets of an address.
pub(super) fn host_of(address: &str) -> Option<&str> {
    let (host, _) = address.rsplit_once(':')?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

fn named(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).ok()
}

/// Can members have certificates for what they are called?
///
/// # Errors
/// [`TrustError::Member`] for one that cannot.
pub(crate) fn check_names(members: &Members, trust: &Trust) -> Result<(), TrustError> {
    if trust.server().is_none() {
        return Ok(());
    }
    let hosts: Vec<&str> = match members {
        Members::Listed(listed) => listed.iter().filter_map(|member| host_of(member)).collect(),
        Members::Dns { host, .. } => vec![host],
    };
    match hosts.into_iter().find(|host| named(host).is_none()) {
        Some(host) => Err(TrustError::Member { host: host.to_owned() }),
        None => Ok(()),
    }
}

/// What is wrong with a connection, for people: the innermost cause says it.
pub(super) fn words(status: &tonic::Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.downcast_ref::<tonic::Status>() {
        Some(status) => status.message().to_owned(),
        None => cause.to_string(),
    }
}

impl Connected for NodeSocket {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Encrypted(tls) => tls.get_ref().0,
        };
        let known = |address: io::Result<SocketAddr>| address.ok();
        TcpConnectInfo { local_addr: known(tcp.local_addr()), remote_addr: known(tcp.peer_addr()) }
    }
}

impl AsyncRead for NodeSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, into),
            Self::Encrypted(tls) => Pin::new(tls.as_mut()).poll_read(context, into),
        }
    }
}

impl AsyncWrite for NodeSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Encrypted(tls) => Pin::new(tls.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, bytes),
            Self::Encrypted(tls) => Pin::new(tls.as_mut()).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Encrypted(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Encrypted(tls) => Pin::new(tls.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Encrypted(tls) => Pin::new(tls.as_mut()).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_for_hosts_of_members() {
        for (address, host) in [
            ("127.0.0.1:19001", "127.0.0.1"),
            ("[::1]:19001", "::1"),
            ("node-1.workers:19001", "node-1.workers"),
        ] {
            assert_eq!(host_of(address), Some(host));
            assert!(named(host).is_some(), "{host}");
        }
        assert!(named("a b").is_none() && named("").is_none());
    }
}
