//! How the numbers were made and how to make them again.

use std::fmt::Write;

use super::markup::{escape, open};
use crate::report::Report;

pub(super) fn write(out: &mut String, report: &Report) {
    open(out, "reproduce", "Method and reproduction", false);
    out.push_str("<div class=\"card\">\n<ul class=\"method\">\n");
    for sentence in &report.method {
        let _ = writeln!(out, "<li>{}</li>", escape(sentence));
    }
    out.push_str("</ul>\n");
    if let Some(again) = &report.reproduce {
        text(out, "command", "Command", &again.command, true);
        if !again.tables.is_empty() {
            let tables: Vec<String> = again
                .tables
                .iter()
                .map(|(name, version)| format!("{} version {version}", escape(name)))
                .collect();
            let _ = writeln!(out, "<p class=\"quiet\">Read: {}</p>", tables.join(", "));
        }
        text(out, "definition", "Definition", &again.definition, false);
        text(out, "sql", "SQL of the numbers per user", &again.sql, false);
    }
    out.push_str(
        "<p class=\"actions\" id=\"actions\" hidden><button type=\"button\" data-do=\"copy\">Copy \
         JSON</button> <button type=\"button\" data-do=\"download\">Download JSON</button> \
         <span class=\"quiet\" role=\"status\"></span></p>\n\
         <p class=\"quiet note\">The JSON here has six digits; <code>uplake report</code> \
         writes all, moments and days.</p>\n</div>\n</section>\n",
    );
}

fn text(out: &mut String, id: &str, title: &str, text: &str, opened: bool) {
    let opened = if opened { " open" } else { "" };
    let _ = writeln!(
        out,
        "<details{opened}><summary>{title}</summary><pre id=\"{id}\" tabindex=\"0\">{}</pre>\
         </details>",
        escape(text)
    );
}
