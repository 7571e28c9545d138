//! Which modules of a crate use which: circles among them, and arrows that go up.
//!
//! Read from `use` and from paths in the text, tests left out. What a module hands on (`pub use`) is looked
//! for where it comes from, so that a folder's `mod.rs` that only lists its modules is no corner of anything.
//!
//! The crate's root is left out: it is where all of it is seen from.
//!
//! # Not here
//! A parser of Rust: macros that make paths, and paths that begin with a type, are not seen.

use std::collections::{BTreeMap, BTreeSet};

/// Further than any of ours; a circle of `pub use` would never end.
const MOST_HANDED_ON: usize = 5;

/// A module of a crate, as the folders and files on its way: `["scan", "gather"]`; none for the crate itself.
type Module = Vec<String>;

/// The modules of one crate.
pub struct Modules {
    /// Per module those that it uses, each with a path that does.
    uses: BTreeMap<Module, BTreeMap<Module, String>>,
}

impl Modules {
    /// `files` are texts by their paths below the crate's `src`.
    ///
    /// # Examples
    /// ```
    /// use uplake_tidy::Modules;
    /// let files = [("lib.rs", "mod a;\nmod b;\n"), ("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::a::A;\n")];
    /// assert_eq!(Modules::parse(files).circles(), [["a", "b"]]);
    /// ```
    pub fn parse<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let codes: BTreeMap<Module, Code> = files
            .into_iter()
            .filter(|(path, _)| path.ends_with(".rs") && !path.ends_with("tests.rs"))
            .map(|(path, text)| (module_of(path), Code::of(text)))
            .collect();
        let handed_on = codes.iter().flat_map(|(module, code)| {
            let named = |(path, name): &(Vec<String>, String)| {
                ((module.clone(), name.clone()), path.clone())
            };
            code.handed_on.iter().map(named)
        });
        let names =
            Names { modules: codes.keys().cloned().collect(), handed_on: handed_on.collect() };
        let uses = codes.iter().map(|(module, code)| {
            let mut used = BTreeMap::new();
            for path in &code.used {
                let found = names.absolute(path, module).and_then(|path| names.target(&path, 0));
                let is_other = |found: &Module| found != module && !found.is_empty();
                if let Some(found) = found.filter(is_other) {
                    used.entry(found).or_insert_with(|| path.join("::"));
                }
            }
            (module.clone(), used)
        });
        Self { uses: uses.collect() }
    }

    /// Sets of modules that reach each other.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.uses.keys().map(|module| (module, self.reached(module))).collect();
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, below) in &reached {
            if seen.contains(module) || !below.contains(module) {
                continue;
            }
            let circle = below.iter().filter(|other| reached[**other].contains(*module));
            let circle: Vec<&Module> = circle.copied().collect();
            seen.extend(&circle);
            circles.push(circle.iter().map(|module| module.join("::")).collect());
        }
        circles
    }

    /// All that a module uses, and what that uses.
    fn reached<'a>(&'a self, module: &Module) -> BTreeSet<&'a Module> {
        let mut found = BTreeSet::new();
        let mut left = vec![module];
        while let Some(module) = left.pop() {
            for used in self.uses.get(module).into_iter().flatten().map(|(used, _)| used) {
                if found.insert(used) {
                    left.push(used);
                }
            }
        }
        found
    }

    /// What is wrong with the crate's folders, if each may use itself and those before it in `floors`.
    pub fn upward(&self, floors: &[String]) -> Vec<String> {
        let floor = |module: &Module| floors.iter().position(|floor| Some(floor) == module.first());
        let mut complaints = BTreeSet::new();
        for (module, used) in &self.uses {
            if module.is_empty() {
                continue;
            }
            let name = module.join("::");
            let Some(own) = floor(module) else {
                complaints.insert(format!("`{}` has no place in the table of folders", module[0]));
                continue;
            };
            for (other, path) in used {
                if floor(other).is_some_and(|other| other > own) {
                    complaints.insert(format!("`{name}` uses `{path}`, which is above it"));
                }
            }
        }
        complaints.into_iter().collect()
    }
}

/// The names of a crate: its modules, and what modules hand on from others.
struct Names {
    modules: BTreeSet<Module>,
    handed_on: BTreeMap<(Module, String), Vec<String>>,
}

impl Names {
    /// A path as seen from the crate, if it may lead to a module of it.
    fn absolute(&self, path: &[String], module: &Module) -> Option<Module> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let rest = path.get(ups.max(1)..).unwrap_or_default();
        let base = match path.first()?.as_str() {
            "crate" => &[],
            "self" => module.as_slice(),
            "super" => module.get(..module.len().checked_sub(ups)?)?,
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                return self.modules.contains(&child).then(|| [module.as_slice(), path].concat());
            }
        };
        Some([base, rest].concat())
    }

    /// The module that a path leads to.
    fn target(&self, path: &[String], handed_on: usize) -> Option<Module> {
        let length = (0..=path.len()).rev().find(|n| self.modules.contains(&path[..*n]))?;
        let module = path[..length].to_vec();
        let Some(name) = path.get(length).filter(|_| handed_on < MOST_HANDED_ON) else {
            return Some(module);
        };
        let from = self.handed_on.get(&(module.clone(), name.clone()));
        let from = from.and_then(|from| self.absolute(from, &module));
        let from = from.map(|from| [from.as_slice(), &path[length + 1..]].concat());
        from.and_then(|from| self.target(&from, handed_on + 1)).or(Some(module))
    }
}

