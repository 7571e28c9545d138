//! The house rules a compiler does not know: who may depend on whom, and what no file contains.
//!
//! [`Table`] is the crate table of ARCHITECTURE.md, [`Manifest`] the dependencies of one
//! Cargo.toml; [`check_crates`] compares them and [`check_file`] reads one file. All of it takes
//! text and gives complaints; `tests/workspace.rs` is the thin part that reads the disk.
//!
//! # Invariants
//! - A complaint names the file, what is wrong and what to do.
//! - No dependency: this crate must build when everything else does not.
//!
//! # Not here
//! A Markdown or TOML library: both parsers know only the few shapes our own files have.
#![forbid(unsafe_code)]

mod modules;

use std::collections::BTreeMap;

pub use modules::Modules;

/// Lines a source file may have; STYLE asks to split at 800.
pub const MAX_LINES: usize = 1200;

/// Names of types that several files of `engine` had, each for something else.
const VAGUE: [&str; 4] = ["What", "Plan", "Rows", "Question"];
/// Crates that may contain unsafe code (STYLE section 10).
const UNSAFE_CRATES: [&str; 2] = ["postings", "btree"];
/// What no source line contains, and what to do instead. Split, so that they are not found here.
const FORBIDDEN: [(&str, &str); 4] = [
    (concat!("todo", "!("), "write the code or return an error"),
    (concat!("unimplemented", "!("), "write the code or return an error"),
    (concat!("dbg", "!("), "remove it"),
    (concat!("#[", "ignore"), "make the test pass everywhere or delete it"),
];
/// Files that read the words of others' errors, one place for each crate: what has a variant has no need of it.
const READS_WORDS: [&str; 5] = [
    "crates/engine/src/base/foreign_errors.rs",
    "crates/objectio/src/conditional.rs",
    "crates/objectio/src/error.rs",
    "crates/table/src/error.rs",
    "crates/uplake/src/foreign_errors.rs",
];
/// What an error's words are called, and how they are looked through.
const WORDS: [&str; 6] = [
    "message",
    "error.to_string()",
    "err.to_string()",
    "e.to_string()",
    "cause.to_string()",
    "source.to_string()",
];
const LOOKED_THROUGH: [&str; 8] = [
    ".contains(",
    ".starts_with(",
    ".ends_with(",
    ".strip_prefix(",
    ".strip_suffix(",
    ".split_once(",
    ".rsplit_once(",
    ".find(",
];
const UNSAFE_FORMS: [&str; 4] = ["{", "fn ", "impl ", "extern "];
const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";
/// Top folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 3] = ["home", "root", "work"];

/// The crate table of ARCHITECTURE.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    folder: String,
    may_use: Vec<String>,
    heavy: Vec<String>,
}

impl Table {
    /// Reads the first table whose header starts with `| crate |`.
    ///
    /// # Errors
    /// A message if there is no such table, if it lacks a column, or if a row is malformed.
    ///
    /// # Examples
    /// ```
    /// use uplake_tidy::Table;
    /// let table = Table::parse(
    ///     "| crate | may use (ours) | heavy crates it alone owns |\n|---|---|---|\n\
    ///      | `lake` | none | parquet |\n",
    /// );
    /// assert!(table.is_ok());
    /// ```
    pub fn parse(markdown: &str) -> Result<Self, String> {
        let mut lines = markdown.lines().skip_while(|line| !line.starts_with("| crate |"));
        let header = lines.next().ok_or(
            "ARCHITECTURE.md: no table whose header starts with `| crate |`; add the crate table",
        )?;
        let header = cells(header);
        let column = |name: &str| {
            header
                .iter()
                .position(|cell| cell == name)
                .ok_or(format!("ARCHITECTURE.md: the crate table has no column `{name}`; add it"))
        };
        let (may_use, heavy) = (column("may use (ours)")?, column("heavy crates it alone owns")?);
        let mut rows: Vec<Row> = Vec::new();
        for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
            let cells = cells(line);
            let (Some(folder), Some(may_use), Some(heavy)) =
                (code(&cells[0]), cells.get(may_use), cells.get(heavy))
            else {
                return Err(format!(
                    "ARCHITECTURE.md: cannot read the row `{line}`; start it with a crate folder \
                     in backticks and fill every column"
                ));
            };
            let may_use = if may_use == "all above" {
                rows.iter().map(|row| row.folder.clone()).collect()
            } else {
                names(may_use)
            };
            rows.push(Row { folder: folder.to_owned(), may_use, heavy: names(heavy) });
        }
        Ok(Self { rows })
    }

    fn row(&self, folder: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.folder == folder)
    }

    /// Folders of the crates that own `package`.
    fn owners(&self, package: &str) -> Vec<&str> {
        let owns = |row: &&Row| row.heavy.iter().any(|name| same_crate(name, package));
        self.rows.iter().filter(owns).map(|row| row.folder.as_str()).collect()
    }
}

