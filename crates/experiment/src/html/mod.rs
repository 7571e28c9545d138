//! The report as one HTML file: no network, light and dark, phone and paper.
//!
//! ```text
//! header · verdict · health · switches + scorecard · breakdown · since · exposures · funnel · paths ·
//! power · reproduce · data (JSON) · script
//! ```
//!
//! # Invariants
//! - Text from definitions and data is escaped; a content policy forbids every request and every
//!   script but the page's own, known by its hash.
//! - Everything the definition asked for stands in the markup: without a script the page lacks
//!   switches, panels and time charts, and no default number.
//! - The script computes no statistics: it shows other numbers of `data`, which the engine made.
//! - Each drawn interval carries its numbers as `data-` attributes, and its coordinates are those
//!   numbers on its axis; the words for screen readers stand in the cell before it.
//!
//! # Not here
//! No numbers are formatted (`format`) and no words chosen (`scorecard`, `verdict`). report.js
//! repeats `format` for the switches; the browser tests hold the two together.

mod breakdown;
mod data;
mod exposures;
mod funnel;
mod header;
mod health;
mod markup;
mod paths;
mod plot;
mod power;
mod reproduce;
mod rows;
mod scorecard;
mod since;

use std::fmt::Write;

use crate::digest::sha256;
use crate::format::moves_the_cursor;
use crate::report::Report;
use markup::escape;

const STYLE: &str =
    concat!(include_str!("../../assets/uplot/uPlot.min.css"), include_str!("report.css"));

/// The charts' library with its licence, which every copy must hold.
const LIBRARY: &str = concat!(
    "/*!\n",
    include_str!("../../assets/uplot/LICENSE"),
    "\n*/\n",
    include_str!("../../assets/uplot/uPlot.iife.min.js")
);
const OWN_SCRIPT: &str =
    concat!(include_str!("report.js"), include_str!("metrics.js"), include_str!("charts.js"));

/// Blocks of the page that can be jumped to, in order: element id and title.
const BLOCKS: [(&str, &str); 8] = [
    ("scorecard", "Scorecard"),
    ("breakdown", "Breakdown"),
    ("since", "Since exposure"),
    ("exposures", "Exposures"),
    ("funnel", "Funnel"),
    ("paths", "Paths"),
    ("power", "Power"),
    ("reproduce", "Reproduce"),
];

impl Report {
    /// The report as one self-contained HTML page.
    pub fn to_html(&self) -> String {
        let script = script();
        let mut body = String::with_capacity(100_000);
        scorecard::write(&mut body, self);
        breakdown::write(&mut body, self);
        since::write(&mut body, self);
        exposures::write(&mut body, self);
        funnel::write(&mut body, self);
        paths::write(&mut body, self);
        power::write(&mut body, self);
        reproduce::write(&mut body, self);
        let mut out = String::with_capacity(body.len() + 120_000);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             script-src 'sha256-{}'; style-src 'unsafe-inline'; base-uri 'none'; \
             form-action 'none'\">\n<title>{}</title>\n<style>\n{}</style>\n\
             </head>\n<body>\n<main>\n",
            base64(&sha256(script.as_bytes())),
            escape(&self.experiment),
            squeezed(&bare(STYLE))
        );
        header::write(&mut out, self);
        header::verdict(&mut out, self);
        health::write(&mut out, self);
        contents(&mut out, &body);
        out.push_str(&body);
        let _ = write!(
            out,
            "</main>\n<script type=\"application/json\" id=\"report\">{}</script>\n\
             <script type=\"application/json\" id=\"views\">{}</script>\n\
             <script>{script}</script>\n</body>\n</html>\n",
            in_script(&data::report(self)),
            in_script(&data::views(self))
        );
        out
    }
}

/// The charts' library, then the page's own code. One element, so that one hash covers it.
fn script() -> String {
    format!("{LIBRARY}\n{}", tight(&bare(OWN_SCRIPT)))
}

