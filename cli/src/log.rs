//! The log on standard error: its filter, and a limit for each kind of line.
//!
//! A kind is one place in the code. In a minute [`LINES_MAX`] lines of a kind are written, and the others counted;
//! their count is written once the minute is over, and at the end. So neither a client nor a broken drive can fill a
//! disk, and the first lines, which name the cause, are there. Lines of `debug` and `trace` are there for whoever asks
//! for them, and have no limit.
//!
//! What the protocol library calls an error is a client's request that was refused: that is never a line of its own
//! (`s3` counts them).

use parking_lot::Mutex;
use server::clock::monotonic;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;

/// Lines of a kind in a minute.
const LINES_MAX: u32 = 200;
const MINUTE: Duration = Duration::from_mins(1);
/// The protocol library.
const LIBRARY: &str = "s3s";

static LIMIT: OnceLock<Limit> = OnceLock::new();

/// Sets up logging with the filter of `--log`, else of `RUST_LOG`, else from `info` on.
///
/// # Errors
/// If the filter is none, with its mend.
pub fn to_stderr(filter: Option<&str>) -> Result<(), String> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = match filter.map(str::to_owned).or(from_environment) {
        None => Targets::new().with_default(LevelFilter::INFO),
        Some(text) => text.parse().map_err(|_| {
            format!("`{text}` is no log filter; write a level such as `debug`, or targets such as `info,engine=trace`")
        })?,
    };
    let limit = LIMIT.get_or_init(Limit::default);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines.with_filter(filter.and(limit))).init();
    Ok(())
}

/// Writes how many lines were left out and not named yet.
pub fn end() {
    if let Some(limit) = LIMIT.get() {
        limit.report(None);
    }
}

/// The lines of each kind in its minute.
#[derive(Default)]
struct Limit {
    kinds: Mutex<HashMap<Identifier, Kind>>,
    reporter: OnceLock<()>,
}

struct Kind {
    /// Where in the code, and how grave.
    of: &'static Metadata<'static>,
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Limit {
    /// Whether another line of the kind `of` is written at `now`.
    fn takes(&self, of: &'static Metadata<'static>, now: Instant) -> bool {
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(of.callsite()).or_insert(Kind { of, began: now, lines: 0, left_out: 0 });
        if now >= kind.began + MINUTE && kind.left_out == 0 {
            (kind.began, kind.lines) = (now, 0);
        }
        let is_taken = kind.lines < LINES_MAX;
        if is_taken {
            kind.lines += 1;
        } else {
            kind.left_out += 1;
        }
        is_taken
    }

    /// Names the kinds of which lines were left out, and begins anew: those whose minute is over at `now`, or all.
    fn left_out(&self, now: Option<Instant>) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut found = Vec::new();
        for kind in self.kinds.lock().values_mut().filter(|kind| kind.left_out > 0) {
            if now.is_none_or(|now| now >= kind.began + MINUTE) {
                found.push((kind.of, std::mem::take(&mut kind.left_out)));
                (kind.began, kind.lines) = (now.unwrap_or(kind.began), 0);
            }
        }
        found
    }

    /// Writes what was left out, past the log: a line of it might be left out.
    fn report(&self, now: Option<Instant>) {
        for (of, lines) in self.left_out(now) {
            let place = of.file().unwrap_or_else(|| of.target());
            let at = of.line().map_or_else(String::new, |line| format!(":{line}"));
            // A log that cannot be written has nobody to tell.
            let _ = writeln!(
                std::io::stderr(),
                "{} {}: {lines} more lines of this kind ({place}{at}) were left out in a minute",
                of.level(),
                of.target()
            );
        }
    }
}

impl<S: Subscriber> Filter<S> for &'static Limit {
    fn enabled(&self, of: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        let is_refusal = *of.level() == Level::ERROR && of.target().starts_with(LIBRARY);
        !is_refusal
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let of = event.metadata();
        if *of.level() > Level::INFO || self.takes(of, monotonic()) {
            return true;
        }
        // It is there only once something was left out.
        self.reporter.get_or_init(|| {
            let limit: &'static Limit = self;
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(MINUTE);
                    limit.report(Some(monotonic()));
                }
            });
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_so_many_lines_in_a_minute_and_what_is_left_out_is_counted() {
        let limit = Limit::default();
        let of = tracing::callsite!(name: "kind", kind: tracing::metadata::Kind::EVENT, fields: message);
        let of = tracing::callsite::Callsite::metadata(of);
        let began = monotonic();
        let taken = (0..LINES_MAX + 7).filter(|_| limit.takes(of, began)).count();
        assert_eq!(taken, LINES_MAX as usize);
        assert!(limit.left_out(Some(began)).is_empty(), "its minute is not over");
        assert!(!limit.takes(of, began + MINUTE), "it is not over before its count was named");
        let left_out: Vec<u64> = limit.left_out(Some(began + MINUTE)).into_iter().map(|(_, lines)| lines).collect();
        assert_eq!(left_out, [8]);
        assert!(limit.takes(of, began + MINUTE) && limit.left_out(None).is_empty());
    }
}
