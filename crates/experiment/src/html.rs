//! The report as one HTML file: no script, no network, light and dark, phone and paper.
//!
//! # Invariants
//! - Text from definitions and data is escaped; a content policy forbids every request.
//! - Each drawn interval carries its numbers as `data-` attributes and as words for screen
//!   readers, and its coordinates are those numbers on the table's axis.
//! - The last element is the whole report as JSON, so the file can be read by programs.
//!
//! # Not here
//! No numbers are formatted (`format`) and no words chosen (`scorecard`, `verdict`).

use std::fmt::Write;

use crate::forest::Axis;
use crate::format;
use crate::report::{Call, Decision, Report};
use crate::scorecard::{Level, Row, Table, health, tables};

const STYLE: &str = include_str!("report.css");

/// Width of a forest plot in its own units; the page scales it.
const PLOT_WIDTH: f64 = 240.0;
/// Room at both ends for arrows and round dots.
const PLOT_MARGIN: f64 = 6.0;

impl Report {
    /// The report as one self-contained HTML page.
    pub fn to_html(&self) -> String {
        let mut out = String::with_capacity(32_000);
        let title = escape(&self.experiment);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<main>\n"
        );
        self.header_html(&mut out);
        self.health_html(&mut out);
        self.verdict_html(&mut out);
        let tables = tables(self);
        let (scores, breakdown): (Vec<&Table>, Vec<&Table>) =
            tables.iter().partition(|table| table.label == "metric");
        let distrusted = self.verdict.decision == Decision::DoNotTrust;
        let class = if distrusted { " class=\"distrusted\"" } else { "" };
        let _ = writeln!(out, "<section{class} aria-label=\"Scorecard\">");
        if distrusted {
            out.push_str("<p class=\"stamp\">Not to be trusted: sample ratio mismatch</p>\n");
        }
        scores.iter().for_each(|table| self.table_html(&mut out, table));
        out.push_str("</section>\n");
        if !breakdown.is_empty() {
            let _ = writeln!(out, "<section{class} aria-label=\"Breakdown\">");
            breakdown.iter().for_each(|table| self.table_html(&mut out, table));
            out.push_str("</section>\n");
        }
        self.exposures_html(&mut out);
        out.push_str("<section>\n<h2>Method</h2>\n<ul class=\"method\">\n");
        for sentence in &self.method {
            let _ = writeln!(out, "<li>{}</li>", escape(sentence));
        }
        // `<` never appears inside the JSON, so nothing in it can end the element early.
        let json = self.to_compact_json().replace('<', "\\u003c");
        let _ = write!(
            out,
            "</ul>\n</section>\n</main>\n\
             <script type=\"application/json\" id=\"report\">{json}</script>\n</body>\n</html>\n"
        );
        out
    }

    fn header_html(&self, out: &mut String) {
        let _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(&self.experiment));
        if let Some(hypothesis) = &self.hypothesis {
            let _ = writeln!(out, "<p>{}</p>", escape(hypothesis));
        }
        if let Some([start, end]) = &self.period {
            let (start, end, zone) = (escape(start), escape(end), escape(&self.time_zone));
            let _ =
                writeln!(out, "<p class=\"quiet\">{start} to {end}, end not counted, {zone}</p>");
        }
        out.push_str("<ul class=\"arms\">\n");
        for arm in &self.arms {
            let share = arm.share.map_or("–".into(), |share| format::percent(share, 2));
            let role = if arm.control { " <span class=\"quiet\">control</span>" } else { "" };
            let _ = writeln!(
                out,
                "<li><b>{}</b>{role}<br>{} users<br><span class=\"quiet\">{share}, planned \
                 {}</span></li>",
                escape(&arm.name),
                format::count(arm.users),
                format::percent(arm.planned_share, 0)
            );
        }
        out.push_str("</ul>\n</header>\n");
    }

    fn health_html(&self, out: &mut String) {
        out.push_str("<ul class=\"health\" aria-label=\"Health\">\n");
        for (level, words) in health(self) {
            let (class, sign) = match level {
                Level::Green => ("good", "✓"),
                Level::Amber => ("warn", "!"),
                Level::Red => ("bad", "✗"),
            };
            let _ = writeln!(
                out,
                "<li class=\"{class}\"><span aria-hidden=\"true\">{sign}</span> {}</li>",
                escape(&words)
            );
        }
        out.push_str("</ul>\n");
    }

    fn verdict_html(&self, out: &mut String) {
        let class = match self.verdict.decision {
            Decision::Ship => "good",
            Decision::DoNotTrust | Decision::RollBack => "bad",
            Decision::TradeOff => "warn",
            Decision::KeepRunning => "open",
        };
        let _ = writeln!(
            out,
            "<p class=\"verdict {class}\" role=\"status\">{}</p>",
            escape(&self.verdict.sentence)
        );
    }

    fn table_html(&self, out: &mut String, table: &Table) {
        let title = escape(&table.title);
        let reach = table.axis.reach;
        let _ = writeln!(
            out,
            "<div class=\"card\">\n<table data-reach=\"{reach}\">\n<caption>{title}</caption>"
        );
        let control = escape(&self.arms[self.control()].name);
        let treatment = self.arms.iter().find(|arm| !arm.control);
        let value = match treatment {
            Some(arm) if !table.many_arms => escape(&arm.name),
            _ => "value".into(),
        };
        let effect = table.effect_title();
        let interval = format!("{} interval", format::coverage(self.alpha));
        let mut titles = vec![table.label.to_owned()];
        if table.many_arms {
            titles.push("variant".into());
        }
        titles.extend([control, value, effect.to_owned(), interval]);
        out.push_str("<thead><tr>");
        for title in &titles {
            let _ = write!(out, "<th scope=\"col\">{title}</th>");
        }
        let _ = write!(out, "<th scope=\"col\" class=\"plot\">{}</th>", axis_svg(table));
        out.push_str("<th scope=\"col\">p</th>");
        if table.corrected {
            out.push_str("<th scope=\"col\">p (Holm)</th>");
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            row_html(out, table, row, &titles);
        }
        out.push_str("</tbody>\n</table>\n");
        for note in &table.notes {
            let _ = writeln!(out, "<p class=\"quiet note\">{}</p>", escape(note));
        }
        out.push_str("</div>\n");
    }

    /// Users first exposed per day: one bar per day, one colour step per arm.
    fn exposures_html(&self, out: &mut String) {
        let days = &self.first_exposures;
        let most = days.iter().map(|day| day.users.iter().sum::<u64>()).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        let (height, bar) = (80.0, 720.0 / days.len() as f64);
        let _ = writeln!(
            out,
            "<section>\n<h2>First exposures per day</h2>\n<div class=\"card\">\n\
             <svg class=\"days\" viewBox=\"0 0 720 {height}\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"Users first exposed per day and arm\">"
        );
        for (index, day) in days.iter().enumerate() {
            let mut top = height;
            for (arm, users) in day.users.iter().enumerate() {
                let part = *users as f64 / most as f64 * height;
                top -= part;
                let _ = writeln!(
                    out,
                    "<rect class=\"arm{}\" x=\"{:.2}\" y=\"{top:.2}\" width=\"{:.2}\" \
                     height=\"{part:.2}\" data-users=\"{users}\"><title>{}, {}: {} users</title>\
                     </rect>",
                    arm % 4,
                    index as f64 * bar,
                    (bar * 0.9).min(60.0),
                    escape(&day.day),
                    escape(&self.arms[arm].name),
                    format::count(*users)
                );
            }
        }
        out.push_str("</svg>\n<p class=\"quiet note\">");
        for (arm, summary) in self.arms.iter().enumerate() {
            let name = escape(&summary.name);
            let _ = write!(out, "<span class=\"key arm{}\"></span>{name} ", arm % 4);
        }
        let (first, last) = (&days[0].day, &days[days.len() - 1].day);
        let _ = writeln!(
            out,
            "· {} to {}, highest day {} users</p>\n</div>\n</section>",
            escape(first),
            escape(last),
            format::count(most)
        );
    }
}

