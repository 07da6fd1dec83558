//! What the system says of this process. Read from `/proc`; on systems without it, there is nothing to say.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::about::{CPU, MOST_FILES, OPEN_FILES, RESIDENT, THREADS, VIRTUAL};
use super::family::{About, Value, as_f64};

/// Ticks of a second in `/proc/self/stat`: fixed in Linux' interface (USER_HZ), whatever the kernel's own.
const TICKS_PER_S: f64 = 100.0;

const FAMILIES: [About; 6] = [CPU, RESIDENT, VIRTUAL, OPEN_FILES, MOST_FILES, THREADS];

/// Reads `/proc` when it is scraped.
pub(super) struct Process(Vec<Desc>);

impl Process {
    pub(super) fn new() -> prometheus::Result<Self> {
        FAMILIES.iter().map(About::desc).collect::<Result<_, _>>().map(Self)
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        let [stat, status, limits] = ["stat", "status", "limits"].map(read);
        let values = [
            cpu_s(&stat),
            field(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024.0),
            field(&status, "VmSize:").map(|kibibytes| kibibytes * 1024.0),
            // The directory's own descriptor is one of them.
            fs::read_dir("/proc/self/fd").ok().map(|open| as_f64(open.count() as u64) - 1.0),
            field(&limits, "Max open files"),
            field(&status, "Threads:"),
        ];
        let metrics = values.map(|value| value.map(Value::Number));
        let families = FAMILIES.iter().zip(metrics);
        families.filter_map(|(about, value)| Some(about.family(vec![about.metric([], &value?)]))).collect()
    }
}

/// The times in user and system mode: fields 14 and 15, of which 12 follow the name in parentheses.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks = |place| after_name.split_whitespace().nth(place)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

/// The number behind a line's beginning.
fn field(text: &str, beginning: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 99 1000 10";
        assert_eq!(cpu_s(stat), Some(3.0));
        assert_eq!(cpu_s(""), None);
    }

    #[test]
    fn numbers_are_found_by_their_lines() {
        let status = "Name:\tdamper\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t5\n";
        assert_eq!(field(status, "VmRSS:"), Some(1024.0));
        assert_eq!(
            field("Max open files            1024                 4096   files", "Max open files"),
            Some(1024.0)
        );
        assert_eq!(field("Max open files            unlimited  unlimited   files", "Max open files"), None);
    }
}
