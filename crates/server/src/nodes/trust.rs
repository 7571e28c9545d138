//! Whom a node believes: certificates of some authorities, and a secret that all nodes have.
//!
//! # Invariants
//! - The files are taken together or not at all: what cannot be used leaves everything as it was.
//! - A certificate that this node could not show others is not taken: each is asked for as server and as client.
//! - No connection is resumed: every one shows its certificate.
//!
//! # Not here
//! What a token says: [`super::token`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use tokio_rustls::rustls::crypto::ring as provider;
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use tonic::Request;
use tonic::metadata::MetadataMap;

use super::token::{About, HEADER, Secrets};
use crate::certificate_dates::expires;
use crate::node_options::{NodeTlsFiles, TrustFiles};

/// What nodes speak within TLS.
const PROTOCOL: &[u8] = b"h2";
/// Bytes of a file: what is larger is something else.
const FILE_BYTES: u64 = 1 << 20;
/// Bytes of a secret, at least, and how many of them differ: of random ones, or 32 random hexadecimal digits, more do.
const SECRET_BYTES: usize = 32;
const SECRET_KINDS: usize = 8;

/// Why a node believes nobody.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file is missing, or holds no certificate or key.
    #[error(
        "{}: {message}; --node-tls-cert names a PEM file of this node's certificate and those that vouch for it, \
         --node-tls-key one of its private key, --node-tls-ca one of the authority that signs the certificates of nodes",
        path.display()
    )]
    File { path: PathBuf, message: String },
    /// Other nodes would not believe it.
    #[error("{}: {message}", path.display())]
    Unusable { path: PathBuf, message: String },
    #[error(
        "{}: {message}; --node-secret names a file of at least {SECRET_BYTES} random bytes, the same on all nodes: \
         head -c {SECRET_BYTES} /dev/urandom > FILE",
        path.display()
    )]
    Secret { path: PathBuf, message: String },
    /// No certificate can be for it.
    #[error(
        "the member {host} is neither an address nor a name that a certificate can have; write HOST:PORT or \
         dns:NAME:PORT with one that has letters, digits, - and dots"
    )]
    Member { host: String },
}

/// Milliseconds since 1970, UTC.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What a node believes now.
pub(crate) struct Trust {
    files: TrustFiles,
    clock: Clock,
    current: RwLock<Current>,
}

#[derive(Clone)]
struct Current {
    /// Goes up whenever the files are others.
    number: u64,
    /// Of the files.
    sum: Vec<u8>,
    tls: Option<Tls>,
    secrets: Option<Arc<Secrets>>,
}

/// What nodes are encrypted with.
#[derive(Clone)]
struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// Seconds since 1970, UTC.
    expires: Option<i64>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({:?})", self.files)
    }
}

