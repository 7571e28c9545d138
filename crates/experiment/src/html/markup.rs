//! What blocks of the page have in common: escaped text, a block's beginning, an arm's sign.

use std::fmt::Write;

use crate::format::moves_the_cursor;
use crate::report::{Decision, Report};

/// Colours and signs that report.css has for arms; more arms use them again.
pub(super) const ARM_SIGNS: usize = 6;

/// The arm's sign in its colour, before a name. The style sheet draws it, so that no arm is known
/// by its colour alone.
pub(super) fn arm_sign(arm: usize) -> String {
    format!("<i class=\"arm{}\"></i>", arm % ARM_SIGNS)
}

/// Opens a block; close it with `</section>`.
pub(super) fn open(out: &mut String, id: &str, title: &str, distrusted: bool) {
    let class = if distrusted { " class=\"distrusted\"" } else { "" };
    let _ = writeln!(out, "<section id=\"{id}\"{class}>\n<h2>{title}</h2>");
    if distrusted {
        out.push_str("<p class=\"stamp\">Not to be trusted: sample ratio mismatch</p>\n");
    }
}

/// Text as markup.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A definition has lines.
            c if moves_the_cursor(c) && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl Report {
    pub(super) fn is_distrusted(&self) -> bool {
        self.verdict.decision == Decision::DoNotTrust
    }
}