/// The folders of a crate from the ground up: the first column of the first table whose header starts with
/// `` | folder of `NAME` | ``; none without such a table.
pub fn floors(markdown: &str, name: &str) -> Vec<String> {
    let header = format!("| folder of `{name}` |");
    let lines = markdown.lines().skip_while(|line| !line.starts_with(&header)).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.filter_map(|line| code(&cells(line)[0]).map(str::to_owned)).collect()
}

/// The cells of a table row, trimmed.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The text between the first two backticks.
fn code(cell: &str) -> Option<&str> {
    cell.split('`').nth(1).filter(|name| !name.is_empty())
}

/// Names separated by commas, without what stands in brackets or after a space.
fn names(cell: &str) -> Vec<String> {
    let mut depth = 0usize;
    let outside: String = cell
        .chars()
        .filter(|&c| {
            depth += usize::from(c == '(');
            let keep = depth == 0;
            depth = depth.saturating_sub(usize::from(c == ')'));
            keep
        })
        .collect();
    outside
        .split(',')
        .filter_map(|name| name.split_whitespace().next())
        .map(|name| name.trim_matches('`').to_owned())
        .filter(|name| !["", "none", "ours", "-"].contains(&name.as_str()))
        .collect()
}

/// Cargo takes `-` and `_` in a package's name for the same.
fn same_crate(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

/// The names of the packages one Cargo.toml depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// What the crate itself needs.
    pub normal: Vec<String>,
    /// What its tests and benches need.
    pub dev: Vec<String>,
    /// What its build script needs.
    pub build: Vec<String>,
}

impl Manifest {
    /// Reads the dependency sections, also those of `[target.….dependencies]`; other sections and
    /// what is not understood are skipped.
    #[must_use]
    pub fn parse(toml: &str) -> Self {
        let mut manifest = Self::default();
        let mut section = String::new();
        for line in toml.lines() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                section = header.split(']').next().unwrap_or_default().to_owned();
                // `[dependencies.name]`: the header itself names the dependency.
                if let Some((kind, name)) = section.rsplit_once('.')
                    && let Some(list) = manifest.list(kind)
                {
                    list.push(name.trim_matches('"').to_owned());
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.trim().trim_end_matches(".workspace").trim_matches('"');
            if let Some(list) = manifest.list(&section)
                && !key.starts_with('#')
            {
                list.push(renamed(value).unwrap_or(key).to_owned());
            } else if key == "package"
                && let Some((kind, _)) = section.rsplit_once('.')
                && let Some(last) = manifest.list(kind).and_then(|list| list.last_mut())
            {
                *last = value.trim().trim_matches('"').to_owned();
            }
        }
        manifest
    }

    /// The list a section's keys belong to, if it lists dependencies.
    fn list(&mut self, section: &str) -> Option<&mut Vec<String>> {
        // `target.'cfg(unix)'.dependencies` ends like the plain section.
        match section.rsplit('.').next()? {
            _ if section.starts_with("workspace") || section.starts_with("patch") => None,
            "dependencies" => Some(&mut self.normal),
            "dev-dependencies" => Some(&mut self.dev),
            "build-dependencies" => Some(&mut self.build),
            _ => None,
        }
    }
}

/// `name` of `{ package = "name", … }`.
fn renamed(value: &str) -> Option<&str> {
    let fields = value.trim().strip_prefix('{')?.trim_end_matches('}');
    fields.split(',').find_map(|field| {
        let (key, value) = field.split_once('=')?;
        (key.trim() == "package").then(|| value.trim().trim_matches('"'))
    })
}

/// The folder of one of our packages: `uplake-table` lives in `table`, `uplake` in `uplake`.
fn our_folder(package: &str) -> Option<&str> {
    if package == "uplake" { Some(package) } else { package.strip_prefix("uplake-") }
}

/// Compares the manifests, by crate folder, with the table.
///
/// Only what a crate ships with is bound (normal and build dependencies); tests may use anything.
#[must_use]
pub fn check_crates(table: &Table, manifests: &BTreeMap<String, Manifest>) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in table.rows.iter().filter(|row| !manifests.contains_key(&row.folder)) {
        complaints.push(format!(
            "ARCHITECTURE.md: crate `{0}` has a row but crates/{0}/Cargo.toml does not exist; \
             remove the row or add the crate",
            row.folder
        ));
    }
    for (folder, manifest) in manifests {
        let file = format!("crates/{folder}/Cargo.toml");
        let Some(row) = table.row(folder) else {
            complaints.push(format!(
                "{file}: crate `{folder}` is not in the crate table; add its row to ARCHITECTURE.md"
            ));
            continue;
        };
        for package in manifest.normal.iter().chain(&manifest.build) {
            complaints
                .extend(check_edge(table, row, package).map(|text| format!("{file}: {text}")));
        }
    }
    complaints
}

