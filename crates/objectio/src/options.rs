//! The `[storage]` section of `uplake.toml`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::counters::Prices;
use crate::error::StoreError;

/// Smallest disk tier: segments of 1 MiB, 16 of them.
const LEAST_DISK: u64 = 16 << 20;

/// A number of bytes; written as `268435456` or `"256 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` times 1,024 bytes.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` times 1,048,576 bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1u64,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(format!("`{text}` is not a size; write 500 MB, 256 MiB or 8 GiB")),
        };
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(scale),
            Err(_) => number.parse::<f64>().ok().map(|part| (part * scale as f64) as u64),
        };
        bytes.map(Self).ok_or_else(|| format!("`{text}` is not a size; write 256 MiB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bits, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << bits && self.0.trailing_zeros() >= bits {
                return write!(f, "{} {unit}", self.0 >> bits);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"256 MiB\"")
            }

            fn visit_u64<E>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Size)
    }
}

/// How a store is opened, read and cached.
///
/// # Examples
/// ```
/// use uplake_objectio::{ByteSize, StorageOptions};
/// let options: StorageOptions = toml::from_str(
///     r#"
///     disk_cache = "20 GiB"
///     disk_cache_path = "cache"
///     [provider]
///     region = "eu-central-1"
///     "#,
/// )?;
/// assert_eq!(options.disk_cache, ByteSize::mib(20 << 10));
/// assert_eq!(options.memory_cache, ByteSize::mib(256));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageOptions {
    /// Bytes of memory for cached data of remote stores; 0 turns the memory tier off.
    pub memory_cache: ByteSize,
    /// Bytes of disk for cached data of remote stores; 0 turns the disk tier off.
    pub disk_cache: ByteSize,
    /// Folder of the disk tier; needed when `disk_cache` is not 0. One process may use it at a time.
    pub disk_cache_path: Option<PathBuf>,
    /// Objects whose name ends so never change once written, so that the cache may answer for them
    /// without asking the store.
    pub immutable_suffixes: Vec<String>,
    /// Whether who opens a lake for long brings footers and indexes of its tables into the cache.
    pub preload: bool,
    /// The same for files that are new after a load or a compaction.
    pub preload_new: bool,
    /// Longest single request.
    pub piece: ByteSize,
    /// Two wanted ranges of one object with a gap up to this are read as one.
    pub merge_gap: ByteSize,
    /// Fewest requests that may be under way when the store is slow.
    pub least_requests: usize,
    /// Requests under way at first.
    pub start_requests: usize,
    /// Most requests under way.
    pub most_requests: usize,
    /// Most bytes under way in reads: the memory reading may take before data is handed out.
    pub bytes_under_way: ByteSize,
    /// Second requests for slow pieces, per request; 0 turns hedging off.
    pub hedge_budget: f64,
    /// A request without a byte for this long is given up and made again, in milliseconds.
    pub stall_timeout_ms: u64,
    /// A read is given up after this long with all its retries, in milliseconds.
    pub read_timeout_ms: u64,
    /// Most times a failed read of one piece is made again.
    pub retries: u32,
    /// Reading requests per second and prefix at first; learned downwards from 503 answers.
    pub reads_per_second: f64,
    /// Writing requests per second and prefix at first; learned downwards from 503 answers.
    pub writes_per_second: f64,
    /// Use connections of ours (addresses, health, choice by load); off: those of the stock client.
    /// Also off when a proxy is set in the environment.
    pub connections: bool,
    /// Ask DNS for the store's addresses this often, in milliseconds.
    pub dns_refresh_ms: u64,
    /// Addresses of hosts, instead of asking DNS: several gateways behind one name.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Price list for the estimate of costs.
    pub prices: Prices,
    /// Settings of the provider by its usual names without prefix or with it: `region`, `endpoint`,
    /// `access_key_id`, `aws_session_token`, `google_service_account`, `azure_storage_account_key`, ….
    pub provider: BTreeMap<String, String>,
    /// The same from the environment, which wins.
    #[serde(skip)]
    pub provider_environment: BTreeMap<String, String>,
    /// Seed of jitter and choice; for tests.
    #[serde(skip)]
    pub seed: Option<u64>,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            memory_cache: ByteSize::mib(256),
            disk_cache: ByteSize(0),
            disk_cache_path: None,
            immutable_suffixes: vec![".parquet".to_owned(), ".idx".to_owned()],
            preload: true,
            preload_new: true,
            piece: ByteSize::mib(8),
            merge_gap: ByteSize::kib(256),
            least_requests: 8,
            start_requests: 32,
            most_requests: 128,
            bytes_under_way: ByteSize::mib(512),
            hedge_budget: 0.05,
            stall_timeout_ms: 3_000,
            read_timeout_ms: 120_000,
            retries: 8,
            reads_per_second: 5_500.0,
            writes_per_second: 3_500.0,
            connections: true,
            dns_refresh_ms: 30_000,
            addresses: BTreeMap::new(),
            prices: Prices::default(),
            provider: BTreeMap::new(),
            provider_environment: BTreeMap::new(),
            seed: None,
        }
    }
}

