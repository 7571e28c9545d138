//! What `SET uplake.…` changes.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use datafusion::common::Result;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};

use crate::base::durations::{duration_text, parse_timeout};
use crate::base::error::EngineError;
use crate::base::labels::parse_labels;
use crate::base::sql_state::SqlState;

/// Settings of a session, carried in DataFusion's options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// What a statement has from the moment that it comes.
    pub timeout: Option<Duration>,
    /// Rules of speed that are left out (see `optimizer::pipeline`).
    pub disabled_rules: Vec<String>,
    /// What the cost of statements is told of by (see `labels`).
    pub labels: String,
    /// What statements are a part of, for who traces them.
    pub traceparent: String,
    /// Are statements computed in parts?
    pub elsewhere: InParts,
    /// By the nodes of which warehouse; empty: of this node's own.
    pub warehouse: String,
    /// Those that there are.
    pub rules: &'static [&'static str],
    /// Names of several.
    pub presets: &'static [(&'static str, &'static [&'static str])],
    /// The engine's memory, which is not changed; 0 if nobody says.
    pub memory_bytes: usize,
    /// That of all engines that it shares memory with.
    pub shared_bytes: usize,
}

/// Bytes of a warehouse's name.
const WAREHOUSE_BYTES: usize = 200;

/// When a statement is computed in parts, by others if there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InParts {
    /// Where it is worth it.
    #[default]
    Auto,
    Never,
    /// Where it can be.
    Always,
    /// Where it can be, in so many parts that this process computes one after the other: to see that the answers are
    /// the same.
    Here(u32),
}

impl InParts {
    /// More parts than machines there are find no more.
    const HERE_MAX: u32 = 64;

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        match (text.as_str(), text.strip_prefix("here:")) {
            ("auto", _) => Some(Self::Auto),
            ("never", _) => Some(Self::Never),
            ("always", _) => Some(Self::Always),
            (_, Some(parts)) => {
                let parts = parts.parse().ok().filter(|parts| (1..=Self::HERE_MAX).contains(parts));
                parts.map(Self::Here)
            }
            _ => None,
        }
    }
}

impl fmt::Display for InParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Always => f.write_str("always"),
            Self::Here(parts) => write!(f, "here:{parts}"),
        }
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "uplake";
}

impl ExtensionOptions for Settings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let wrong = |what: String| EngineError::statement(SqlState::InvalidParameterValue, what);
        match key {
            "timeout" => self.timeout = parse_timeout(value).map_err(wrong)?,
            "disabled_rules" => self.disabled_rules = self.parse_rules(value)?,
            "labels" => {
                parse_labels(value).map_err(wrong)?;
                self.labels = value.to_owned();
            }
            "elsewhere" => {
                self.elsewhere = InParts::parse(value).ok_or_else(|| {
                    let most = InParts::HERE_MAX;
                    let parts = format!("here:<parts>, of which there are {most} at most");
                    wrong(format!("`{value}` is none of auto, never, always and {parts}"))
                })?;
            }
            "warehouse" if value.len() <= WAREHOUSE_BYTES && !value.contains(char::is_control) => {
                self.warehouse = value.trim().to_owned();
            }
            "warehouse" => {
                let what =
                    format!("a warehouse is named by {WAREHOUSE_BYTES} bytes at most, of one line");
                return Err(wrong(what).into());
            }
            "traceparent" if is_traceparent(value) => self.traceparent = value.to_owned(),
            "traceparent" => {
                let what = format!("`{value}` is no traceparent: 00-<trace>-<span>-<flags>");
                return Err(wrong(what).into());
            }
            _ => return Err(no_setting(&format!("uplake.{key}")).into()),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        vec![
            ConfigEntry {
                key: "uplake.timeout".into(),
                value: Some(self.timeout.map_or_else(|| "0".into(), duration_text)),
                description: "What a statement may take, queue and execution together; 0 is no limit",
            },
            ConfigEntry {
                key: "uplake.disabled_rules".into(),
                value: Some(self.disabled_rules.join(",")),
                description: "Rules of the optimizer that are left out; they change no answer",
            },
            ConfigEntry {
                key: "uplake.elsewhere".into(),
                value: Some(self.elsewhere.to_string()),
                description: "Are statements computed in parts, by other machines: auto, never or always",
            },
            ConfigEntry {
                key: "uplake.warehouse".into(),
                value: Some(self.warehouse.clone()),
                description: "The warehouse whose nodes compute parts of statements; empty is the node's own",
            },
            ConfigEntry {
                key: "uplake.labels".into(),
                value: Some(self.labels.clone()),
                description: "What the cost of statements is told of by: experiment=x,metric=y",
            },
            ConfigEntry {
                key: "uplake.traceparent".into(),
                value: Some(self.traceparent.clone()),
                description: "What statements are a part of, in a trace of the client: W3C's traceparent",
            },
        ]
    }
}

impl Settings {
    /// Those among DataFusion's options.
    pub fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get::<Self>()
    }

    /// Is a rule of speed left out?
    pub fn disables(&self, rule: &str) -> bool {
        self.disabled_rules.iter().any(|name| name == rule)
    }

    /// Names of rules with commas between them.
    fn parse_rules(&self, text: &str) -> Result<Vec<String>, EngineError> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',').map(|name| name.trim().to_lowercase()) {
            match self.presets.iter().find(|(preset, _)| *preset == name) {
                Some((_, rules)) => names.extend(rules.iter().map(|rule| (*rule).to_owned())),
                None if name.is_empty() => {}
                None => names.push(name),
            }
        }
        match names.iter().find(|name| !self.rules.contains(&name.as_str())) {
            None => Ok(names),
            Some(unknown) => {
                let presets: Vec<&str> = self.presets.iter().map(|(name, _)| *name).collect();
                let presets = presets.join(" or ");
                let what = format!("`{unknown}` is no rule that can be left out, nor {presets}");
                Err(EngineError::statement(SqlState::UndefinedObject, what)
                    .with_hint(format!("those are {}", self.rules.join(", "))))
            }
        }
    }
}

/// Nothing, or what has the form of W3C's header.
fn is_traceparent(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    text.is_empty()
        || lengths.eq([2, 32, 16, 2])
            && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The error of a name that begins like ours.
pub(crate) fn no_setting(name: &str) -> EngineError {
    EngineError::statement(SqlState::UndefinedObject, format!("there is no setting {name}"))
        .with_hint(
            "there are uplake.timeout, uplake.disabled_rules, uplake.elsewhere, uplake.warehouse, \
             uplake.labels and uplake.traceparent",
        )
}
