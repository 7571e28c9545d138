//! From a URL to a [`Store`].

use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpConnector, ReqwestConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use crate::clock::{Clock, RealClock};
use crate::connect::Connector;
use crate::counted::Counted;
use crate::durable::Durable;
use crate::error::StoreError;
use crate::options::StorageOptions;
use crate::store::{Bottom, Store};
use crate::uploads::Uploads;

const GOOGLE_URL: &str = "https://storage.googleapis.com";
/// An address that nobody answers at is mostly mistyped: so often is told within a second.
const ADDRESS_RETRIES: usize = 3;

impl Store {
    /// Opens the store that `url` lies in: `s3://`, `gs://`, `az://`, `file://` or `memory://`.
    ///
    /// The store's root is the bucket (or `/` of files); the path of `url` is [`Store::prefix`].
    /// No request is made yet. Every `memory://` store is a new, empty one.
    ///
    /// # Errors
    /// [`StoreError::Url`] for other URLs, [`StoreError::Setting`] for settings that contradict each
    /// other, [`StoreError::Open`] if the provider's client refuses its settings.
    pub fn open(url: &str, options: &StorageOptions) -> Result<Arc<Self>, StoreError> {
        let refuse = |reason: String| StoreError::Url { url: url.to_owned(), reason };
        let parsed = Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        let (scheme, prefix) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| refuse(error.to_string()))?;
        let mut root = parsed.clone();
        root.set_path("/");
        root.set_query(None);
        root.set_fragment(None);
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let local = |inner: Arc<dyn ObjectStore>, prefix: Path, clock| {
            let bottom =
                Bottom { store: Arc::new(Counted(inner)), is_remote: false, uploads: None };
            Self::assemble(root.clone(), prefix, bottom, options, clock)
        };
        match scheme {
            ObjectStoreScheme::Local => local(Arc::new(Durable::new()), prefix, clock),
            ObjectStoreScheme::Memory => local(Arc::new(InMemory::new()), prefix, clock),
            ObjectStoreScheme::AmazonS3
            | ObjectStoreScheme::GoogleCloudStorage
            | ObjectStoreScheme::MicrosoftAzure => {
                let mut bottom = cloud(&scheme, url, options, &clock)?;
                // With connections of ours it is they who count.
                if !options.connections {
                    bottom.store = Arc::new(Counted(bottom.store));
                }
                Self::assemble(root, prefix, bottom, options, clock)
            }
            _ => Err(refuse("the scheme is not supported".to_owned())),
        }
    }

    /// Opens what an `https://` or `http://` address names, to be read: it is the store's root, and its only object.
    ///
    /// The stock client asks, which follows redirects and goes through proxies, as addresses of web servers need.
    /// An object is one answer, because many servers give no ranges.
    ///
    /// # Errors
    /// [`StoreError::Url`] for other URLs, [`StoreError::Open`] if the client refuses it.
    pub fn open_address(url: &str, options: &StorageOptions) -> Result<Arc<Self>, StoreError> {
        let refuse = |reason: String| StoreError::Url { url: url.to_owned(), reason };
        let parsed = Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        if !["https", "http"].contains(&parsed.scheme()) {
            return Err(refuse("it is no address of a web server".to_owned()));
        }
        // Whoever reads the body sees that nothing comes any more; how long all of it takes is nobody's fault.
        let client = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
        let store = HttpBuilder::new()
            .with_url(parsed.clone())
            .with_client_options(client)
            .with_retry(RetryConfig { max_retries: ADDRESS_RETRIES, ..RetryConfig::default() })
            .with_http_connector(ReqwestConnector::default())
            .build()
            .map_err(|source| StoreError::Open { url: url.to_owned(), source })?;
        let store = Arc::new(Counted(Arc::new(store)));
        let bottom = Bottom { store, is_remote: false, uploads: None };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        Self::assemble(parsed, Path::default(), bottom, options, clock)
    }
}

