//! The server's certificate, which can be replaced while it runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::certificate_dates::expires;

/// Protocols that HTTP's clients choose from.
const HTTP_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// What Postgres' clients ask for when they begin with TLS.
const POSTGRES_PROTOCOL: &[u8] = b"postgresql";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or holds no certificate or key.
    #[error(
        "{}: {message}; --tls-cert names a PEM file of the certificate and those that vouch for it, --tls-key one of \
         its private key",
        path.display()
    )]
    File { path: PathBuf, message: String },
    /// The key does not belong to the certificate, or neither can be used.
    #[error("{}: {source}", path.display())]
    Unusable { path: PathBuf, source: rustls::Error },
    /// It is read in place of one that is still good.
    #[error("{}: the certificate in this file has expired", path.display())]
    Expired { path: PathBuf },
}

/// A certificate and its key, in files that are read again when somebody asks for it.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// PEM: the server's certificate, then those that vouch for it.
    chain: PathBuf,
    /// PEM.
    key: PathBuf,
    current: RwLock<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    /// Seconds since 1970, UTC.
    expires: Option<i64>,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`] with the file's name.
    pub fn open(chain: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(read(chain, key)?);
        Ok(Arc::new(Self { chain: chain.to_owned(), key: key.to_owned(), current }))
    }

    /// Reads the files again; connections that come later get what they hold. `now`: milliseconds since 1970, UTC.
    ///
    /// # Errors
    /// [`TlsError`]; the old certificate stays.
    pub fn reload(&self, now: i64) -> Result<(), TlsError> {
        let new = read(&self.chain, &self.key)?;
        let is_over = |expires: Option<i64>| expires.is_some_and(|end| end <= now / 1000);
        if is_over(new.expires) && !is_over(self.expires()) {
            return Err(TlsError::Expired { path: self.chain.clone() });
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Seconds since 1970, UTC, when the one that clients get ends, if it says so.
    pub fn expires(&self) -> Option<i64> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).expires
    }

    /// For the Postgres wire.
    ///
    /// # Errors
    /// [`TlsError`] if this build of rustls has none of the protocols.
    pub fn for_postgres(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        self.config(&[POSTGRES_PROTOCOL])
    }

    /// For HTTP.
    ///
    /// # Errors
    /// As [`Self::for_postgres`].
    pub fn for_http(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        self.config(&HTTP_PROTOCOLS)
    }

    fn config(self: &Arc<Self>, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
        // Two providers can be linked, and then there is no default.
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Unusable { path: self.chain.clone(), source })?;
        let resolver = Arc::clone(self) as Arc<dyn ResolvesServerCert>;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).key))
    }
}

fn read(chain: &Path, key: &Path) -> Result<Current, TlsError> {
    let unreadable =
        |path: &Path, message: String| TlsError::File { path: path.to_owned(), message };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(chain, error.to_string()))?;
    if certificates.is_empty() {
        return Err(unreadable(chain, "there is no certificate in this file".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| unreadable(key, error.to_string()))?;
    let expires = certificates.first().and_then(|first| expires(first));
    CertifiedKey::from_der(certificates, private, &ring::default_provider())
        .map(|key| Current { key: Arc::new(key), expires })
        .map_err(|source| TlsError::Unusable { path: key.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_none_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        let error = Certificate::open(&chain, &key).unwrap_err().to_string();
        assert!(error.contains("chain.pem"), "{error}");
        std::fs::write(&chain, "nothing\n").unwrap();
        let error = Certificate::open(&chain, &key).unwrap_err().to_string();
        assert!(error.contains("no certificate"), "{error}");
        let lie = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&chain, lie).unwrap();
        let error = Certificate::open(&chain, &key).unwrap_err().to_string();
        assert!(error.contains("key.pem"), "{error}");
    }
}
