//! Runs the house rules on this workspace.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use uplake_tidy::{Manifest, Modules, Table, check_crates, check_file, floors};

/// Binary files are told by not being UTF-8; larger ones than this are data.
const MAX_TEXT_BYTES: u64 = 4 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let Ok(architecture) = fs::read_to_string(root().join("ARCHITECTURE.md")) else {
        // Not `eprintln!`, which the test harness hides when the test passes.
        let loud = "\nNOT CHECKED: ARCHITECTURE.md does not exist, so any dependency passes.\n";
        writeln!(std::io::stderr(), "{loud}").expect("standard error is open");
        return;
    };
    let table = Table::parse(&architecture).unwrap_or_else(|message| panic!("{message}"));
    let mut manifests = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("the workspace has crates") {
        let entry = entry.expect("a readable folder");
        let name = entry.file_name().into_string().expect("crate folders are ASCII");
        if let Ok(toml) = fs::read_to_string(entry.path().join("Cargo.toml")) {
            manifests.insert(name, Manifest::parse(&toml));
        }
    }
    report(&check_crates(&table, &manifests));
}

#[test]
fn files_follow_the_house_rules() {
    let mut complaints = Vec::new();
    for path in files() {
        let full = root().join(&path);
        let is_small = fs::metadata(&full).is_ok_and(|file| file.len() <= MAX_TEXT_BYTES);
        if is_small && let Ok(text) = fs::read_to_string(&full) {
            complaints.extend(check_file(&path, &text));
        }
    }
    report(&complaints);
}

#[test]
fn modules_use_those_below_them() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for path in files() {
        let Some((name, file)) =
            path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if let Ok(text) = fs::read_to_string(root().join(&path)) {
            crates.entry(name.to_owned()).or_default().insert(file.to_owned(), text);
        }
    }
    let mut complaints = Vec::new();
    for (name, files) in &crates {
        let modules =
            Modules::parse(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
        for circle in modules.circles() {
            complaints.push(format!(
                "crates/{name}: a circle of {} modules: {}; move what they share below them",
                circle.len(),
                circle.join(", ")
            ));
        }
        let floors = floors(&architecture, name);
        if !floors.is_empty() {
            complaints
                .extend(modules.upward(&floors).into_iter().map(|c| format!("crates/{name}: {c}")));
        }
    }
    report(&complaints);
}

/// Files that git tracks, so that a colleague's half-written file fails nobody else; without git,
/// all files below `crates`.
fn files() -> Vec<String> {
    let git = Command::new("git").arg("ls-files").current_dir(root()).output();
    if let Ok(output) = git
        && output.status.success()
    {
        return String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    }
    let mut files = Vec::new();
    let mut folders = vec!["crates".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a readable folder").flatten() {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            let list = if entry.path().is_dir() { &mut folders } else { &mut files };
            list.push(path);
        }
    }
    files
}
