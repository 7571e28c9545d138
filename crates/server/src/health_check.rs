//! What the health command of a container asks: does the server of this machine answer?
//!
//! Whether the port speaks TLS is found out, so that the same command does for both.
//!
//! # Not here
//! Who the server is. Its certificate names what clients call it and not this machine, so it is not checked, as a
//! kubelet does not; nothing is sent but the question, and nothing believed but that it was answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, SignatureScheme,
};

/// Of an answer: a status and a line.
const ANSWER_BYTES: u64 = 16 << 10;

/// Why a server is not well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    /// Nobody listens there.
    #[error("nobody answers at {address}")]
    Silent { address: SocketAddr, source: std::io::Error },
    /// Somebody does, and says nothing.
    #[error("{address} does not answer within {} s", limit.as_secs())]
    Late { address: SocketAddr, limit: Duration },
    /// It says that it is not well.
    #[error("{address} answers {status}: {text}")]
    Unwell { address: SocketAddr, status: u16, text: String },
    /// It is no server of ours.
    #[error("what listens at {address} does not speak HTTP; name the port of --http")]
    Foreign { address: SocketAddr },
}

/// What the server at this address says to a GET of `path`, if its status is 200.
///
/// # Errors
/// [`HealthError`] for any other answer, and for none within `limit`.
pub async fn ask_health(
    address: SocketAddr,
    path: &str,
    limit: Duration,
) -> Result<String, HealthError> {
    let late = HealthError::Late { address, limit };
    tokio::time::timeout(limit, asked(address, path)).await.unwrap_or(Err(late))
}

async fn asked(address: SocketAddr, path: &str) -> Result<String, HealthError> {
    let silent = |source| HealthError::Silent { address, source };
    let question = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let plain = TcpStream::connect(address).await.map_err(silent)?;
    let answer = match said(plain, &question).await.ok().and_then(|bytes| read_answer(&bytes)) {
        Some(answer) => Some(answer),
        // A port that speaks TLS hangs up, or says so in bytes that are no HTTP.
        None => {
            let again = TcpStream::connect(address).await.map_err(silent)?;
            said_in_tls(again, address, &question).await.and_then(|bytes| read_answer(&bytes))
        }
    };
    match answer {
        Some((200, text)) => Ok(text),
        Some((status, text)) => Err(HealthError::Unwell { address, status, text }),
        None => Err(HealthError::Foreign { address }),
    }
}

async fn said_in_tls(stream: TcpStream, address: SocketAddr, question: &str) -> Option<Vec<u8>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::from(address.ip()), stream).await.ok()?;
    said(stream, question).await.ok()
}

async fn said<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    question: &str,
) -> std::io::Result<Vec<u8>> {
    stream.write_all(question.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES).read_to_end(&mut answer).await;
    // Some end TLS without a word.
    if answer.is_empty() { read.map(|_| answer) } else { Ok(answer) }
}

/// Status and text of an answer of HTTP/1; `None` if it is none.
fn read_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let rest = head.strip_prefix("HTTP/1.")?;
    let status = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.trim().to_owned()))
}

/// Takes any certificate, but wants its key's signature.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let schemes = &self.0.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let schemes = &self.0.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_text() {
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n";
        assert_eq!(read_answer(ok), Some((200, "ok".to_owned())));
        let no = b"HTTP/1.0 503 Service Unavailable\r\n\r\nthe lake does not answer\n";
        assert_eq!(read_answer(no), Some((503, "the lake does not answer".to_owned())));
        // An alert of TLS, an answer of Postgres, a head that was cut, nothing.
        for other in [
            &b"\x15\x03\x03\x00\x02\x02\x46"[..],
            b"E\0\0\0\x0bSERROR\0",
            b"HTTP/1.1 200 OK\r\n",
            b"",
        ] {
            assert_eq!(read_answer(other), None);
        }
    }

    #[tokio::test]
    async fn who_does_not_answer_is_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // It takes connections and never answers.
        let error = ask_health(address, "/health", Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, HealthError::Late { .. }), "{error}");
        drop(listener);
        let error = ask_health(address, "/health", Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(error, HealthError::Silent { .. }), "{error}");
    }
}