impl Trust {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TrustError`] with a file's name.
    pub fn open(files: &TrustFiles, clock: Clock) -> Result<Arc<Self>, TrustError> {
        let Read { sum, tls, secret } = Read::all(files, clock())?;
        let secrets = secret.map(|secret| Arc::new(Secrets::new(&secret)));
        let current = RwLock::new(Current { number: 0, sum, tls, secrets });
        Ok(Arc::new(Self { files: files.clone(), clock, current }))
    }

    /// Reads the files again; connections and calls that come later go by what they hold.
    ///
    /// # Errors
    /// [`TrustError`]; everything stays as it was.
    pub fn reload(&self) -> Result<(), TrustError> {
        let now = self.now();
        let Read { sum, tls, secret } = Read::all(&self.files, now)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if sum == current.sum {
            return Ok(());
        }
        let secrets = secret.map(|secret| match &current.secrets {
            Some(before) => before.followed_by(&secret, now),
            None => Arc::new(Secrets::new(&secret)),
        });
        *current = Current { number: current.number + 1, sum, tls, secrets };
        Ok(())
    }

    /// Is there anything to be read again?
    pub fn has_files(&self) -> bool {
        self.files != TrustFiles::default()
    }

    /// May nodes be on other machines?
    pub fn reaches_beyond(&self) -> bool {
        self.files.reaches_beyond()
    }

    /// Seconds since 1970, UTC, when this node's certificate ends, if it has one that says so.
    pub fn expires(&self) -> Option<i64> {
        self.current().tls.and_then(|tls| tls.expires)
    }

    /// For those who ask this node; `None` without TLS.
    pub(super) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current().tls.map(|tls| tls.server)
    }

    /// For those whom this node asks, and a number that goes up when it is another; `None` without TLS.
    pub(super) fn client(&self) -> (u64, Option<Arc<ClientConfig>>) {
        let Current { number, tls, .. } = self.current();
        (number, tls.map(|tls| tls.client))
    }

    /// The message as it is sent, with a token if there is a secret.
    pub(super) fn request<T>(&self, message: T, about: &About<'_>) -> Request<T> {
        let mut request = Request::new(message);
        let token = self.current().secrets.map(|secrets| secrets.token(about, self.now()));
        if let Some(token) = token.and_then(|token| token.parse().ok()) {
            request.metadata_mut().insert(HEADER, token);
        }
        request
    }

    /// Does who asks have the secret, if there is one?
    ///
    /// # Errors
    /// Why not, for people.
    pub(super) fn check(&self, metadata: &MetadataMap, about: &About<'_>) -> Result<(), String> {
        let Some(secrets) = self.current().secrets else { return Ok(()) };
        let token = metadata.get(HEADER).and_then(|token| token.to_str().ok());
        secrets.check(token, about, self.now())
    }

    fn now(&self) -> i64 {
        (self.clock)()
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the files hold.
struct Read {
    sum: Vec<u8>,
    tls: Option<Tls>,
    secret: Option<Vec<u8>>,
}

impl Read {
    fn all(files: &TrustFiles, now: i64) -> Result<Self, TrustError> {
        let mut sum = Context::new(&SHA256);
        let mut add = |bytes: &[u8]| {
            sum.update(&(bytes.len() as u64).to_be_bytes());
            sum.update(bytes);
        };
        let tls = match &files.tls {
            Some(files) => {
                let file = |path: &Path| {
                    let failed = |message| TrustError::File { path: path.to_owned(), message };
                    bytes_of(path).map_err(failed)
                };
                let (chain, key) = (file(&files.certificate)?, file(&files.key)?);
                let authorities = file(&files.authorities)?;
                [&chain, &key, &authorities].into_iter().for_each(|bytes| add(bytes));
                Some(Tls::of(files, (&chain, &key, &authorities), now)?)
            }
            None => None,
        };
        let secret = match &files.secret {
            Some(path) => {
                let failed = |message| TrustError::Secret { path: path.clone(), message };
                let secret = bytes_of(path).map_err(failed)?;
                check_secret(&secret).map_err(failed)?;
                add(&secret);
                Some(secret)
            }
            None => None,
        };
        Ok(Self { sum: sum.finish().as_ref().to_vec(), tls, secret })
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES {
        return Err(format!("it has {length} bytes, more than {FILE_BYTES}"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

fn check_secret(secret: &[u8]) -> Result<(), String> {
    if secret.len() < SECRET_BYTES {
        return Err(format!("it has {} bytes", secret.len()));
    }
    let kinds: std::collections::BTreeSet<&u8> = secret.iter().collect();
    match kinds.len() < SECRET_KINDS {
        true => Err("its bytes are not random".to_owned()),
        false => Ok(()),
    }
}

impl Tls {
    /// Of the bytes of a chain, a key and authorities.
    fn of(
        files: &NodeTlsFiles,
        (chain, key, authorities): (&[u8], &[u8], &[u8]),
        now: i64,
    ) -> Result<Self, TrustError> {
        let chain = certificates(chain, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TrustError::File {
            path: files.key.clone(),
            message: error.to_string(),
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities, &files.authorities)? {
            roots.add(authority).map_err(|error| TrustError::File {
                path: files.authorities.clone(),
                message: error.to_string(),
            })?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider::default_provider()));
        let unusable =
            |path: &Path, message: String| TrustError::Unusable { path: path.to_owned(), message };
        let of_chain = |error: Error| unusable(&files.certificate, why(&error));
        let of_key = |error: Error| match error {
            Error::InconsistentKeys(_) => unusable(
                &files.key,
                format!(
                    "this is not the key of the certificate in {}",
                    files.certificate.display()
                ),
            ),
            other => unusable(&files.key, other.to_string()),
        };
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(&files.authorities, error.to_string()))?;
        let (first, rest) =
            chain.split_first().ok_or_else(|| of_chain(Error::NoCertificatesPresented))?;
        let now =
            UnixTime::since_unix_epoch(Duration::from_millis(u64::try_from(now).unwrap_or(0)));
        verifier.verify_client_cert(first, rest, now).map_err(of_chain)?;
        ParsedCertificate::try_from(first)
            .and_then(|first| {
                let known = provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&first, &roots, rest, now, known)
            })
            .map_err(of_chain)?;
        let expires = expires(first);
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(of_chain)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(of_key)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(of_chain)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(of_key)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client), expires })
    }
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let failed = |message| TrustError::File { path: path.to_owned(), message };
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| failed(error.to_string()))?;
    match found.is_empty() {
        true => Err(failed("there is no certificate in this file".to_owned())),
        false => Ok(found),
    }
}

/// Why other nodes would not believe a certificate.
fn why(error: &Error) -> String {
    let Error::InvalidCertificate(error) = error else { return error.to_string() };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority in --node-tls-ca has signed this certificate".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate in this file has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate in this file is not valid yet".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "nodes are servers and clients, and the certificate in this file is not for both: \
             extendedKeyUsage = serverAuth, clientAuth"
                .to_owned()
        }
        other => format!("the certificate in this file cannot be used: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(files: &TrustFiles) -> String {
        Trust::open(files, Arc::new(|| 0)).unwrap_err().to_string()
    }

    #[test]
    fn files_that_are_none_are_named_with_what_they_should_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let tls = NodeTlsFiles {
            certificate: file("cert.pem"),
            key: file("key.pem"),
            authorities: file("ca.pem"),
        };
        let files = TrustFiles { tls: Some(tls), secret: None };
        let lie = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let says = |name: &str, what: &str| {
            let said = opened(&files);
            assert!(said.contains(name) && said.contains(what), "{said}");
            assert!(said.contains("--node-tls-ca"), "{said}");
        };
        says("cert.pem", "No such file");
        std::fs::write(file("cert.pem"), "nothing\n").unwrap();
        says("key.pem", "No such file");
        std::fs::write(file("key.pem"), "nothing\n").unwrap();
        std::fs::write(file("ca.pem"), lie).unwrap();
        says("cert.pem", "no certificate");
        std::fs::write(file("cert.pem"), lie).unwrap();
        says("key.pem", "");
        std::fs::write(file("ca.pem"), vec![b'x'; 2 << 20]).unwrap();
        says("ca.pem", "2097152 bytes");
    }

    #[test]
    fn secrets_that_could_be_guessed_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let files = TrustFiles { tls: None, secret: Some(path.clone()) };
        assert!(opened(&files).contains("No such file"));
        for (bytes, says) in [
            (vec![7; 31], "it has 31 bytes"),
            (Vec::new(), "it has 0 bytes"),
            (vec![0; 64], "not random"),
            (b"abcabcabcabcabcabcabcabcabcabcabc".to_vec(), "not random"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let said = opened(&files);
            assert!(said.contains(says) && said.contains("/dev/urandom"), "{said}");
        }
        let good: Vec<u8> = (0..32).collect();
        std::fs::write(&path, &good).unwrap();
        let trust = Trust::open(&files, Arc::new(|| 0)).unwrap();
        let (number, tls) = trust.client();
        assert!(tls.is_none() && number == 0);
        // What cannot be used leaves it as it was.
        std::fs::write(&path, "short").unwrap();
        trust.reload().unwrap_err();
        std::fs::write(&path, &good).unwrap();
        trust.reload().unwrap();
        assert_eq!(trust.client().0, 0, "the same bytes");
        std::fs::write(&path, [good, vec![1]].concat()).unwrap();
        trust.reload().unwrap();
        assert_eq!(trust.client().0, 1);
    }
}