/// The provider's client over connections of ours, or its own.
fn cloud(
    scheme: &ObjectStoreScheme,
    url: &str,
    options: &StorageOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Bottom, StoreError> {
    let refused = |source| StoreError::Open { url: url.to_owned(), source };
    /// The builders are alike and share no trait.
    macro_rules! build {
        ($builder:ty, $prefix:literal) => {{
            let mut builder = <$builder>::new().with_url(url);
            // A setting has several names; the last value counts, whatever it is called.
            for (key, value) in options.provider.iter().chain(&options.provider_environment) {
                match read_key(key, $prefix)? {
                    Some(known) => {
                        refuse_key_as_path(key, value)?;
                        builder = builder.with_config(known, value);
                    }
                    None => {}
                }
            }
            if options.connections {
                // Requests are made again by the connections, which know what was sent.
                let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
                let connector = Connector::new(options, Arc::clone(clock));
                builder = builder.with_retry(retry).with_http_connector(connector);
            }
            builder
        }};
    }
    // Where to is not asked of the user again: the client has been allowed to speak to its bucket as it does.
    let http = || {
        let allowed = ClientOptions::new().with_allow_http(true);
        let client = if options.connections {
            Connector::new(options, Arc::clone(clock)).connect(&allowed)
        } else {
            ReqwestConnector::default().connect(&allowed)
        };
        client.map_err(refused)
    };
    let (store, uploads): (Arc<dyn ObjectStore>, _) = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let client = Arc::new(build!(AmazonS3Builder, "aws_").build().map_err(refused)?);
            (Arc::clone(&client) as _, Some(Uploads::of_amazon(client, http()?)))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = build!(GoogleCloudStorageBuilder, "google_");
            let at = builder.get_config_value(&GoogleConfigKey::BaseUrl);
            let bucket = builder.get_config_value(&GoogleConfigKey::Bucket).unwrap_or_default();
            let client = Arc::new(builder.build().map_err(refused)?);
            let at = at.unwrap_or_else(|| GOOGLE_URL.to_owned());
            let bucket = Url::parse(&format!("{}/{bucket}", at.trim_end_matches('/')));
            let uploads = bucket
                .map(|bucket| Ok(Uploads::of_google(Arc::clone(&client), bucket, http()?)))
                .ok()
                .transpose()?;
            (client, uploads)
        }
        _ => {
            let client = build!(MicrosoftAzureBuilder, "azure_").build().map_err(refused)?;
            (Arc::new(client), None)
        }
    };
    Ok(Bottom { store, is_remote: true, uploads })
}

/// A provider's setting: as it is or with its prefix. The environment holds settings of other
/// providers and of tools, so that only an unknown name without a prefix is a mistake.
fn read_key<K: FromStr>(key: &str, prefix: &str) -> Result<Option<K>, StoreError> {
    let known = key.parse().or_else(|_| format!("{prefix}{key}").parse()).ok();
    let has_prefix = ["aws_", "google_", "azure_"].iter().any(|prefix| key.starts_with(prefix));
    if known.is_none() && !has_prefix {
        return Err(StoreError::Setting {
            key: format!("provider.{key}"),
            reason: "no setting of this provider; see docs/storage.md".to_owned(),
        });
    }
    Ok(known)
}

/// Google's tools take a service account's key as a file's name or as the text of that file. The client
/// says which file it cannot open: the private key, if that was its name.
fn refuse_key_as_path(key: &str, value: &str) -> Result<(), StoreError> {
    let names_file = ["service_account", "service_account_path", "application_credentials"]
        .contains(&key.strip_prefix("google_").unwrap_or(key));
    if names_file && value.trim_start().starts_with('{') {
        return Err(StoreError::Setting {
            key: format!("provider.{key}"),
            reason: "name the key's file, or give its text as service_account_key \
                     (GOOGLE_SERVICE_ACCOUNT_KEY)"
                .to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_open_the_store_they_lie_in() {
        for (url, root, prefix) in [
            ("memory:///a/b", "memory:///", "a/b"),
            ("file:///tmp/lake", "file:///", "tmp/lake"),
            ("s3://bucket/a/lake", "s3://bucket/", "a/lake"),
            ("s3://bucket", "s3://bucket/", ""),
            ("gs://bucket/lake", "gs://bucket/", "lake"),
        ] {
            let mut options = StorageOptions::default();
            options.provider.insert("aws_region".to_owned(), "eu-central-1".to_owned());
            options.provider.insert("aws_pager".to_owned(), "less".to_owned());
            let store = Store::open(url, &options).expect(url);
            assert_eq!((store.url().as_str(), store.prefix().as_ref()), (root, prefix), "{url}");
        }
    }

    #[test]
    fn urls_and_settings_that_mean_nothing_are_refused() {
        for url in ["ftp://host/a", "lake", "https://example.com/a"] {
            let error = Store::open(url, &StorageOptions::default()).expect_err(url);
            assert!(matches!(error, StoreError::Url { .. }), "{error}");
        }
        for url in ["s3://bucket/a", "file:///a", "a.csv"] {
            let error = Store::open_address(url, &StorageOptions::default()).expect_err(url);
            assert!(matches!(error, StoreError::Url { .. }), "{error}");
        }
        let mut options = StorageOptions::default();
        options.provider.insert("regoin".to_owned(), "x".to_owned());
        let error = Store::open("s3://bucket", &options).expect_err("a typing mistake");
        assert!(error.to_string().contains("provider.regoin"), "{error}");
        let mut options = StorageOptions::default();
        let key = r#"{"private_key": "secret"}"#.to_owned();
        options.provider_environment.insert("google_service_account".to_owned(), key);
        let error = Store::open("gs://bucket", &options).expect_err("a key is no path").to_string();
        assert!(error.contains("service_account_key") && !error.contains("secret"), "{error}");
    }
}