fn row_html(out: &mut String, table: &Table, row: &Row, titles: &[String]) {
    let (class, sign, word) = match row.call {
        Call::Better => ("better", "▲", "better"),
        Call::Worse => ("worse", "▼", "worse"),
        Call::Inconclusive => ("open", "·", "no clear effect"),
        Call::Unavailable => ("none", "·", "no estimate"),
    };
    let _ = write!(
        out,
        "<tr class=\"{class}\"><th scope=\"row\"><span class=\"sign\" role=\"img\" \
         aria-label=\"{word}\">{sign}</span> {}</th>",
        escape(&row.label)
    );
    let mut cells: Vec<&str> = Vec::new();
    if table.many_arms {
        cells.push(&row.arm);
    }
    cells.extend([&row.control, &row.value, &row.effect, &row.interval].map(String::as_str));
    for (title, cell) in titles[1..].iter().zip(cells) {
        let _ = write!(out, "<td data-title=\"{title}\">{}</td>", escape(cell));
    }
    let plot = plot_svg(&table.axis, row);
    let _ = write!(out, "<td class=\"plot\">{plot}</td><td data-title=\"p\">{}</td>", row.p);
    if table.corrected {
        let _ = write!(out, "<td data-title=\"p (Holm)\">{}</td>", row.p_adjusted);
    }
    out.push_str("</tr>\n");
}

