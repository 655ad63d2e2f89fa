//! The log on standard error: its filter, and a rate limit per callsite.
//!
//! Each callsite may log [`LINES_MAX`] lines per minute, or [`DETAIL_LINES_MAX`] if its level is `debug` or `trace`,
//! which an operator asks for. Further lines are dropped and counted. The count is logged after the minute, and when
//! the process ends. A line is cut after [`LINE_BYTES_MAX`]. So neither a client nor a broken drive can fill a disk,
//! and the first lines, which name the cause, are kept.
//!
//! The protocol library logs each refused request as an error. These lines are always dropped; `s3` counts refused
//! requests.

use parking_lot::Mutex;
use server::clock::monotonic;
use std::borrow::Cow;
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

/// Lines per callsite and minute.
const LINES_MAX: u32 = 200;
/// The same for the levels `debug` and `trace`.
const DETAIL_LINES_MAX: u32 = 20_000;
/// The longest line: a client chooses its URL.
const LINE_BYTES_MAX: usize = 8 << 10;
const MINUTE: Duration = Duration::from_mins(1);
/// The target of the protocol library.
const LIBRARY: &str = "s3s";

static LIMIT: OnceLock<RateLimit> = OnceLock::new();

/// Sets up logging with the filter of `--log`, else of `RUST_LOG`, else from `info` on.
///
/// # Errors
/// If the filter is malformed; the message shows a correct one.
pub fn to_stderr(filter: Option<&str>) -> Result<(), String> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = match filter.map(str::to_owned).or(from_environment) {
        None => Targets::new().with_default(LevelFilter::INFO),
        Some(text) => text.parse().map_err(|_| {
            format!(
                "`{text}` is not a log filter; write a level such as `debug`, or targets such as `info,engine=trace`"
            )
        })?,
    };
    let limit = LIMIT.get_or_init(RateLimit::default);
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Cut).with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines.with_filter(filter.and(limit))).init();
    Ok(())
}

/// Standard error, which receives a line with each call.
struct Cut;