fn module_of(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// What a module's text says of others.
struct Code {
    /// Paths that it uses.
    used: Vec<Vec<String>>,
    /// Paths that it hands on, each with the name that it has here.
    handed_on: Vec<(Vec<String>, String)>,
}

impl Code {
    fn of(text: &str) -> Self {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
        let code: Vec<&str> =
            lines.map(|line| line.split("//").next().unwrap_or_default()).collect();
        let code = code.join("\n");
        let (mut others, mut uses, mut pub_uses) = (String::new(), Vec::new(), Vec::new());
        let mut rest = code.as_str();
        while let Some(at) = rest.find("use ") {
            let before = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
            let is_pub = before == "pub" || (before.starts_with("pub(") && before.ends_with(')'));
            let end = rest[at..].find(';').filter(|_| is_pub || before.is_empty());
            let end = at + end.unwrap_or(4);
            others.push_str(&rest[..at]);
            if is_pub || before.is_empty() {
                expand("", &rest[at + 4..end], if is_pub { &mut pub_uses } else { &mut uses });
            }
            rest = &rest[end..];
        }
        others.push_str(rest);
        let mut used: Vec<Vec<String>> =
            uses.iter().filter_map(|path| named(path)).map(|(path, _)| path).collect();
        used.extend(paths_of(&others));
        Self { used, handed_on: pub_uses.iter().filter_map(|path| named(path)).collect() }
    }
}

/// The parts of a path of a `use` item, and the name that it gives.
fn named(path: &str) -> Option<(Vec<String>, String)> {
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let mut parts: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("self" | "*")) {
        parts.pop();
    }
    let name = if alias.is_empty() { parts.last()?.clone() } else { alias.trim().to_owned() };
    Some((parts, name))
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        found.push(format!("{prefix}{tree}"));
        return;
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0usize, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    expand(&prefix, &inner[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths in lower case outside `use` items: those that may begin with a module.
fn paths_of(code: &str) -> Vec<Vec<String>> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for line in code.lines().filter(|line| line.contains("::")) {
        for word in line.split(|letter: char| !is_name(letter) && letter != ':' && letter != '$') {
            let parts: Vec<String> = word.split("::").map(str::to_owned).collect();
            let begins =
                parts[0].starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_');
            if parts.len() > 1 && begins {
                found.push(parts.into_iter().take_while(|part| !part.is_empty()).collect());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        Modules::parse(files.iter().copied()).circles()
    }

    #[test]
    fn circles_are_found_through_folders_and_what_they_hand_on() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::Thing;\n"),
            ("a/mod.rs", "mod inner;\npub(crate) use inner::{Other, Thing};\n"),
            ("a/inner.rs", "use crate::b;\npub struct Thing;\n"),
            ("b.rs", "use crate::{\n    a::Thing,\n};\n"),
        ];
        assert_eq!(circles(&files), [["a::inner", "b"]]);
        let mut apart = files;
        apart[2].1 = "pub struct Thing;\n";
        assert!(circles(&apart).is_empty());
    }

    #[test]
    fn a_folder_that_lists_its_modules_is_no_circle() {
        let files = [
            (
                "a/mod.rs",
                "mod one;\nmod two;\nuse two::start;\npub fn run() { one::work(); start(); }\n",
            ),
            ("a/one.rs", "pub fn work() {}\n"),
            ("a/two.rs", "use super::one::work;\npub fn start() { work() }\n"),
        ];
        assert!(circles(&files).is_empty());
        let mut upward = files;
        upward[1].1 = "pub fn work() { super::run() }\n";
        assert_eq!(
            circles(&upward),
            [["a", "a::one", "a::two"]],
            "two uses one, which uses the folder"
        );
    }

    #[test]
    fn tests_and_comments_are_left_out() {
        let files = [
            ("a.rs", "use crate::b::B;\n"),
            (
                "b.rs",
                "//! See crate::a::A.\npub struct B; // crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
            ),
            ("c/tests.rs", "use crate::a;\n"),
        ];
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn arrows_go_down_and_every_folder_has_a_floor() {
        let files = [
            ("lib.rs", "mod low;\nmod high;\nuse high::H;\n"),
            ("low/mod.rs", "pub mod one;\n"),
            ("low/one.rs", "fn f() -> crate::high::H { crate::high::H }\n"),
            ("high.rs", "use crate::low::one;\n"),
            ("odd.rs", ""),
        ];
        let floors = ["low".to_owned(), "high".to_owned()];
        let complaints = Modules::parse(files).upward(&floors);
        assert_eq!(
            complaints,
            [
                "`low::one` uses `crate::high::H`, which is above it",
                "`odd` has no place in the table of folders",
            ]
        );
    }
}
