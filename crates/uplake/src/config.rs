//! `uplake.toml`: what does not belong on every command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use uplake_table::StorageOptions;

use crate::LakeArgs;
use crate::foreign_errors::without_value;

/// Looked for where the command runs, if no other file is named.
const USUAL: &str = "uplake.toml";
/// Where the disk cache lies, in the user's folder for caches.
const DISK_CACHE: &str = "storage";

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    storage: StorageOptions,
}

/// How the lake's store is reached and cached: the file, then the environment, then `--storage`.
pub fn storage(args: &LakeArgs, cache: Option<PathBuf>) -> Result<StorageOptions> {
    let config = match &args.config {
        Some(path) => read(path)?,
        None if Path::new(USUAL).is_file() => read(Path::new(USUAL))?,
        None => Config::default(),
    };
    let mut options = config.storage.with_environment(environment())?;
    for setting in &args.storage {
        let Some((key, value)) = setting.split_once('=') else {
            // It may be a secret whose key was forgotten.
            bail!("--storage: write KEY=VALUE, such as disk_cache=20GiB");
        };
        let name = format!("UPLAKE_STORAGE_{}", key.trim().to_ascii_uppercase());
        options = options.with_environment([(name, value.trim().to_owned())])?;
    }
    if options.disk_cache.0 > 0 && options.disk_cache_path.is_none() {
        options.disk_cache_path = cache.map(|folder| folder.join(DISK_CACHE));
    }
    Ok(options)
}

/// The environment without what is not text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
}

fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        let (path, place) = (path.display(), told(&error, &text));
        anyhow::anyhow!("{path}, {place} (see docs/storage.md)")
    })
}

/// What is wrong and where, without what the file says there: it may be a secret.
fn told(error: &toml::de::Error, text: &str) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let mut message = without_value(error);
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let value = line.split_once('=').map_or("", |(_, value)| value);
    let is_of_word = |c: char| !c.is_whitespace() && !"\"'`,[]{}#=".contains(c);
    for word in value.split(|c| !is_of_word(c)).filter(|word| word.len() > 2) {
        message = message.replace(word, "…");
    }
    format!("line {number}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_section_for_storage() {
        let text =
            "[storage]\ndisk_cache = \"2 GiB\"\n[storage.provider]\nregion = \"eu-west-1\"\n";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!(config.storage.disk_cache.0, 2 << 30);
        assert_eq!(config.storage.provider["region"], "eu-west-1");
        assert!(toml::from_str::<Config>("[storge]").is_err());
    }

    #[test]
    fn no_error_tells_a_secret() {
        let key = "[storage.provider]\nsecret_access_key = ";
        let broken = [
            "\"S3CRET",
            "S3CRET",
            "\"S3CRET\" x",
            "[\"S3CRET\"]",
            "{a = \"S3CRET\"}",
            "\"S3CRET\\q\"",
            "73727",
            "\"S3CRET\"\nsecret_access_key = \"S3CRET\"",
            "'S3CRET",
            "\"\"\"S3CRET",
            "S3CRET = 1",
            "\"a\" \"S3CRET\"",
        ];
        for value in broken {
            let text = format!("{key}{value}\n");
            let Err(error) = toml::from_str::<Config>(&text) else { continue };
            let told = told(&error, &text);
            assert!(told.starts_with("line "), "{told}");
            assert!(!told.contains("S3CRET") && !told.contains("73727"), "{told}");
        }
        let text = "[storage]\ndisk_cache = \"S3CRET\"\n";
        let told = told(&toml::from_str::<Config>(text).unwrap_err(), text);
        assert!(told.contains("line 2") && !told.contains("S3CRET"), "{told}");
        let unknown = toml::from_str::<Config>("[storge]\n").unwrap_err();
        assert!(super::told(&unknown, "[storge]\n").contains("storge"));
    }
}
