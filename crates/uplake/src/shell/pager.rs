//! The program that shows what does not fit the terminal.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use unicode_width::UnicodeWidthStr;

/// `-F`: ends at once if all fits; `-S`: long lines are not broken; `-X`: leaves it on the terminal.
const DEFAULT: &str = "less -FRSX";

/// Does a text fit? A line is left for the prompt.
pub fn fits(text: &str, (columns, lines): (usize, usize)) -> bool {
    text.lines().count() < lines && text.lines().all(|line| line.width() <= columns)
}

/// What `$PAGER` names, or `less` if it is there; an empty `$PAGER` is none.
pub fn pager() -> Option<String> {
    match std::env::var("PAGER") {
        Ok(pager) => (!pager.trim().is_empty()).then_some(pager),
        Err(_) => {
            let path = std::env::var_os("PATH")?;
            let is_there = std::env::split_paths(&path).any(|folder| folder.join("less").is_file());
            is_there.then(|| DEFAULT.to_owned())
        }
    }
}

/// Shows a text until the user leaves the pager. False if it could not be begun.
pub fn show(pager: &str, text: &str) -> bool {
    let shell = if Path::new("/bin/sh").exists() { "/bin/sh" } else { "sh" };
    let begun = Command::new(shell).arg("-c").arg(pager).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = begun else { return false };
    if let Some(mut input) = child.stdin.take() {
        // Whoever leaves it early closes its input.
        let _ = input.write_all(text.as_bytes());
    }
    // 127: the shell found no such program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_with_a_line_for_the_prompt() {
        assert!(fits("a\nb", (1, 3)) && !fits("a\nb\nc", (1, 3)));
        assert!(!fits("ab", (1, 3)) && fits("", (1, 1)));
    }

    #[test]
    fn a_pager_that_is_not_there_has_shown_nothing() {
        assert!(!show("no-such-pager-anywhere", "text") && show("cat > /dev/null", "text"));
    }
}
