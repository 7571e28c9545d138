//! What goes wrong here, and how it travels through `object_store`'s error type.

use object_store::Error;

/// The name our errors carry in [`object_store::Error::Generic`].
pub(crate) const STORE: &str = "uplake";

/// An error of this crate; those of a read or write travel inside [`object_store::Error::Generic`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL names no store we know.
    #[error(
        "`{url}` is not a storage URL; use s3://, gs://, az://, file:// or memory://: {reason}"
    )]
    Url {
        /// As it was given.
        url: String,
        /// What the parser said.
        reason: String,
    },
    /// A setting of `[storage]` cannot be used.
    #[error("storage setting `{key}`: {reason}")]
    Setting {
        /// The key, as in `uplake.toml`.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The store's client cannot be made.
    #[error("cannot open `{url}`; check region, endpoint and credentials")]
    Open {
        /// As it was given.
        url: String,
        /// What the client said.
        source: Error,
    },
    /// No connection could be made: the request was not sent.
    #[error(
        "no connection to {host}; check the endpoint and the network, and set SSL_CERT_FILE for a \
         certificate authority of your own"
    )]
    Unreached {
        /// Name and port.
        host: String,
        /// Nobody has ever answered there, and waiting longer does not help: a typing mistake, a
        /// certificate that nobody here trusts, a store that is not running.
        is_hopeless: bool,
        /// What the network, DNS or TLS said.
        source: std::io::Error,
    },
    /// A body ended early although the answer said success.
    #[error("{path}: {got} of {wanted} bytes arrived; the store sent a short body")]
    Short {
        /// Of the object.
        path: String,
        /// Bytes the answer promised.
        wanted: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The answer covers another range than asked.
    #[error("{path}: asked for bytes {wanted:?}, the store answered {got:?}")]
    OtherRange {
        /// Of the object.
        path: String,
        /// What was asked, cut at the object's size.
        wanted: std::ops::Range<u64>,
        /// What the answer says it holds.
        got: std::ops::Range<u64>,
    },
    /// Nothing arrived for the stall time-out.
    #[error("{path}: no byte for {waited_ms} ms; the store or the network stalls")]
    Stalled {
        /// Of the object.
        path: String,
        /// How long nothing came, in milliseconds.
        waited_ms: u64,
    },
    /// The object was replaced while one call read several pieces of it.
    #[error("{path}: the object changed while it was read; read it again")]
    Changed {
        /// Of the object.
        path: String,
    },
    /// A conditional write may or may not have taken effect, and reading back did not tell.
    #[error(
        "{path}: whether the write took effect is unknown; read the object before trying again"
    )]
    OutcomeUnknown {
        /// Of the object.
        path: String,
        /// Why the answer or the reading back failed.
        source: Error,
    },
    /// A store failed the conformance test.
    #[error("conformance: {0}")]
    Conformance(String),
}

/// What to set when requests have no credentials: `error` tells that they were looked for at the
/// service of a machine in the provider's cloud, which is not there or has none.
#[must_use]
pub fn missing_credentials(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = chain.map(ToString::to_string).collect();
    let asked = |part: &str| texts.iter().any(|text| text.contains(part));
    if asked("169.254.169.254/latest/") || asked("169.254.170.") {
        Some(
            "there are no credentials for s3://; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
             AWS_REGION, or access_key_id, secret_access_key and region in [storage.provider] of \
             uplake.toml (see docs/storage.md)",
        )
    } else if asked("169.254.169.254/metadata/") {
        Some(
            "there are no credentials for az://; set AZURE_STORAGE_ACCOUNT_NAME and \
             AZURE_STORAGE_ACCOUNT_KEY, or account_name and account_key in [storage.provider] of \
             uplake.toml (see docs/storage.md)",
        )
    } else if asked("metadata.google.internal") || asked("/computeMetadata/") {
        Some(
            "there are no credentials for gs://; set GOOGLE_SERVICE_ACCOUNT to the file of a \
             service account's key, or service_account in [storage.provider] of uplake.toml (see \
             docs/storage.md)",
        )
    } else {
        None
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Generic { store: STORE, source: Box::new(error) }
    }
}

/// Was the request never sent, because no connection could be made? Then: is that hopeless?
///
/// Only connections of ours say so; what the stock client did before its last attempt is unknown.
pub(crate) fn unreached(error: &(dyn std::error::Error + 'static)) -> Option<bool> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    chain.find_map(|error| match error.downcast_ref() {
        Some(StoreError::Unreached { is_hopeless, .. }) => Some(*is_hopeless),
        _ => None,
    })
}

/// Whether another attempt of a *read* may succeed.
///
/// Everything that names its reason is final; what is left is transport, overload and bodies that
/// came out wrong. `object_store` keeps the type of a bad range private, hence the look at its text.
pub(crate) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Generic { source, .. } if unreached(source.as_ref()) == Some(true) => false,
        Error::Generic { source, .. } => {
            let text = source.to_string();
            !(text.contains("Wanted range starting at")
                || text.contains("InvalidRange")
                || text.contains("code: 4")
                || text.contains("Range started at"))
        }
        Error::JoinError { .. } => true,
        _ => false,
    }
}

/// Whether `error` says that the range lies outside of the object.
pub(crate) fn is_out_of_range(error: &Error) -> bool {
    let Error::Generic { source, .. } = error else { return false };
    let text = source.to_string();
    text.contains("Wanted range starting at")
        || text.contains("InvalidRange")
        || text.contains("416")
}

/// `error` once more, for a second reader who waited for the same request.
pub(crate) fn again(error: &std::sync::Arc<Error>) -> Error {
    let source = || Box::new(std::sync::Arc::clone(error));
    let path = |path: &String| path.clone();
    match &**error {
        Error::NotFound { path: p, .. } => Error::NotFound { path: path(p), source: source() },
        Error::Precondition { path: p, .. } => {
            Error::Precondition { path: path(p), source: source() }
        }
        Error::NotModified { path: p, .. } => {
            Error::NotModified { path: path(p), source: source() }
        }
        Error::PermissionDenied { path: p, .. } => {
            Error::PermissionDenied { path: path(p), source: source() }
        }
        Error::Unauthenticated { path: p, .. } => {
            Error::Unauthenticated { path: path(p), source: source() }
        }
        _ => Error::Generic { store: STORE, source: source() },
    }
}
