//! Paths and conversion times on a terminal: sentences, which fit any width and number of arms.

use super::{Ink, Page};
use crate::format;
use crate::paths::{PathReport, share};
use crate::report::Report;

impl Page {
    pub(super) fn conversion_times(&mut self, report: &Report) {
        for funnel in &report.funnels {
            let Some(times) = &funnel.conversion_time else { continue };
            let of_all = format!("From the first step of {} to the last", funnel.name);
            self.paragraph("", &of_all, Ink::Bold);
            for (arm, time) in report.arms.iter().zip(times) {
                self.paragraph("  ", &format!("{}: {}", arm.name, time.words()), Ink::Plain);
            }
            self.line("");
        }
    }

    pub(super) fn paths(&mut self, report: &Report) {
        report.paths.iter().for_each(|path| self.path(report, path));
    }

    fn path(&mut self, report: &Report, path: &PathReport) {
        self.paragraph("", &format!("Path {}, shares of exposed users", path.name), Ink::Bold);
        let exposed: Vec<u64> = report.arms.iter().map(|arm| arm.users).collect();
        let of = |part: &[u64], whole: &[u64]| {
            let shares = part.iter().zip(whole).map(|(part, whole)| share(*part, *whole));
            per_arm(report, shares)
        };
        let began = format!("Began: {}", of(&path.started, &exposed));
        let reached = format!("Reached the end: {}", of(&path.reached, &exposed));
        for words in [began, reached] {
            self.paragraph("  ", &words, Ink::Plain);
        }
        for (number, step) in path.steps.iter().enumerate() {
            if step.dropped_off.iter().any(|users| *users > 0) {
                let lost = of(&step.dropped_off, &step.users);
                let words = format!(
                    "Dropped off after event {}, of those who came to it: {lost}",
                    number + 1
                );
                self.paragraph("  ", &words, Ink::Dim);
            }
        }
        for (number, sequence) in path.sequences.iter().enumerate() {
            self.paragraph(&format!("  {}. ", number + 1), &sequence.words(), Ink::Plain);
            self.paragraph("     ", &per_arm(report, sequence.shares.iter().copied()), Ink::Plain);
        }
        let more = path.different_sequences - path.sequences.len() as u64;
        if more > 0 {
            self.paragraph("  ", &format!("And {} more.", format::count(more)), Ink::Dim);
        }
        self.line("");
    }
}

/// "control 8.10 %, treatment 9.00 %"
fn per_arm(report: &Report, shares: impl Iterator<Item = Option<f64>>) -> String {
    let words = report.arms.iter().zip(shares).map(|(arm, share)| {
        format!("{} {}", arm.name, share.map_or_else(|| "–".into(), |s| format::percent(s, 2)))
    });
    words.collect::<Vec<_>>().join(", ")
}
