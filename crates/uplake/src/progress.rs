//! Progress on standard error: one line that is redrawn on a terminal, plain lines otherwise.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uplake_engine::{ProgressCounts, QueryProgress};
use uplake_table::{DomainProgress, Progress, ReportDomain};

use crate::output::{bytes_text, count_text};

const TERMINAL_EVERY: Duration = Duration::from_millis(200);
/// A statement that is over before shows nothing.
const STATEMENT_SHOWN_AFTER: Duration = Duration::from_secs(2);
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Tells how far the dictionary of an id domain is read, if that takes long enough to wonder.
pub fn domain_report() -> ReportDomain {
    let shown: Mutex<Option<(String, Instant)>> = Mutex::new(None);
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { TERMINAL_EVERY } else { PLAIN_EVERY };
    Arc::new(move |p: DomainProgress| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = p.done_bytes >= p.total_bytes;
        match shown.as_mut() {
            Some((domain, last)) if *domain == p.domain && !finished => {
                if last.elapsed() < every {
                    return;
                }
                *last = Instant::now();
            }
            Some((domain, _)) if *domain == p.domain => {
                *shown = None;
                if terminal {
                    eprint!("\r\x1b[2K");
                }
                return;
            }
            _ => {
                *shown = (!finished).then(|| (p.domain.clone(), Instant::now()));
                return;
            }
        }
        let line = format!(
            "{:3.0} %  reading id domain {}  {} keys  {}",
            100.0 * p.done_bytes as f64 / p.total_bytes.max(1) as f64,
            p.domain,
            count_text(p.keys),
            bytes_text(p.done_bytes),
        );
        draw(&line, terminal);
    })
}

/// One line about work that tells how far it is, redrawn now and then.
pub struct Line {
    terminal: bool,
    every: Duration,
    last: Mutex<Instant>,
}

impl Line {
    /// Nothing is shown of work that is over at once.
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { TERMINAL_EVERY } else { PLAIN_EVERY };
        Self { terminal, every, last: Mutex::new(Instant::now()) }
    }

    /// Shows `text`, unless something was shown just before.
    pub fn show(&self, text: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < self.every {
            return;
        }
        *last = Instant::now();
        draw(text, self.terminal);
    }

    /// Removes the line.
    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Shows how far work is until it is stopped, or dropped.
pub struct Display {
    stop: Option<oneshot::Sender<()>>,
    done: Option<tokio::task::JoinHandle<()>>,
    drawn: Arc<AtomicBool>,
}

impl Display {
    /// Shows a load; nothing is shown of one that is over at once.
    pub fn start(progress: Arc<Progress>, quiet: bool) -> Self {
        Self::showing(quiet, move |elapsed| Some(load_line(&progress, elapsed)))
    }

    /// Shows a statement or report, on a terminal alone: whoever reads standard error from elsewhere wants to read
    /// of faults.
    pub fn of_statement(progress: Arc<QueryProgress>) -> Self {
        let line = move |elapsed| statement_line(progress.counts(), elapsed);
        Self::showing(!std::io::stderr().is_terminal(), line)
    }

    /// Shows lines, as soon as there are some.
    fn showing(
        quiet: bool,
        line: impl Fn(Duration) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let drawn = Arc::new(AtomicBool::new(false));
        if quiet {
            return Self { stop: None, done: None, drawn };
        }
        let (stop, mut stopped) = oneshot::channel();
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { TERMINAL_EVERY } else { PLAIN_EVERY };
        let is_drawn = Arc::clone(&drawn);
        let done = tokio::spawn(async move {
            let started = Instant::now();
            while tokio::time::timeout(every, &mut stopped).await.is_err() {
                if let Some(line) = line(started.elapsed()) {
                    is_drawn.store(terminal, Ordering::Relaxed);
                    draw(&line, terminal);
                }
            }
        });
        Self { stop: Some(stop), done: Some(done), drawn }
    }

    /// Stops and clears the line.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(done) = self.done.take() {
            // A display that panicked has nothing left to clear.
            let _ = done.await;
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if self.drawn.swap(false, Ordering::Relaxed) {
            eprint!("\r\x1b[2K");
        }
    }
}