impl Write for Cut {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().write_all(&cut(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// `line`, with the bytes beyond [`LINE_BYTES_MAX`] replaced by their number.
fn cut(line: &[u8]) -> Cow<'_, [u8]> {
    let Some(rest) = line.len().checked_sub(LINE_BYTES_MAX).filter(|rest| *rest > 0) else { return line.into() };
    // A character stays whole, and a colour ends.
    let end = (0..=LINE_BYTES_MAX).rev().find(|end| line[*end] & 0xc0 != 0x80).unwrap_or(0);
    let rest = rest + LINE_BYTES_MAX - end;
    let reset = if line.contains(&0x1b) { "\x1b[0m" } else { "" };
    [&line[..end], format!("{reset} ... and {rest} bytes more\n").as_bytes()].concat().into()
}

/// The path of a source file from its crate on, without the directories of the machine that built it.
fn from_crate_on(file: &str) -> &str {
    let Some((before, _)) = file.rsplit_once("/src/") else { return file };
    &file[before.rfind('/').map_or(0, |at| at + 1)..]
}

/// Logs the counts of dropped lines that were not logged yet.
pub fn end() {
    if let Some(limit) = LIMIT.get() {
        limit.report(None);
    }
}

/// The state of each callsite that has logged.
#[derive(Default)]
struct RateLimit {
    callsites: Mutex<HashMap<Identifier, Callsite>>,
    reporter: OnceLock<()>,
}

struct Callsite {
    /// Its level and place in the code.
    of: &'static Metadata<'static>,
    began: Instant,
    lines: u32,
    dropped: u64,
}

impl RateLimit {
    /// True if the callsite `of` may log a line at `now`. A refused line is counted.
    fn allows(&self, of: &'static Metadata<'static>, now: Instant) -> bool {
        let mut callsites = self.callsites.lock();
        let kind = callsites.entry(of.callsite()).or_insert(Callsite { of, began: now, lines: 0, dropped: 0 });
        if now >= kind.began + MINUTE && kind.dropped == 0 {
            (kind.began, kind.lines) = (now, 0);
        }
        let is_allowed = kind.lines < lines_max(*of.level());
        if is_allowed {
            kind.lines += 1;
        } else {
            kind.dropped += 1;
        }
        is_allowed
    }

    /// The callsites with dropped lines whose minute has ended at `now`, or all of them; their counts restart.
    fn take_dropped(&self, now: Option<Instant>) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut found = Vec::new();
        for kind in self.callsites.lock().values_mut().filter(|kind| kind.dropped > 0) {
            if now.is_none_or(|now| now >= kind.began + MINUTE) {
                found.push((kind.of, std::mem::take(&mut kind.dropped)));
                (kind.began, kind.lines) = (now.unwrap_or(kind.began), 0);
            }
        }
        found
    }

    /// Writes the counts to standard error directly, since the log could drop them.
    fn report(&self, now: Option<Instant>) {
        for (of, lines) in self.take_dropped(now) {
            let place = of.file().map_or_else(|| of.target(), from_crate_on);
            let at = of.line().map_or_else(String::new, |line| format!(":{line}"));
            // There is no other place to report a failed write.
            let _ = writeln!(
                std::io::stderr(),
                "{} {}: {lines} more lines of this kind ({place}{at}) were dropped in a minute",
                of.level(),
                of.target()
            );
        }
    }
}

impl<S: Subscriber> Filter<S> for &'static RateLimit {
    fn enabled(&self, of: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        let is_refusal = *of.level() == Level::ERROR && of.target().starts_with(LIBRARY);
        !is_refusal
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if self.allows(event.metadata(), monotonic()) {
            return true;
        }
        // The thread starts with the first dropped line.
        self.reporter.get_or_init(|| {
            let limit: &'static RateLimit = self;
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

/// Lines per minute of a callsite of this level.
fn lines_max(level: Level) -> u32 {
    if level > Level::INFO { DETAIL_LINES_MAX } else { LINES_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::metadata::Kind;

    #[test]
    fn a_long_line_is_cut_and_says_by_how_much() {
        let line = [b'a'; LINE_BYTES_MAX + 5];
        assert_eq!(cut(&line[..LINE_BYTES_MAX]).len(), LINE_BYTES_MAX);
        let cut = cut(&line);
        assert!(cut.starts_with(&line[..LINE_BYTES_MAX]) && cut.ends_with(b"a ... and 5 bytes more\n"));
        let wide = [&b"\x1b[33m"[..], "\u{e9}".repeat(LINE_BYTES_MAX / 2).as_bytes()].concat();
        let cut = super::cut(&wide);
        let text = std::str::from_utf8(&cut).expect("no character is cut");
        assert!(text.ends_with("\u{e9}\x1b[0m ... and 6 bytes more\n"), "{text}");
    }

    #[test]
    fn a_source_file_is_named_from_its_crate_on() {
        for (file, named) in [
            ("s3/src/error.rs", "s3/src/error.rs"),
            ("/var/build/registry/src/mirror-1/s3s-0.14.1/src/ops/mod.rs", "s3s-0.14.1/src/ops/mod.rs"),
            ("build.rs", "build.rs"),
        ] {
            assert_eq!(from_crate_on(file), named);
        }
    }

    #[test]
    fn a_callsite_has_a_limit_per_minute_and_dropped_lines_are_counted() {
        let limit = RateLimit::default();
        let of = tracing::callsite!(name: "kind", kind: Kind::EVENT, level: Level::INFO, fields: message);
        let of = tracing::callsite::Callsite::metadata(of);
        let began = monotonic();
        let taken = (0..LINES_MAX + 7).filter(|_| limit.allows(of, began)).count();
        assert_eq!(taken, LINES_MAX as usize);
        assert!(limit.take_dropped(Some(began)).is_empty(), "its minute is not over");
        assert!(!limit.allows(of, began + MINUTE), "its minute ends when its count is logged");
        let dropped: Vec<u64> = limit.take_dropped(Some(began + MINUTE)).into_iter().map(|(_, lines)| lines).collect();
        assert_eq!(dropped, [8]);
        assert!(limit.allows(of, began + MINUTE) && limit.take_dropped(None).is_empty());
    }

    #[test]
    fn the_levels_that_an_operator_asks_for_have_a_limit_too() {
        let limits = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE].map(lines_max);
        assert_eq!(limits, [200, 200, 200, 20_000, 20_000]);
    }
}
