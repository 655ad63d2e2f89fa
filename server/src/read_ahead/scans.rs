//! The known scans by bucket: the state of each [`engine::readahead::Scan`], and the names that it does not have: keys
//! and prefixes.
//!
//! A reader is assumed to want the keys under the shortest recently listed prefix of the requested key; or else under
//! the common prefix of the recently requested keys, up to a slash.
//!
//! Invariant: at most [`SCANS_MAX`] buckets, and [`NAMES_MAX`] keys and prefixes for each.

use engine::readahead::{Feedback, MEMORY, SCANS_MAX, Scan};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use workshop::AheadCounts;

/// Maximum number of keys that are remembered for each bucket, and of prefixes.
const NAMES_MAX: usize = 8;

/// All scans.
#[derive(Default)]
pub(super) struct Scans(BTreeMap<String, Known>);

#[derive(Default)]
struct Known {
    scan: Scan,
    last: Duration,
    keys: VecDeque<String>,
    listed: VecDeque<String>,
    counts: Arc<AheadCounts>,
}

/// The scope of a plan.
pub(super) struct Outlook {
    /// The prefix of the keys that may be wanted.
    pub(super) prefix: String,
    /// The number of bytes under it that a plan considers.
    pub(super) window_bytes: u64,
    /// True if keys before the requested one are wanted as well.
    pub(super) wraps: bool,
    /// Counts the use of the bytes that are read.
    pub(super) counts: Arc<AheadCounts>,
}

impl Scans {
    /// Records that the keys with `prefix` were listed.
    pub(super) fn listed(&mut self, now: Duration, bucket: &str, prefix: &str) {
        let listed = &mut self.known(now, bucket).listed;
        // A reader that lists folder after folder below a prefix goes through all of it.
        let above = listed.iter().find(|above| prefix.starts_with(above.as_str())).cloned();
        remember(listed, above.as_deref().unwrap_or(prefix));
    }

    /// Records that `key` was requested.
    pub(super) fn asked(&mut self, now: Duration, bucket: &str, key: &str) {
        let known = self.known(now, bucket);
        let step = known.keys.back().map_or(Ordering::Greater, |last| key.cmp(last.as_str()));
        known.scan.asked(now, step);
        remember(&mut known.keys, key);
    }

    /// The keys that are likely to be wanted along with `key`; `None` if the bucket is not known any more.
    pub(super) fn outlook(&self, bucket: &str, key: &str, capacity_bytes: u64) -> Option<Outlook> {
        let known = self.0.get(bucket)?;
        let bytes = known.counts.get();
        let feedback = Feedback { used_bytes: bytes.used_bytes, wasted_bytes: bytes.wasted_bytes };
        Some(Outlook {
            prefix: known.prefix(key),
            window_bytes: known.scan.window_bytes(capacity_bytes, feedback),
            wraps: known.scan.wraps(),
            counts: Arc::clone(&known.counts),
        })
    }

    fn known(&mut self, now: Duration, bucket: &str) -> &mut Known {
        if !self.0.contains_key(bucket) && self.0.len() >= SCANS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.last).map(|(bucket, _)| bucket.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let known = self.0.entry(bucket.to_owned()).or_default();
        if now.saturating_sub(known.last) > MEMORY {
            *known = Known::default();
        }
        known.last = now;
        known
    }
}

impl Known {
    fn prefix(&self, key: &str) -> String {
        let listed = self.listed.iter().filter(|prefix| key.starts_with(prefix.as_str()));
        if let Some(prefix) = listed.min_by_key(|prefix| prefix.len()) {
            return prefix.clone();
        }
        let common = self.keys.iter().fold(key, |common, other| common_start(common, other));
        let end = common.rfind('/').map_or(0, |slash| slash + 1);
        common[..end].to_owned()
    }
}

/// The common prefix of both.
fn common_start<'k>(one: &'k str, other: &str) -> &'k str {
    let same = one.char_indices().zip(other.chars()).find(|((_, left), right)| left != right);
    let end = same.map_or(one.len().min(other.len()), |((at, _), _)| at);
    &one[..end]
}

/// Adds a name as the newest. A known name moves to the end.
fn remember(names: &mut VecDeque<String>, name: &str) {
    names.retain(|other| other != name);
    if names.len() == NAMES_MAX {
        names.pop_front();
    }
    names.push_back(name.to_owned());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn prefix_after(listed: &[&str], asked: &[&str]) -> String {
        let mut scans = Scans::default();
        for prefix in listed {
            scans.listed(NOW, "b", prefix);
        }
        for key in asked {
            scans.asked(NOW, "b", key);
        }
        scans.outlook("b", asked.last().unwrap(), 1 << 30).unwrap().prefix
    }

    #[test]
    fn what_was_listed_says_what_is_wanted_and_else_what_the_keys_have_in_common() {
        assert_eq!(prefix_after(&[], &["t/a/1"]), "t/a/");
        assert_eq!(prefix_after(&[], &["t/a/1", "t/a/2", "t/b/1"]), "t/");
        assert_eq!(prefix_after(&[], &["t/a/1", "u/1"]), "");
        assert_eq!(prefix_after(&["t/", "t/a/"], &["t/a/1"]), "t/");
        let folders: Vec<String> = (0..100).map(|nth| format!("t/{nth}/")).collect();
        let mut listed = vec!["t/"];
        listed.extend(folders.iter().map(String::as_str));
        assert_eq!(prefix_after(&listed, &["t/99/x"]), "t/", "as rclone lists");
        assert_eq!(prefix_after(&["u/", "t/a/"], &["t/a/1"]), "t/a/");
        assert_eq!(prefix_after(&["u/"], &["t/a/1"]), "t/a/");
        assert_eq!(prefix_after(&[], &["é/ä", "é/å"]), "é/");
        assert_eq!(prefix_after(&[], &["plain", "plainer"]), "");
    }

    #[test]
    fn a_bucket_is_forgotten_after_a_while_and_when_there_are_too_many() {
        let mut scans = Scans::default();
        for nth in 0..SCANS_MAX + 10 {
            scans.asked(NOW + Duration::from_secs(nth as u64), &format!("{nth}"), "k");
        }
        assert_eq!(scans.0.len(), SCANS_MAX);
        assert!(scans.outlook("9", "k", 1).is_none() && scans.outlook("10", "k", 1).is_some());
        let last = format!("{}", SCANS_MAX + 9);
        scans.listed(NOW, &last, "k");
        scans.asked(NOW + MEMORY * 2, &last, "x/y");
        assert_eq!(scans.outlook(&last, "x/y", 1).unwrap().prefix, "x/");
    }

    #[test]
    fn names_are_bounded() {
        let mut scans = Scans::default();
        for nth in 0..100 {
            scans.listed(NOW, "b", &format!("{nth}/"));
            scans.asked(NOW, "b", &format!("{nth}"));
        }
        let known = scans.0.get("b").unwrap();
        assert_eq!((known.keys.len(), known.listed.len()), (NAMES_MAX, NAMES_MAX));
    }
}