fn load_line(progress: &Progress, elapsed: Duration) -> String {
    let rows = progress.rows.load(Ordering::Relaxed);
    let read = progress.bytes_read.load(Ordering::Relaxed);
    let total = progress.bytes_total.load(Ordering::Relaxed);
    let encoded = progress.rows_written.load(Ordering::Relaxed);
    let written = bytes_text(progress.bytes_written.load(Ordering::Relaxed));
    if total > 0 && read >= total && rows > 0 {
        let (of, rows_text) = (100.0 * encoded as f64 / rows as f64, count_text(rows));
        if encoded < rows {
            let encoded = count_text(encoded);
            return format!(
                "{of:3.0} %  sorting and writing: {encoded} of {rows_text} rows  wrote {written}"
            );
        }
        // The last files get their indexes, keys that were there are replaced, and all is committed.
        return format!("100 %  indexing and committing {rows_text} rows  wrote {written}");
    }
    let rate = rows as f64 / elapsed.as_secs_f64().max(1e-3);
    let share = match total {
        0 => String::new(),
        total => format!("{:3.0} %  ", 100.0 * (read as f64 / total as f64).min(1.0)),
    };
    format!(
        "{share}reading: {} rows  {} rows/s  read {}  wrote {written}",
        count_text(rows),
        count_text(rate as u64),
        bytes_text(read),
    )
}

/// Nothing before there is something to read, nor of what is over soon.
fn statement_line(counts: ProgressCounts, elapsed: Duration) -> Option<String> {
    let ProgressCounts { files_planned, files_done, rows_read, bytes_read, bytes_planned, .. } =
        counts;
    // One file of text is as long as many.
    let (done, planned) = match bytes_planned {
        0 => (files_done, files_planned),
        bytes => (bytes_read, bytes),
    };
    (files_planned > 0 && elapsed >= STATEMENT_SHOWN_AFTER).then(|| {
        format!(
            "{:.0} s  {files_done} of {files_planned} files  {} rows  read {}{}",
            elapsed.as_secs_f64(),
            count_text(rows_read),
            bytes_text(bytes_read),
            seconds_left(done, planned, elapsed),
        )
    })
}

/// As long for each file as so far; nothing once all is read: sorts and joins may go on, nobody knows for how long.
fn seconds_left(done: u64, planned: u64, elapsed: Duration) -> String {
    if done == 0 || done >= planned {
        return String::new();
    }
    let left = elapsed.as_secs_f64() * (planned - done) as f64 / done as f64;
    format!("  about {:.0} s left", left.max(1.0))
}

fn draw(line: &str, terminal: bool) {
    let mut stderr = std::io::stderr().lock();
    // A closed standard error is no reason to stop.
    let _ = if terminal {
        write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush())
    } else {
        writeln!(stderr, "{line}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_before_there_is_something_to_read() {
        assert_eq!(statement_line(ProgressCounts::default(), Duration::from_secs(9)), None);
    }

    #[test]
    fn a_statement_over_text_is_as_far_as_its_bytes() {
        let mut counts = ProgressCounts::default();
        (counts.files_planned, counts.rows_read) = (1, 40);
        (counts.bytes_read, counts.bytes_planned) = (250, 1000);
        let line = statement_line(counts, Duration::from_secs(6)).expect("it is long under way");
        assert_eq!(line, "6 s  0 of 1 files  40 rows  read 250 B  about 18 s left");
        counts.bytes_planned = 0;
        let line = statement_line(counts, Duration::from_secs(6)).expect("it is long under way");
        assert_eq!(line, "6 s  0 of 1 files  40 rows  read 250 B");
    }

    #[test]
    fn a_load_that_has_read_all_says_how_far_it_has_written() {
        let progress = Progress::default();
        let line = || load_line(&progress, Duration::from_secs(2));
        progress.bytes_total.store(1000, Ordering::Relaxed);
        progress.bytes_read.store(500, Ordering::Relaxed);
        progress.rows.store(40, Ordering::Relaxed);
        assert_eq!(line(), " 50 %  reading: 40 rows  20 rows/s  read 500 B  wrote 0 B");
        progress.bytes_read.store(1000, Ordering::Relaxed);
        progress.rows_written.store(10, Ordering::Relaxed);
        assert_eq!(line(), " 25 %  sorting and writing: 10 of 40 rows  wrote 0 B");
        progress.rows_written.store(40, Ordering::Relaxed);
        assert_eq!(line(), "100 %  indexing and committing 40 rows  wrote 0 B");
    }

    #[test]
    fn seconds_are_left_while_files_are() {
        let at = Duration::from_secs(6);
        assert_eq!(seconds_left(3, 12, at), "  about 18 s left");
        assert_eq!(seconds_left(999, 1000, at), "  about 1 s left");
        assert_eq!((seconds_left(0, 12, at), seconds_left(12, 12, at)), Default::default());
    }
}
