//! One connection: TCP, TLS if asked, HTTP/1.1.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::client::HttpRequestBody;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection that can send a request when it is ready.
pub(super) type Sender = SendRequest<HttpRequestBody>;

/// Connecting takes one round trip, with TLS two or three; far stores have 250 ms round trips.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest buffer for reading; long bodies then take fewer system calls.
const READ_BUFFER: usize = 512 << 10;

/// Connects to `address`; `tls` is the name its certificate must have.
pub(super) async fn dial(address: SocketAddr, tls: Option<&str>) -> io::Result<Sender> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within 3 s");
    tokio::time::timeout(CONNECT_TIMEOUT, shake_hands(address, tls)).await.map_err(|_| late())?
}

async fn shake_hands(address: SocketAddr, tls: Option<&str>) -> io::Result<Sender> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let Some(name) = tls else { return start(socket).await };
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let tls = TlsConnector::from(config()?).connect(name, socket).await?;
    start(tls).await
}

async fn start<T>(socket: T) -> io::Result<Sender>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(READ_BUFFER)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(io::Error::other)?;
    // Ends when the sender and the body of its last response are dropped, or the server closes.
    // What goes wrong on it is reported to the request it was doing.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// The operating system's certificates with ring's cryptography, read once.
fn config() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(String::new, ToString::to_string);
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no certificates; install ca-certificates or set SSL_CERT_FILE {reason}"),
        ));
    }
    // Named, because a process may link several providers and then has no default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}
