//! The report on a terminal.
//!
//! # Invariants
//! - No line is wider than asked for (40 columns at least), colour codes not counted.
//! - Colour never carries meaning alone: each call has a sign, ▲ better, ▼ worse, · open.
//!
//! # Not here
//! No numbers are formatted (`format`) and no words chosen (`scorecard`, `verdict`).

mod paths;

use crate::format::{self, visible};
use crate::headline::{headlines, progress, word};
use crate::report::{Call, Decision, Report};
use crate::scorecard::{Level, Row, Table, health, tables};
use crate::since;

/// A plot narrower than this says nothing.
const MIN_PLOT: usize = 11;
/// A wider one adds no detail a terminal can show.
const MAX_PLOT: usize = 41;
/// A name cut shorter than this is no name.
const MIN_LABEL: usize = 10;
const GAP: usize = 2;

#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Green,
    Amber,
    Red,
}

struct Page {
    out: String,
    width: usize,
    color: bool,
}

impl Report {
    /// The report for a terminal of `width` columns; `color` adds ANSI codes.
    pub fn to_text(&self, width: usize, color: bool) -> String {
        let mut page = Page { out: String::new(), width: width.clamp(40, 160), color };
        page.paragraph("", &self.experiment, Ink::Bold);
        page.headlines(self);
        page.header(self);
        page.health(self);
        page.verdict(self);
        for table in tables(self) {
            page.table(self, &table);
        }
        page.since(self);
        page.conversion_times(self);
        page.paths(self);
        for sentence in &self.method {
            page.paragraph("", sentence, Ink::Dim);
        }
        page.out
    }
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn paint(&self, text: &str, ink: Ink) -> String {
        let text = visible(text);
        let code = match ink {
            Ink::Plain => return text,
            _ if !self.color => return text,
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Green => "32",
            Ink::Amber => "33",
            Ink::Red => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// `text` wrapped, the first line after `lead`, the others below its first letter.
    fn paragraph(&mut self, lead: &str, text: &str, ink: Ink) {
        let indent = width(lead);
        for (index, part) in wrap(text, self.width - indent).into_iter().enumerate() {
            let start = if index == 0 { visible(lead) } else { " ".repeat(indent) };
            let line = format!("{start}{}", self.paint(&part, ink));
            self.line(&line);
        }
    }

    fn header(&mut self, report: &Report) {
        if let Some(hypothesis) = &report.hypothesis {
            self.paragraph("", hypothesis, Ink::Plain);
        }
        if let Some([start, end]) = &report.period {
            let period = format!("{start} to {end}, end not counted, {}", report.time_zone);
            self.paragraph("", &period, Ink::Dim);
        }
        let progress = progress(report).join(", ");
        if let Some(first) = progress.get(..1) {
            // "day 9 of 14" begins a line.
            let line = first.to_uppercase() + &progress[1..];
            self.paragraph("", &line, Ink::Plain);
        }
        self.line("");
        let names = report.arms.iter().map(|arm| width(&arm.name)).max().unwrap_or(0).min(30);
        let counts: Vec<String> = report.arms.iter().map(|arm| format::count(arm.users)).collect();
        let digits = counts.iter().map(|count| width(count)).max().unwrap_or(0);
        for (arm, count) in report.arms.iter().zip(&counts) {
            let share = arm.share.map_or("–".into(), |share| format::percent(share, 2));
            let planned = format::percent(arm.planned_share, 0);
            let role = if arm.is_control_by_another_name() { ", control" } else { "" };
            let name = pad_right(&cut(&arm.name, names), names);
            let words =
                format!("{} users  {share} (planned {planned}{role})", pad_left(count, digits));
            self.paragraph(&format!("{name}  "), &words, Ink::Plain);
        }
        self.line("");
    }

    fn health(&mut self, report: &Report) {
        for (level, words) in health(report) {
            let (sign, ink) = match level {
                Level::Green => ("✓ ", Ink::Green),
                Level::Amber => ("! ", Ink::Amber),
                Level::Red => ("✗ ", Ink::Red),
            };
            let text_ink = if level == Level::Red { Ink::Red } else { Ink::Plain };
            let indent = width(sign);
            for (index, part) in wrap(&words, self.width - indent).into_iter().enumerate() {
                let lead = if index == 0 { self.paint(sign, ink) } else { " ".repeat(indent) };
                let line = format!("{lead}{}", self.paint(&part, text_ink));
                self.line(&line);
            }
        }
        self.line("");
    }

    /// The decision, the primary metric and its interval, in a line for each arm.
    fn headlines(&mut self, report: &Report) {
        if report.verdict.arms.is_empty() {
            self.paragraph("", word(report.verdict.decision), Ink::Red);
        }
        for line in headlines(report) {
            self.paragraph("", &line.words(report), ink(line.verdict.decision));
        }
        self.line("");
    }

    /// The sentences, but for those that a headline has said.
    fn verdict(&mut self, report: &Report) {
        let decision = ink(report.verdict.decision);
        let arms = &report.verdict.arms;
        if arms.is_empty() {
            self.paragraph("", &report.verdict.sentence, decision);
        }
        let said: Vec<String> =
            headlines(report).iter().map(|line| line.words(report) + ".").collect();
        for arm in arms.iter().filter(|arm| !said.contains(&arm.sentence)) {
            self.paragraph("", &arm.sentence, ink(arm.decision));
        }
        if arms.iter().any(|arm| !said.contains(&arm.sentence)) || arms.is_empty() {
            self.line("");
        }
    }

    fn since(&mut self, report: &Report) {
        let lines = since::lines(report);
        if lines.is_empty() {
            return;
        }
        self.paragraph("", since::TITLE, Ink::Bold);
        lines.iter().for_each(|line| self.paragraph("  ", line, Ink::Plain));
        self.paragraph("  ", since::NOTE, Ink::Dim);
        self.line("");
    }

    fn table(&mut self, report: &Report, table: &Table) {
        let distrusted = report.verdict.decision == Decision::DoNotTrust;
        let title = if distrusted {
            format!("{} (not to be trusted)", table.title)
        } else {
            table.title.clone()
        };
        self.paragraph("", &title, Ink::Bold);
        let columns = columns(report, table, self.width);
        let heading: Vec<String> = columns.iter().map(Column::heading).collect();
        let heading = self.paint(heading.join(&" ".repeat(GAP)).trim_end(), Ink::Dim);
        self.line(&format!("  {heading}"));
        let mut previous: Option<&str> = None;
        for (index, row) in table.rows.iter().enumerate() {
            let (sign, ink) = if distrusted { ("·", Ink::Dim) } else { sign(row.call) };
            let repeated = previous == Some(row.label.as_str());
            let cells: Vec<String> =
                columns.iter().map(|column| column.cell(table, row, repeated)).collect();
            let text = cells.join(&" ".repeat(GAP));
            let line = format!("{} {}", self.paint(sign, ink), self.paint(text.trim_end(), ink));
            self.line(&line);
            // One reason under several rows that share it.
            let next = table.rows.get(index + 1).and_then(|row| row.reason.as_ref());
            if let Some(reason) = row.reason.as_ref().filter(|reason| next != Some(*reason)) {
                self.paragraph("    ", &format!("no estimate: {reason}"), Ink::Dim);
            }
            previous = Some(&row.label);
        }
        for note in &table.notes {
            self.paragraph("  ", note, Ink::Dim);
        }
        self.line("");
    }
}

fn ink(decision: Decision) -> Ink {
    match decision {
        Decision::Ship => Ink::Green,
        Decision::DoNotTrust | Decision::RollBack => Ink::Red,
        Decision::TradeOff => Ink::Amber,
        Decision::KeepRunning => Ink::Bold,
    }
}

fn sign(call: Call) -> (&'static str, Ink) {
    match call {
        Call::Better => ("▲", Ink::Green),
        Call::Worse => ("▼", Ink::Red),
        Call::Inconclusive => ("·", Ink::Plain),
        Call::Unavailable => ("·", Ink::Dim),
        Call::Untrusted => ("?", Ink::Red),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Content {
    Label,
    Arm,
    Control,
    Value,
    Effect,
    Interval,
    Plot,
    P,
    PAdjusted,
}

struct Column {
    content: Content,
    title: String,
    width: usize,
}

impl Column {
    fn heading(&self) -> String {
        let title = cut(&self.title, self.width);
        match self.content {
            Content::Label | Content::Arm | Content::Plot => pad_right(&title, self.width),
            _ => pad_left(&title, self.width),
        }
    }

    fn cell(&self, table: &Table, row: &Row, repeated: bool) -> String {
        match self.content {
            Content::Plot => row.drawn.map_or_else(
                || " ".repeat(self.width),
                |estimate| table.axis.characters(&estimate, self.width),
            ),
            Content::Label if repeated => " ".repeat(self.width),
            Content::Label | Content::Arm => {
                pad_right(&cut(text_of(self.content, row), self.width), self.width)
            }
            _ => pad_left(text_of(self.content, row), self.width),
        }
    }
}

fn text_of(content: Content, row: &Row) -> &str {
    match content {
        Content::Label => &row.label,
        Content::Arm => &row.arm,
        Content::Control => &row.control,
        Content::Value => &row.value,
        Content::Effect => &row.effect,
        Content::Interval => &row.interval,
        Content::P => &row.p,
        Content::PAdjusted => &row.p_adjusted,
        Content::Plot => "",
    }
}

/// The columns that fit: names shrink first, then the arms' own values go, then the rest from
/// the right. The plot takes what is left.
fn columns(report: &Report, table: &Table, page_width: usize) -> Vec<Column> {
    let control = report.arms[report.control()].name.clone();
    let treatment = report.arms.iter().find(|arm| !arm.control).map(|arm| arm.name.clone());
    let value = if table.many_arms { "value".into() } else { treatment.unwrap_or_default() };
    let interval = format!("{} interval", format::coverage(report.alpha));
    let mut wanted = vec![
        (Content::Label, table.label.to_owned()),
        (Content::Arm, "variant".into()),
        (Content::Control, control),
        (Content::Value, value),
        (Content::Effect, table.effect_title().into()),
        (Content::Interval, interval),
        (Content::P, "p".into()),
        (Content::PAdjusted, format!("p ({})", report.correction_name())),
    ];
    wanted.retain(|(content, _)| match content {
        Content::Arm => table.many_arms,
        Content::PAdjusted => table.corrected,
        _ => true,
    });
    let mut columns: Vec<Column> = wanted
        .into_iter()
        .map(|(content, title)| {
            let widest = table.rows.iter().map(|row| width(text_of(content, row))).max();
            // Names of arms may be long; as headings they give way to the numbers below.
            let widest = widest.unwrap_or(0).max(width(&title).min(13));
            let width = match content {
                Content::Label => widest.min(32),
                Content::Arm => widest.min(page_width / 6),
                _ => widest,
            };
            Column { content, title, width }
        })
        .collect();
    let room = page_width - 2;
    let used = |columns: &[Column]| {
        columns.iter().map(|column| column.width).sum::<usize>() + GAP * (columns.len() - 1)
    };
    let excess = used(&columns).saturating_sub(room);
    columns[0].width -= excess.min(columns[0].width.saturating_sub(MIN_LABEL));
    let optional: [&[Content]; 4] = [
        &[Content::Control, Content::Value],
        &[Content::P],
        &[Content::PAdjusted],
        &[Content::Arm],
    ];
    for dropped in optional {
        if used(&columns) > room {
            columns.retain(|column| !dropped.contains(&column.content));
        }
    }
    let excess = used(&columns).saturating_sub(room);
    columns[0].width = columns[0].width.saturating_sub(excess);
    let left = room.saturating_sub(used(&columns) + GAP).min(MAX_PLOT);
    let plot = if left % 2 == 1 { left } else { left.saturating_sub(1) };
    if plot >= MIN_PLOT {
        let after = columns.iter().position(|column| column.content == Content::Interval);
        let title = format!("{:^plot$}", "0");
        let column = Column { content: Content::Plot, title, width: plot };
        columns.insert(after.map_or(columns.len(), |index| index + 1), column);
    }
    columns
}

/// Columns a text takes on a terminal: East Asian wide characters take two.
fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    let wide = matches!(u32::from(c),
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD);
    1 + usize::from(wide)
}

fn pad_right(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

fn pad_left(text: &str, to: usize) -> String {
    format!("{}{text}", " ".repeat(to.saturating_sub(width(text))))
}

/// `text` in at most `limit` columns, with "…" where it was cut.
fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += char_width(c);
        if used > limit {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

fn wrap(text: &str, limit: usize) -> Vec<String> {
    // A number and its percent sign stay on one line.
    let glued = text.replace(" %", "\u{a0}%");
    let mut lines = vec![String::new()];
    for word in glued.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let word = cut(&word.replace('\u{a0}', " "), limit);
        let line = lines.last_mut().expect("one line at least");
        if line.is_empty() {
            line.push_str(&word);
        } else if width(line) + 1 + width(&word) <= limit {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{cut, width, wrap};

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("日本"), 4);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn wrapping_keeps_every_word_within_the_limit() {
        let lines = wrap("one two three fourteen", 8);
        assert_eq!(lines, ["one two", "three", "fourteen"]);
        assert_eq!(wrap("up 12 % so", 6), ["up", "12 %", "so"]);
    }
}
