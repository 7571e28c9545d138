//! Progress on standard error: one line that is redrawn on a terminal, plain lines otherwise.

use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uplake_table::{DomainProgress, Progress, ReportDomain};

use crate::output::{bytes_text, count_text};

const TERMINAL_EVERY: Duration = Duration::from_millis(200);
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
        let mut stderr = std::io::stderr().lock();
        // A closed standard error is no reason to stop.
        let _ = if terminal {
            write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
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
        let mut stderr = std::io::stderr().lock();
        // A closed standard error is no reason to stop.
        let _ = if self.terminal {
            write!(stderr, "\r\x1b[2K{text}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{text}")
        };
    }

    /// Removes the line.
    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Shows a load's progress until it is stopped.
pub struct Display {
    stop: Option<oneshot::Sender<()>>,
    done: Option<tokio::task::JoinHandle<()>>,
}

impl Display {
    /// Starts showing; nothing is shown for a load that is over at once.
    pub fn start(progress: Arc<Progress>, quiet: bool) -> Self {
        if quiet {
            return Self { stop: None, done: None };
        }
        let (stop, mut stopped) = oneshot::channel();
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { TERMINAL_EVERY } else { PLAIN_EVERY };
        let done = tokio::spawn(async move {
            let started = Instant::now();
            let mut drawn = false;
            while tokio::time::timeout(every, &mut stopped).await.is_err() {
                draw(&progress, started.elapsed(), terminal);
                drawn = true;
            }
            if drawn && terminal {
                eprint!("\r\x1b[2K");
            }
        });
        Self { stop: Some(stop), done: Some(done) }
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

fn draw(progress: &Progress, elapsed: Duration, terminal: bool) {
    let rows = progress.rows.load(Ordering::Relaxed);
    let read = progress.bytes_read.load(Ordering::Relaxed);
    let total = progress.bytes_total.load(Ordering::Relaxed);
    let written = progress.bytes_written.load(Ordering::Relaxed);
    let rate = rows as f64 / elapsed.as_secs_f64().max(1e-3);
    let share = match total {
        0 => String::new(),
        total => format!("{:3.0} %  ", 100.0 * (read as f64 / total as f64).min(1.0)),
    };
    let line = format!(
        "{share}{} rows  {} rows/s  read {}  wrote {}",
        count_text(rows),
        count_text(rate as u64),
        bytes_text(read),
        bytes_text(written),
    );
    let mut stderr = std::io::stderr().lock();
    // A closed standard error is no reason to stop a load.
    let _ = if terminal {
        write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush())
    } else {
        writeln!(stderr, "{line}")
    };
}
