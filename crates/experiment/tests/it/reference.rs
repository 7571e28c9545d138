//! Reference results that lie outside the project: the folder `golden` in `UPLAKE_DATA`, by default
//! ../shared/data beside the checkout. A test that finds none says loudly that it checked nothing.

use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

/// A file of reference data, if it is there.
pub fn text(file: &str) -> Option<String> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("UPLAKE_DATA").map_or_else(beside, PathBuf::from);
    match std::fs::read_to_string(folder.join("golden").join(file)) {
        Ok(text) => Some(text),
        Err(error) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Not `eprintln!`, which the test harness hides when the test passes.
            let loud = format!(
                "SKIPPED: {test}: no golden/{file} in UPLAKE_DATA ({error}); tests/real_data.py says who has it"
            );
            writeln!(std::io::stderr(), "{loud}").expect("standard error is open");
            None
        }
    }
}

/// A file of JSON as Python writes it, if it is there.
pub fn json(file: &str) -> Option<Value> {
    // Python writes NaN and Infinity, which JSON does not have; no test reads them.
    let text = text(file)?.replace("NaN", "null").replace("-Infinity", "null");
    Some(serde_json::from_str(&text.replace("Infinity", "null")).expect("reference JSON"))
}
