//! `COPY … TO 'day.tsv.gz'`: what a file is written as, from its name and from options in the words that are usual.
//!
//! # Invariants
//! - What STORED AS and OPTIONS say is as they say; an option that there is not is an error.

use std::path::Path;

use datafusion::common::config::{ConfigFileType, TableOptions};
use datafusion::sql::parser::CopyToStatement;
use datafusion::sql::sqlparser::ast::Value;

use crate::base::error::{Result, refuse};
use crate::sql::copy_statement::CopyFrom;

/// DataFusion's names of options.
const COMPRESSION: &str = "compression";
const DELIMITER: &str = "delimiter";
/// What DataFusion has before them, or has not.
const PREFIX: &str = "format.";

/// Options of a CSV file by their usual names, and by DataFusion's.
const OF_CSV: [(&str, &str); 5] = [
    ("header", "has_header"),
    ("delimiter", DELIMITER),
    ("quote", "quote"),
    ("null", "null_value"),
    (COMPRESSION, COMPRESSION),
];

/// Says what the name says, where DataFusion looks at its last extension only and knows few of them.
///
/// # Errors
/// A statement that is refused: Parquet in a compressed file, options that there are not.
pub(crate) fn by_name(copy: &mut CopyToStatement) -> Result<()> {
    if let Some(at) = copy.options.iter().position(|(name, _)| plain(name) == "format") {
        let (_, format) = copy.options.remove(at);
        if copy.stored_as.is_some() {
            return refuse!(SyntaxError, "STORED AS says the format already: leave FORMAT out");
        }
        copy.stored_as = format.into_string();
    }
    let name = copy.target.to_lowercase();
    let packing = match extension(&name) {
        Some("gz") => Some("gzip"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    let inner = match packing {
        Some(_) => Path::new(&name).file_stem().and_then(|stem| extension_of(Path::new(stem))),
        None => extension(&name),
    };
    let said = copy.stored_as.as_deref().map(str::to_lowercase);
    let format = match (said.as_deref(), inner) {
        (Some("csv" | "tsv" | "text"), _) | (None, Some("csv" | "tsv")) => "CSV",
        (Some("json" | "jsonl" | "ndjson"), _) | (None, Some("json" | "jsonl" | "ndjson")) => {
            "JSON"
        }
        (None, Some("parquet")) if packing.is_some() => {
            return refuse!(
                FeatureNotSupported,
                "`{}`: Parquet files are compressed within; leave the last extension out",
                copy.target
            );
        }
        (Some("parquet"), _) | (None, Some("parquet")) => {
            return spell_options(copy, ConfigFileType::PARQUET);
        }
        _ => return Ok(()),
    };
    let is_tabs = said.as_deref().map_or(inner == Some("tsv"), |said| said == "tsv");
    copy.stored_as = Some(format.to_owned());
    let file_type = match format {
        "CSV" => ConfigFileType::CSV,
        _ => ConfigFileType::JSON,
    };
    spell_options(copy, file_type)?;
    if let Some(packing) = packing {
        add(copy, COMPRESSION, packing);
    }
    if is_tabs {
        add(copy, DELIMITER, "\t");
    }
    Ok(())
}

/// An option's name without what DataFusion may have before it.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_prefix(PREFIX).map(str::to_owned).unwrap_or(name)
}

/// Gives options the names and values that DataFusion has for them.
fn spell_options(copy: &mut CopyToStatement, file_type: ConfigFileType) -> Result<()> {
    let what = match file_type {
        ConfigFileType::CSV => "CSV",
        ConfigFileType::JSON => "JSON",
        ConfigFileType::PARQUET => "Parquet",
    };
    let usual: &[(&str, &str)] = match file_type {
        ConfigFileType::CSV => &OF_CSV,
        _ => &OF_CSV[4..],
    };
    let mut known = TableOptions::new();
    known.set_config_format(file_type);
    let known = known.entries();
    let known: Vec<&str> =
        known.iter().map(|entry| entry.key.strip_prefix(PREFIX).unwrap_or(&entry.key)).collect();
    for (name, value) in &mut copy.options {
        let asked = plain(name);
        // Of one column (`compression::a`), a file's own (`metadata::a`), or the session's: DataFusion knows.
        if asked.contains("::") || asked.starts_with("execution.") {
            continue;
        }
        if let Some((_, spelled)) = usual.iter().find(|(usual, _)| *usual == asked) {
            if asked != *spelled || !name.to_lowercase().starts_with(PREFIX) {
                *name = (*spelled).to_owned();
            }
            *value = plain_value(&asked, value)?;
            continue;
        }
        if !known.contains(&asked.as_str()) {
            let usual: Vec<&str> = usual.iter().map(|(usual, _)| *usual).collect();
            let others = known.iter().filter(|known| {
                !usual.contains(*known) && !OF_CSV.iter().any(|(_, spelled)| spelled == *known)
            });
            let others: Vec<&str> = others.copied().collect();
            return refuse!(
                InvalidParameterValue,
                "COPY to {what} has no option `{name}`; there are format, {}, and {}",
                usual.join(", "),
                others.join(", ")
            );
        }
    }
    Ok(())
}

/// A value as DataFusion reads it.
fn plain_value(option: &str, value: &Value) -> Result<Value> {
    let text = value.clone().into_string().unwrap_or_else(|| value.to_string());
    let text = match option {
        "header" => truth(&text)?.to_string(),
        DELIMITER | "quote" => char::from(one_byte(option, &text)?).to_string(),
        COMPRESSION if text.eq_ignore_ascii_case("none") => "uncompressed".to_owned(),
        _ => text,
    };
    Ok(Value::SingleQuotedString(text))
}

/// Is the option on?
pub(crate) fn truth(text: &str) -> Result<bool> {
    match text.to_lowercase().as_str() {
        "true" | "on" | "1" | "yes" => Ok(true),
        "false" | "off" | "0" | "no" => Ok(false),
        _ => refuse!(InvalidParameterValue, "header is true or false, not `{text}`"),
    }
}

/// A separator or quote.
pub(crate) fn one_byte(option: &str, text: &str) -> Result<u8> {
    match (text, text.as_bytes()) {
        ("\\t" | "tab", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !b"\r\n".contains(byte) => Ok(*byte),
        _ => {
            refuse!(InvalidParameterValue, "{option} is one ASCII character, or tab, not `{text}`")
        }
    }
}

/// What COPY … FROM says of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadOptions {
    /// If it is said: is it Parquet?
    pub is_parquet: Option<bool>,
    pub header: Option<bool>,
    pub delimiter: Option<u8>,
    pub null: Option<String>,
}

/// The options of COPY … FROM, which are those of COPY … TO.
///
/// # Errors
/// 22023 for one that there is not, and for a value that it cannot have.
pub(crate) fn read_options(copy: &CopyFrom) -> Result<ReadOptions> {
    let mut read = ReadOptions::default();
    let stored_as = copy.stored_as.iter().map(|format| ("format".to_owned(), format.as_str()));
    let options = copy.options.iter().map(|(name, value)| (plain(name), value.as_str()));
    for (name, value) in stored_as.chain(options) {
        match name.as_str() {
            "format" => match value.to_lowercase().as_str() {
                "parquet" => read.is_parquet = Some(true),
                "csv" | "text" | "json" | "jsonl" | "ndjson" => read.is_parquet = Some(false),
                "tsv" => {
                    read.is_parquet = Some(false);
                    read.delimiter.get_or_insert(b'\t');
                }
                _ => {
                    return refuse!(
                        InvalidParameterValue,
                        "there is no format `{value}`: there are csv, tsv, json, jsonl and parquet"
                    );
                }
            },
            "header" | "has_header" => read.header = Some(truth(value)?),
            DELIMITER => read.delimiter = Some(one_byte(DELIMITER, value)?),
            "null" | "null_value" => read.null = Some(value.to_owned()),
            "quote" if value == "\"" => {}
            "quote" => {
                return refuse!(
                    FeatureNotSupported,
                    "values of files are quoted with \", and with nothing else"
                );
            }
            // Which it is, its first bytes say.
            COMPRESSION => match value.to_lowercase().as_str() {
                "gzip" | "gz" | "zstd" | "zst" | "none" | "uncompressed" | "auto" => {}
                _ => {
                    return refuse!(
                        InvalidParameterValue,
                        "files are compressed with gzip or zstd, not `{value}`"
                    );
                }
            },
            _ => {
                return refuse!(
                    InvalidParameterValue,
                    "COPY … FROM has no option `{name}`; there are format, header, delimiter, quote, null and compression"
                );
            }
        }
    }
    Ok(read)
}

fn extension(name: &str) -> Option<&str> {
    extension_of(Path::new(name))
}

fn extension_of(name: &Path) -> Option<&str> {
    name.extension()?.to_str()
}

/// If it is not said already.
fn add(copy: &mut CopyToStatement, option: &str, value: &str) {
    let is_it = |key: &str| key.rsplit('.').next().is_some_and(|k| k.eq_ignore_ascii_case(option));
    if !copy.options.iter().any(|(key, _)| is_it(key)) {
        copy.options.push((option.to_owned(), Value::SingleQuotedString(value.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::{DFParser, Statement};

    use super::*;

    /// A format and its options.
    type Named = (Option<String>, Vec<(String, String)>);

    fn named(text: &str) -> Result<Named> {
        let mut parsed = DFParser::parse_sql(text).unwrap();
        let Some(Statement::CopyTo(mut copy)) = parsed.pop_front() else { panic!("{text}") };
        by_name(&mut copy)?;
        let text = |value: Value| value.into_string().unwrap_or_default();
        let options = copy.options.into_iter().map(|(key, value)| (key, text(value)));
        Ok((copy.stored_as, options.collect()))
    }

    #[test]
    fn names_say_format_separator_and_compression() {
        for (text, format, options) in [
            ("COPY t TO 'a.csv'", Some("CSV"), &[][..]),
            ("COPY t TO 'a.TSV.gz'", Some("CSV"), &[("compression", "gzip"), ("delimiter", "\t")]),
            ("COPY t TO 'a.b/c.jsonl.zst'", Some("JSON"), &[("compression", "zstd")]),
            ("COPY t TO 'a.ndjson'", Some("JSON"), &[]),
            ("COPY t TO 'a.parquet'", None, &[]),
            (
                "COPY t TO 'a.csv' OPTIONS (header 'off', null '-', Quote '|', compression 'none')",
                Some("CSV"),
                &[
                    ("has_header", "false"),
                    ("null_value", "-"),
                    ("quote", "|"),
                    ("compression", "uncompressed"),
                ],
            ),
            (
                "COPY t TO 'a.x' OPTIONS (format 'tsv', 'format.has_header' 'false', delimiter 'tab')",
                Some("CSV"),
                &[("format.has_header", "false"), ("delimiter", "\t")],
            ),
            (
                "COPY t TO 'a.parquet' OPTIONS (compression 'zstd(3)', 'compression::a' 'snappy')",
                None,
                &[("compression", "zstd(3)"), ("compression::a", "snappy")],
            ),
            ("COPY t TO 'folder/'", None, &[]),
            ("COPY t TO 'a.gz'", None, &[]),
            ("COPY t TO 'a.txt' STORED AS TSV", Some("CSV"), &[("delimiter", "\t")]),
            (
                "COPY t TO 'a.tsv.gz' OPTIONS ('format.delimiter' '|', compression 'zstd')",
                Some("CSV"),
                &[("format.delimiter", "|"), ("compression", "zstd")],
            ),
        ] {
            let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            assert_eq!(named(text).unwrap(), (format.map(str::to_owned), options), "{text}");
        }
        for (text, says) in [
            ("COPY t TO 'a.parquet.gz'", "compressed within"),
            (
                "COPY t TO 'a.csv' OPTIONS (heading 'true')",
                "format, header, delimiter, quote, null, compression",
            ),
            ("COPY t TO 'a.json' OPTIONS (header 'true')", "JSON has no option `header`"),
            ("COPY t TO 'a.parquet' OPTIONS (header 'true')", "Parquet has no option `header`"),
            ("COPY t TO 'a.csv' OPTIONS (header 'maybe')", "true or false"),
            ("COPY t TO 'a.csv' OPTIONS (delimiter '::')", "one ASCII character"),
            ("COPY t TO 'a.x' STORED AS CSV OPTIONS (format 'csv')", "leave FORMAT out"),
        ] {
            let error = named(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn options_of_reading_are_those_of_writing() {
        let of = |stored_as: Option<&str>, options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let stored_as = stored_as.map(str::to_owned);
            read_options(&CopyFrom { files: Vec::new(), stored_as, options })
        };
        let none = ReadOptions::default();
        assert_eq!(of(None, &[]).unwrap(), none);
        let tabs = ReadOptions { is_parquet: Some(false), delimiter: Some(b'\t'), ..none.clone() };
        assert_eq!(of(Some("TSV"), &[]).unwrap(), tabs);
        let said = ReadOptions {
            is_parquet: Some(false),
            header: Some(false),
            delimiter: Some(b';'),
            null: Some("-".into()),
        };
        let options = [
            ("FORMAT", "csv"),
            ("header", "off"),
            ("format.delimiter", ";"),
            ("null", "-"),
            ("quote", "\""),
        ];
        assert_eq!(of(None, &options).unwrap(), said);
        for (name, value) in
            [("nope", "1"), ("quote", "'"), ("format", "xml"), ("compression", "bzip2")]
        {
            assert!(of(None, &[(name, value)]).is_err(), "{name}");
        }
    }
}
