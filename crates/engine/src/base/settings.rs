//! What `SET uplake.…` changes.

use std::any::Any;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};

/// Settings of a session, carried in DataFusion's options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// What a statement has from the moment that it comes.
    pub timeout: Option<Duration>,
    /// Rules of speed that are left out (see `optimizer::pipeline`).
    pub disabled_rules: Vec<String>,
    /// Those that there are.
    pub rules: &'static [&'static str],
    /// Names of several.
    pub presets: &'static [(&'static str, &'static [&'static str])],
    /// The session's memory, which is not changed; 0 if nobody says.
    pub memory_bytes: usize,
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
        let wrong = DataFusionError::Configuration;
        match key {
            "timeout" => self.timeout = parse_timeout(value).map_err(wrong)?,
            "disabled_rules" => self.disabled_rules = self.parse_rules(value).map_err(wrong)?,
            _ => {
                return Err(wrong(format!(
                    "there is no setting uplake.{key}; there are uplake.timeout and uplake.disabled_rules"
                )));
            }
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
    fn parse_rules(&self, text: &str) -> Result<Vec<String>, String> {
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
            Some(unknown) => Err(format!(
                "`{unknown}` is no rule that can be left out, nor {}; those are {}",
                self.presets.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or "),
                self.rules.join(", ")
            )),
        }
    }
}

/// `30s`, `500ms`, `2m`, `1h` or a number of seconds; `None` for 0, which is no limit.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_timeout(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("`{text}` is not a time; write 30s, 500ms, 2m, 1h, or 0 for no limit");
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[number.len()..].to_ascii_lowercase().as_str() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    Ok((!timeout.is_zero()).then_some(timeout))
}

/// `30 s`, `1.5 s`, `20 ms`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 0.1 => format!("{:.0} ms", s * 1000.0),
        s if s.fract() == 0.0 || s >= 100.0 => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        assert_eq!(parse_timeout("30s"), seconds(30));
        assert_eq!(parse_timeout(" 2 m"), seconds(120));
        assert_eq!(parse_timeout("7"), seconds(7));
        assert_eq!(parse_timeout("500ms"), Ok(Some(Duration::from_millis(500))));
        assert_eq!(parse_timeout("0"), Ok(None));
        assert!(
            ["", "s", "-1s", "soon", "NaN", "1e400", "3 days"]
                .iter()
                .all(|t| parse_timeout(t).is_err())
        );
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["30 s", "1.5 s", "20 ms", "0.2 s"] {
            assert_eq!(duration_text(parse_timeout(text).unwrap().unwrap()), text);
        }
    }
}