/// What is wrong with `row`'s crate depending on `package`, if anything.
fn check_edge(table: &Table, row: &Row, package: &str) -> Option<String> {
    let folder = &row.folder;
    if let Some(ours) = our_folder(package) {
        let allowed = row.may_use.iter().any(|name| same_crate(name, ours));
        return (!allowed).then(|| {
            format!(
                "`{folder}` must not depend on `{package}`; remove the dependency, or propose the \
                 edge and put `{ours}` into its `may use (ours)` cell in ARCHITECTURE.md"
            )
        });
    }
    let owners = table.owners(package);
    if owners.is_empty() || owners.contains(&folder.as_str()) {
        return None;
    }
    Some(format!(
        "`{package}` belongs to `{}`; use it through that crate, or name it in the row of \
         `{folder}` in ARCHITECTURE.md too",
        owners.join("`, `")
    ))
}

/// Checks one file of the repository; `path` is relative to its root, with `/`.
#[must_use]
pub fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(folder) = machine_path(line) {
            complaints.push(format!(
                "{path}:{}: a path below /{folder} exists on one machine only; make it relative \
                 or an argument",
                number + 1
            ));
        }
    }
    if path.ends_with(".rs") {
        check_source(path, text, &mut complaints);
    }
    complaints
}

fn check_source(path: &str, text: &str, complaints: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        complaints.push(format!(
            "{path}: {lines} lines, at most {MAX_LINES} are allowed; split it by what its readers want"
        ));
    }
    let folder = path.strip_prefix("crates/").and_then(|path| path.split('/').next());
    let may_be_unsafe = folder.is_some_and(|folder| UNSAFE_CRATES.contains(&folder));
    let file = path.splitn(3, '/').nth(2).unwrap_or_default();
    let is_root = ["src/lib.rs", "src/main.rs"].contains(&file);
    if is_root && !may_be_unsafe && !text.lines().any(|line| line.trim() == FORBID_UNSAFE) {
        complaints
            .push(format!("{path}: lacks `{FORBID_UNSAFE}`; add it below the module comment"));
    }
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
        let at = format!("{path}:{}", number + 1);
        for (pattern, remedy) in FORBIDDEN.iter().filter(|(pattern, _)| line.contains(pattern)) {
            complaints.push(format!("{at}: `{pattern}` is not allowed; {remedy}"));
        }
        if let Some(name) = vague_type(line).filter(|_| path.starts_with("crates/engine/src/")) {
            complaints.push(format!(
                "{at}: a type called `{name}` says nothing to who meets it elsewhere; say of what it is"
            ));
        }
        if !may_be_unsafe && is_unsafe(line) {
            complaints.push(format!(
                "{at}: unsafe code is allowed in {} only; find a safe way or move it there",
                UNSAFE_CRATES.join(" and ")
            ));
        }
    }
    let is_product = path.split('/').nth(2) == Some("src") && !path.ends_with("/tests.rs");
    if !is_product || READS_WORDS.contains(&path) {
        return;
    }
    let product = text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    for (number, _) in product.filter(|(_, line)| !is_comment(line) && reads_words(line)) {
        complaints.push(format!(
            "{path}:{}: an error is told by its words; look at its variant or code, or do it in {}",
            number + 1,
            READS_WORDS.join(" or ")
        ));
    }
}