/// Environment variables that start so belong to a provider.
const PROVIDER_PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];
/// Settings of ours: `UPLAKE_STORAGE_DISK_CACHE` for `disk_cache`.
const OUR_PREFIX: &str = "UPLAKE_STORAGE_";

impl StorageOptions {
    /// These options with what the environment says, which wins over the file.
    ///
    /// `variables` are names and values, usually `std::env::vars()`. Known are the providers' own
    /// (`AWS_…`, `GOOGLE_…`, `AZURE_…`), the proxies', and `UPLAKE_STORAGE_…` for the settings that
    /// are a size, a number or a path.
    ///
    /// # Errors
    /// [`StoreError::Setting`] if a variable of ours is unknown or cannot be read.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StoreError> {
        for (name, value) in variables {
            if PROVIDER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                self.provider_environment.insert(name.to_ascii_lowercase(), value);
            } else if let Some(key) = name.strip_prefix(OUR_PREFIX) {
                self.set(&key.to_ascii_lowercase(), &value)?;
            } else if ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"]
                .contains(&name.to_ascii_uppercase().as_str())
                && !value.is_empty()
            {
                self.connections = false;
            }
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        fn read<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T, StoreError> {
            value.trim().parse().map_err(|reason: T::Err| StoreError::Setting {
                key: key.to_owned(),
                reason: format!("`{value}`: {reason}"),
            })
        }
        match key {
            "memory_cache" => self.memory_cache = read(key, value)?,
            "disk_cache" => self.disk_cache = read(key, value)?,
            "disk_cache_path" => self.disk_cache_path = Some(PathBuf::from(value)),
            "piece" => self.piece = read(key, value)?,
            "merge_gap" => self.merge_gap = read(key, value)?,
            "least_requests" => self.least_requests = read(key, value)?,
            "start_requests" => self.start_requests = read(key, value)?,
            "most_requests" => self.most_requests = read(key, value)?,
            "bytes_under_way" => self.bytes_under_way = read(key, value)?,
            "preload" => self.preload = read(key, value)?,
            "preload_new" => self.preload_new = read(key, value)?,
            "hedge_budget" => self.hedge_budget = read(key, value)?,
            "stall_timeout_ms" => self.stall_timeout_ms = read(key, value)?,
            "read_timeout_ms" => self.read_timeout_ms = read(key, value)?,
            "retries" => self.retries = read(key, value)?,
            "reads_per_second" => self.reads_per_second = read(key, value)?,
            "writes_per_second" => self.writes_per_second = read(key, value)?,
            "connections" => self.connections = read(key, value)?,
            "dns_refresh_ms" => self.dns_refresh_ms = read(key, value)?,
            _ => {
                return Err(StoreError::Setting {
                    key: key.to_owned(),
                    reason: format!("{OUR_PREFIX}{} is not a setting", key.to_ascii_uppercase()),
                });
            }
        }
        Ok(())
    }

    /// Whether the settings make sense together.
    ///
    /// # Errors
    /// [`StoreError::Setting`] with what would be right.
    pub fn check(&self) -> Result<(), StoreError> {
        let refuse = |key: &str, reason: &str| {
            Err(StoreError::Setting { key: key.to_owned(), reason: reason.to_owned() })
        };
        if self.disk_cache.0 > 0 && self.disk_cache_path.is_none() {
            return refuse("disk_cache_path", "name a folder, or set disk_cache to 0");
        }
        if self.disk_cache.0 > 0 && self.disk_cache.0 < LEAST_DISK {
            return refuse("disk_cache", "use at least 16 MiB, or 0 for none");
        }
        if self.piece < ByteSize::kib(64) || self.piece > ByteSize::mib(1024) {
            return refuse("piece", "use 64 KiB to 1 GiB");
        }
        if self.bytes_under_way < self.piece {
            return refuse("bytes_under_way", "use at least the size of one piece");
        }
        if self.least_requests == 0 || self.least_requests > self.most_requests {
            return refuse("least_requests", "use 1 up to most_requests");
        }
        if !(0.0..=1.0).contains(&self.hedge_budget) {
            return refuse("hedge_budget", "use 0 (off) to 1; 0.05 allows 5 % extra requests");
        }
        if self.stall_timeout_ms == 0 || self.read_timeout_ms == 0 || self.dns_refresh_ms == 0 {
            return refuse("stall_timeout_ms", "time-outs are at least 1 ms");
        }
        if !(self.reads_per_second >= 1.0 && self.writes_per_second >= 1.0) {
            return refuse("reads_per_second", "use at least 1 request per second");
        }
        Ok(())
    }

    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.stall_timeout_ms)
    }

    pub(crate) fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("1 KiB", 1024),
            ("1.5 KiB", 1536),
            ("20GiB", 20 << 30),
            ("1g", 1 << 30),
            ("3 TB", 3_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "1 XB", "99999999999 TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize::kib(1536).to_string(), "1536 KiB");
        assert_eq!(ByteSize(20 << 30).to_string(), "20 GiB");
    }

    #[test]
    fn environment_wins_over_the_file() {
        let file = r#"
            disk_cache = 1000
            [provider]
            aws_region = "eu-central-1"
        "#;
        let options: StorageOptions = toml::from_str(file).expect("valid");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = options
            .with_environment([
                pair("AWS_REGION", "us-east-1"),
                pair("UPLAKE_STORAGE_DISK_CACHE", "2 GiB"),
                pair("HOME", "x"),
            ])
            .expect("valid");
        assert_eq!(options.provider_environment["aws_region"], "us-east-1");
        assert_eq!(options.disk_cache, ByteSize(2 << 30));
        assert!(options.connections);
        let proxied = StorageOptions::default().with_environment([pair("https_proxy", "http://p")]);
        assert!(!proxied.expect("valid").connections);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        for (toml, key) in [
            ("disk_cache = 50_000_000", "disk_cache_path"),
            ("disk_cache = 5\ndisk_cache_path = \"x\"", "disk_cache"),
            ("piece = 5", "piece"),
            ("bytes_under_way = \"1 MiB\"", "bytes_under_way"),
            ("least_requests = 0", "least_requests"),
            ("hedge_budget = 2.0", "hedge_budget"),
            ("reads_per_second = 0.0", "reads_per_second"),
        ] {
            let options: StorageOptions = toml::from_str(toml).expect(toml);
            let message = options.check().expect_err(toml).to_string();
            assert!(message.contains(&format!("`{key}`")), "{message}");
        }
        assert!(toml::from_str::<StorageOptions>("memory_cach = 5").is_err());
        assert!(StorageOptions::default().check().is_ok());
    }
}