/// A script without the spaces that only people need: a tenth of its bytes. Texts, templates and regular
/// expressions stay as they are, and so do ends of lines that may end statements.
fn tight(script: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut out = String::with_capacity(script.len());
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        let before = out.chars().next_back().unwrap_or('\n');
        match c {
            ' ' => {
                let after = rest.peek().copied().unwrap_or('\n');
                let apart = is_word(before) && is_word(after);
                // `a + +b` is not `a ++b`.
                if apart || (before == after && "+-".contains(before)) {
                    out.push(c);
                }
            }
            // No statement ends there.
            '\n' if "{([,;".contains(before) => {}
            '"' | '\'' | '`' => copy_until(&mut out, &mut rest, c),
            // A word or a bracket before it makes it a division.
            '/' if !is_word(before) && !")]".contains(before) => copy_until(&mut out, &mut rest, c),
            c => out.push(c),
        }
    }
    out
}

/// Copies `quote` and all up to the next that is not escaped; templates within templates, too.
fn copy_until(out: &mut String, rest: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char) {
    out.push(quote);
    while let Some(c) = rest.next() {
        out.push(c);
        match c {
            '\\' => out.extend(rest.next()),
            '$' if quote == '`' && rest.peek() == Some(&'{') => copy_code(out, rest),
            c if c == quote => return,
            _ => {}
        }
    }
}

/// Copies the code within a template, from `{` to its `}`.
fn copy_code(out: &mut String, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut depth = 0;
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' | '`' => {
                copy_until(out, rest, c);
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        out.push(c);
        if depth == 0 {
            return;
        }
    }
}

/// Source without indentation and without lines that are comments: a fifth of its bytes.
fn bare(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let lines = source.lines().map(str::trim_start);
    for line in
        lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("/**"))
    {
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// A style sheet without its comments and the spaces beside its marks. Our texts in it hold none of either.
fn squeezed(style: &str) -> String {
    let parts = style.split("/*").enumerate();
    let style: String = parts
        .map(|(index, part)| match index {
            0 => part,
            _ => part.split_once("*/").map_or("", |(_, style)| style.trim_start()),
        })
        .collect();
    let pairs = ["{ ", " {", "; ", " }", ", "].iter();
    pairs.fold(style.replace(": ", ":"), |text, pair| text.replace(pair, pair.trim()))
}

/// Links to the blocks that the page has.
fn contents(out: &mut String, body: &str) {
    out.push_str("<nav aria-label=\"Blocks\">");
    for (id, title) in BLOCKS {
        if body.contains(&format!("<section id=\"{id}\"")) {
            let _ = write!(out, "<a href=\"#{id}\">{title}</a>");
        }
    }
    out.push_str("</nav>\n");
}

/// `<` never appears inside the JSON, so nothing in it can end the element early; nor does what would
/// move a cursor or turn text round, which stands there in names alone.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace(moves_the_cursor, "\u{fffd}")
}

/// RFC 4648 with padding, as content policies write hashes.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{base64, script, tight};

    #[test]
    fn only_spaces_outside_of_texts_are_left_out() {
        for (written, expected) in [
            ("const a = b + +c;", "const a=b+ +c;"),
            ("return a / b / c", "return a/b/c"),
            ("f(/[ a]{ 2 }/g, \"a + b\")", "f(/[ a]{ 2 }/g,\"a + b\")"),
            (
                "`a b ${ c ? `d  ${ e }` : \"} f\" } g`; h - 1",
                "`a b ${ c ? `d  ${ e }` : \"} f\" } g`;h-1",
            ),
            ("x = \"\\\" y\" ;\nz", "x=\"\\\" y\";z"),
            ("(a) / 2 in b", "(a)/2 in b"),
            ("f(\na,\nb\n);\nc\n{\nd", "f(a,b\n);c\n{d"),
        ] {
            assert_eq!(tight(written), expected);
        }
    }

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn script_is_hashed_as_a_browser_reads_it() {
        // A browser turns CR LF into LF before it hashes, and ends the element at `</script`.
        let script = script();
        assert!(!script.contains('\r') && !script.to_lowercase().contains("</script"));
        assert!(!script.contains("<!--"));
    }
}
