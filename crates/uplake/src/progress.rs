//! Progress on standard error: one line that is redrawn on a terminal, plain lines otherwise.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uplake_table::Progress;

use crate::output::{bytes_text, count_text};

const TERMINAL_EVERY: Duration = Duration::from_millis(200);
const PLAIN_EVERY: Duration = Duration::from_secs(5);

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