fn x(position: f64) -> f64 {
    PLOT_MARGIN + position * (PLOT_WIDTH - 2.0 * PLOT_MARGIN)
}

fn plot_svg(axis: &Axis, row: &Row) -> String {
    let Some(estimate) = &row.drawn else {
        let reason = row.reason.as_deref().unwrap_or_default();
        return format!("<span class=\"quiet\">{}</span>", escape(reason));
    };
    let drawn = axis.draw(estimate);
    let (low, value, high) = (x(drawn.low), x(drawn.value), x(drawn.high));
    let dot = if drawn.value_clipped {
        String::new()
    } else {
        format!("<circle cx=\"{value:.3}\" cy=\"12\" r=\"4\"/>")
    };
    let end = |at: f64, clipped: bool, outward: f64| {
        if clipped {
            let (tip, base) = (at + outward * 5.0, at - outward * 2.0);
            format!("<path d=\"M{tip:.3} 12 L{base:.3} 7 L{base:.3} 17 Z\"/>")
        } else {
            format!("<line x1=\"{at:.3}\" y1=\"7\" x2=\"{at:.3}\" y2=\"17\"/>")
        }
    };
    format!(
        "<svg viewBox=\"0 0 {PLOT_WIDTH} 24\" role=\"img\" aria-label=\"{} {}\" \
         data-low=\"{}\" data-value=\"{}\" data-high=\"{}\">\
         <line class=\"zero\" x1=\"{zero}\" y1=\"0\" x2=\"{zero}\" y2=\"24\"/>\
         <line class=\"interval\" x1=\"{low:.3}\" y1=\"12\" x2=\"{high:.3}\" y2=\"12\"/>\
         {}{}{dot}</svg>",
        escape(&row.effect),
        escape(&row.interval),
        estimate.low,
        estimate.value,
        estimate.high,
        end(low, drawn.low_clipped, -1.0),
        end(high, drawn.high_clipped, 1.0),
        zero = x(0.5),
    )
}

/// The axis's ends and middle, above the plots.
fn axis_svg(table: &Table) -> String {
    let label = |value: f64| table.axis_label(value);
    let (left, right) = (PLOT_MARGIN, PLOT_WIDTH - PLOT_MARGIN);
    format!(
        "<svg viewBox=\"0 0 {PLOT_WIDTH} 14\" aria-hidden=\"true\">\
         <text x=\"{left}\" y=\"11\">{}</text>\
         <text x=\"{}\" y=\"11\" text-anchor=\"middle\">0</text>\
         <text x=\"{right}\" y=\"11\" text-anchor=\"end\">{}</text></svg>",
        label(-table.axis.reach),
        x(0.5),
        label(table.axis.reach)
    )
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