/// Does a line look through what an error says?
fn reads_words(line: &str) -> bool {
    LOOKED_THROUGH.iter().any(|how| {
        line.match_indices(how).any(|(at, _)| {
            let named = |words: &&str| {
                let before = line[..at].strip_suffix(*words);
                before.is_some_and(|b| !b.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
            };
            WORDS.iter().any(named)
        })
    })
}

/// The name of a type that is defined here, if others would call theirs the same.
fn vague_type(line: &str) -> Option<&'static str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    let name = words.next()?;
    VAGUE.into_iter().find(|vague| *vague == name)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn is_unsafe(line: &str) -> bool {
    let keyword = concat!("unsafe", " ");
    line.match_indices(keyword).any(|(start, _)| {
        let whole_word = !line[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = line[start + keyword.len()..].trim_start();
        whole_word && UNSAFE_FORMS.iter().any(|form| rest.starts_with(form))
    })
}

/// The machine's folder a quoted absolute path in `line` starts with.
fn machine_path(line: &str) -> Option<&'static str> {
    MACHINE_FOLDERS.into_iter().find(|folder| {
        let path = format!("/{folder}/");
        line.match_indices(&path).any(|(start, _)| line[..start].ends_with(['"', '\'', '`']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURE: &str = "\
# Architecture
| other | table |
|---|---|

| crate | purpose | may use (ours) | heavy crates it alone owns | must not know |
|---|---|---|---|---|
| `postings` | Sets. | none | roaring (oracle, interchange) | files |
| `experiment` | Values. | none | statrs (slim) | rows |
| `table` | A table. | postings | deltalake-core *without* its `datafusion` feature, arrow, parquet | SQL |
| `engine` | SQL. | table, experiment | datafusion, arrow | clients |
| `uplake` | The command. | all above | `clap` | |

| `not` | part | of | the | table |
";

    fn table() -> Table {
        Table::parse(ARCHITECTURE).expect("the table is well formed")
    }

    /// Complaints about the given crates when every other crate of the table is empty.
    fn complaints(manifests: &[(&str, &str)]) -> String {
        let mut all: BTreeMap<String, Manifest> =
            table().rows.iter().map(|row| (row.folder.clone(), Manifest::default())).collect();
        for (folder, toml) in manifests {
            all.insert((*folder).to_owned(), Manifest::parse(toml));
        }
        check_crates(&table(), &all).join("\n")
    }

    #[test]
    fn table_is_read_without_its_remarks() {
        let table = table();
        let row = |folder| table.row(folder).expect("a row");
        assert_eq!(table.rows.len(), 5);
        assert_eq!(row("postings").heavy, ["roaring"]);
        assert_eq!(row("table").heavy, ["deltalake-core", "arrow", "parquet"]);
        assert_eq!(row("engine").may_use, ["table", "experiment"]);
        assert_eq!(row("uplake").may_use, ["postings", "experiment", "table", "engine"]);
        assert_eq!(row("uplake").heavy, ["clap"]);
        assert_eq!(row("experiment").may_use, [""; 0]);
    }

    #[test]
    fn tables_that_cannot_be_read_are_refused() {
        for (markdown, expected) in [
            ("# Nothing", "no table"),
            ("| crate | purpose |\n|---|---|\n", "no column `may use (ours)`"),
            ("| crate | may use (ours) |\n|---|---|\n", "no column `heavy crates it alone owns`"),
            (
                "| crate | may use (ours) | heavy crates it alone owns |\n|---|---|---|\n| x |\n",
                "cannot read the row",
            ),
        ] {
            let message = Table::parse(markdown).expect_err(markdown);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn manifests_are_read_in_every_shape_we_write() {
        let manifest = Manifest::parse(
            r#"
[package]
name = "uplake-engine"
[dependencies]
# comment = "1"
uplake-table = { path = "../table" }
arrow.workspace = true
short = { version = "1", package = "long-name" }
[dependencies.datafusion]
workspace = true
[dependencies.alias]
package = "real"
[target.'cfg(unix)'.dependencies]
libc = "0.2"
[dev-dependencies]
uplake-testkit = { path = "../testkit" }
[build-dependencies]
cc = "1"
[features]
fast = ["arrow"]
"#,
        );
        let normal = ["uplake-table", "arrow", "long-name", "datafusion", "real", "libc"];
        assert_eq!(manifest.normal, normal);
        assert_eq!(manifest.dev, ["uplake-testkit"]);
        assert_eq!(manifest.build, ["cc"]);
    }

    #[test]
    fn allowed_edges_pass() {
        let engine = "[dependencies]\nuplake-table = {}\nuplake-experiment = {}\narrow = \"59\"\n";
        let uplake = "[dependencies]\nuplake-engine = {}\nclap = \"4\"\n";
        let tests = "[dev-dependencies]\nuplake-engine = {}\ndatafusion = \"55\"\n";
        assert_eq!(complaints(&[("engine", engine), ("uplake", uplake), ("postings", tests)]), "");
    }

    #[test]
    fn forbidden_edges_are_named_with_a_remedy() {
        let found = complaints(&[("table", "[dependencies]\nuplake-engine = {}\n")]);
        assert!(
            found.starts_with("crates/table/Cargo.toml: `table` must not depend on"),
            "{found}"
        );
        assert!(found.contains("put `engine` into its `may use (ours)` cell"), "{found}");
        let found = complaints(&[("table", "[build-dependencies]\nuplake-engine = {}\n")]);
        assert!(found.contains("must not depend on `uplake-engine`"), "{found}");
        let found = complaints(&[("engine", "[dependencies]\nuplake = {}\n")]);
        assert!(found.contains("must not depend on `uplake`"), "{found}");
    }

    #[test]
    fn heavy_crates_stay_with_their_owners() {
        let found = complaints(&[("experiment", "[dependencies]\ndeltalake_core = \"1\"\n")]);
        assert!(found.contains("`deltalake_core` belongs to `table`"), "{found}");
        let found = complaints(&[("uplake", "[dependencies]\narrow = \"59\"\n")]);
        assert!(found.contains("`arrow` belongs to `table`, `engine`"), "{found}");
    }

    #[test]
    fn table_and_folders_must_agree() {
        let found = complaints(&[("extra", "")]);
        assert!(found.contains("crate `extra` is not in the crate table"), "{found}");
        let found = check_crates(&table(), &BTreeMap::new()).join("\n");
        assert!(found.contains("crates/engine/Cargo.toml does not exist"), "{found}");
    }

    #[test]
    fn sources_are_checked_line_by_line() {
        let forbid = FORBID_UNSAFE;
        let unsafe_block = concat!("let x = unsafe", " { y };");
        for (path, text, expected) in [
            ("crates/engine/src/lib.rs", String::new(), "lacks `#![forbid"),
            ("crates/engine/src/lib.rs", format!("//! x\n{forbid}\n"), ""),
            ("crates/btree/src/lib.rs", String::new(), ""),
            ("crates/engine/src/scan.rs", unsafe_block.to_owned(), "scan.rs:1: unsafe code"),
            ("crates/postings/src/scan.rs", unsafe_block.to_owned(), ""),
            ("crates/engine/src/scan.rs", format!("// {unsafe_block}"), ""),
            ("crates/engine/src/scan.rs", "fn is_unsafe_fn() {}".to_owned(), ""),
            ("crates/engine/src/a.rs", format!("\n  {}x)", FORBIDDEN[0].0), "a.rs:2: `todo"),
            ("crates/engine/src/a.rs", format!("{})", FORBIDDEN[1].0), "`unimplemented"),
            ("crates/engine/src/a.rs", format!("{}x)", FORBIDDEN[2].0), "remove it"),
            ("crates/engine/tests/a.rs", format!("{}]", FORBIDDEN[3].0), "make the test pass"),
            ("docs/a.md", FORBIDDEN[0].0.to_owned(), ""),
            (
                "crates/engine/src/a.rs",
                "if message.contains(x) {".into(),
                "a.rs:1: an error is told",
            ),
            (
                "crates/engine/src/a.rs",
                "\nlet x = e.to_string().find(y);".into(),
                "a.rs:2: an error",
            ),
            (
                "crates/engine/src/a.rs",
                "if self.message.starts_with(x) {".into(),
                "its variant or code",
            ),
            ("crates/engine/src/a.rs", "if commit_message.contains(x) {".into(), ""),
            ("crates/engine/src/a.rs", "// message.contains(x)".into(), ""),
            ("crates/engine/src/a.rs", "#[cfg(test)]\nmessage.contains(x)".into(), ""),
            ("crates/engine/src/one_scan/tests.rs", "message.contains(x)".into(), ""),
            ("crates/engine/tests/it/a.rs", "message.contains(x)".into(), ""),
            (READS_WORDS[0], "message.contains(x)".into(), ""),
            ("crates/engine/src/a.rs", "pub(crate) struct Plan<'a> {".into(), "called `Plan`"),
            ("crates/engine/src/a.rs", "pub(crate) struct SumPlan {".into(), ""),
            ("crates/engine/src/a.rs", "let plan: Plan = struct_of(Rows);".into(), ""),
            ("crates/table/src/a.rs", "struct Plan {".into(), ""),
            ("crates/engine/src/a.rs", "\n".repeat(1200), ""),
            ("crates/engine/src/a.rs", "\n".repeat(1201), "1201 lines"),
        ] {
            let found = check_file(path, &text).join("\n");
            assert_eq!(found.is_empty(), expected.is_empty(), "{path}: {found}");
            assert!(found.contains(expected), "{path}: {found}");
        }
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_text() {
        for (line, found) in [
            (format!("open(\"/{}/me/x\")", "home"), true),
            (format!("`/{}/main`", "work"), true),
            (format!("'/{}/.cargo'", "root"), true),
            (format!("https://x.org/{}/page", "home"), false),
            (format!("the /{}/ folder", "work"), false),
        ] {
            assert_eq!(!check_file("docs/a.md", &line).is_empty(), found, "{line}");
        }
    }
}
