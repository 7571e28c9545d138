//! What the system says of this process: cores, memory, files. Nothing where it does not.

use std::fs;

/// Ticks of a second in `/proc/self/stat`: 100 on every Linux.
const TICKS: f64 = 100.0;

/// As of now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub open_files: u64,
}

/// Asks the system.
pub(crate) fn now() -> Process {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Process {
        cpu_seconds: cpu_seconds(&read("/proc/self/stat")),
        resident_bytes: resident_bytes(&read("/proc/self/status")),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
    }
}

/// The 14th and the 15th field; the second is a name in brackets, which may have blanks.
fn cpu_seconds(stat: &str) -> f64 {
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

fn resident_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_blanks() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 1 2 3";
        assert!((cpu_seconds(stat) - 3.0).abs() < 1e-9);
        assert!(cpu_seconds("").abs() < 1e-9);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1"), 12_288);
        assert_eq!(resident_bytes(""), 0);
    }
}
