//! `COPY … TO 'day.tsv.gz'`: what a file is written as, from its name.
//!
//! # Invariants
//! - What STORED AS and OPTIONS say is as they say.

use std::path::Path;

use datafusion::sql::parser::CopyToStatement;
use datafusion::sql::sqlparser::ast::Value;

use crate::base::error::{Result, refuse};

/// DataFusion's names of options.
const COMPRESSION: &str = "compression";
const DELIMITER: &str = "delimiter";

/// Says what the name says, where DataFusion looks at its last extension only and knows few of them.
///
/// # Errors
/// A statement that is refused: Parquet in a compressed file.
pub(crate) fn by_name(copy: &mut CopyToStatement) -> Result<()> {
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
        (Some("csv" | "tsv"), _) | (None, Some("csv" | "tsv")) => "CSV",
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
        _ => return Ok(()),
    };
    let is_tabs = said.as_deref().map_or(inner == Some("tsv"), |said| said == "tsv");
    copy.stored_as = Some(format.to_owned());
    if let Some(packing) = packing {
        add(copy, COMPRESSION, packing);
    }
    if is_tabs {
        add(copy, DELIMITER, "\t");
    }
    Ok(())
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
        assert!(named("COPY t TO 'a.parquet.gz'").is_err());
    }
}
