//! Counts of refused requests by cause and address. The log gets a summary, since one client can send thousands of
//! requests per second.
//!
//! Invariant: the table has at most [`ROWS_MAX`] rows; further causes and addresses share one count.

use crate::traffic::peer_of;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The time between two summaries.
pub(crate) const SUMMARY_INTERVAL: Duration = Duration::from_mins(1);
/// Pairs of cause and address that are counted separately.
const ROWS_MAX: usize = 1_024;
/// Rows that a summary names: those with the most requests.
const ROWS_NAMED: usize = 10;

/// Requests that were refused since the last summary.
#[derive(Default)]
pub(crate) struct Refused {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    rows: HashMap<(&'static str, IpAddr), u64>,
    /// Requests without a row.
    others: u64,
}

impl Refused {
    /// Counts a request from `address` that was refused with `code`.
    pub fn count(&self, code: &'static str, address: IpAddr) {
        let mut table = self.table.lock();
        let row = (code, peer_of(address));
        let has_room = table.rows.len() < ROWS_MAX;
        match table.rows.get_mut(&row) {
            Some(count) => *count += 1,
            None if has_room => drop(table.rows.insert(row, 1)),
            None => table.others += 1,
        }
        assert!(table.rows.len() <= ROWS_MAX, "memory is bounded");
    }

    /// A summary of the requests refused since the last summary; `None` if no request was refused.
    pub fn summary(&self) -> Option<String> {
        let Table { rows, others } = std::mem::take(&mut *self.table.lock());
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        let unnamed = rows.iter().skip(ROWS_NAMED).map(|(_, count)| count).sum::<u64>() + others;
        let mut text = String::new();
        for ((code, peer), count) in rows.into_iter().take(ROWS_NAMED) {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{count} {code} from {peer}");
        }
        if unnamed > 0 {
            let _ = write!(text, ", and {unnamed} more");
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn a_summary_names_those_with_the_most_and_counts_all() {
        let refused = Refused::default();
        assert_eq!(refused.summary(), None);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        for last in 1..=12 {
            (0..last).for_each(|_| refused.count("AccessDenied", address(last)));
        }
        refused.count("NoSuchKey", address(1));
        let said = refused.summary().unwrap();
        assert!(said.starts_with("12 AccessDenied from 10.0.0.12, 11 AccessDenied from 10.0.0.11, "), "{said}");
        assert!(said.ends_with("3 AccessDenied from 10.0.0.3, and 4 more"), "{said}");
        assert_eq!(refused.summary(), None, "each is named once");
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_a_network_is_one() {
        let refused = Refused::default();
        for high in 0..2 * ROWS_MAX as u128 {
            for low in 0..2 {
                refused.count("AccessDenied", Ipv6Addr::from_bits(high << 64 | low).into());
            }
        }
        assert_eq!(refused.table.lock().rows.len(), ROWS_MAX);
        let (named, all) = (2 * ROWS_NAMED, 4 * ROWS_MAX);
        assert!(refused.summary().unwrap().ends_with(&format!("and {} more", all - named)));
    }
}
