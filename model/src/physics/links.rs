//! The links of a rack: every domain of a resource with a limit in bytes/s carries at most that rate (Pelican: the root
//! of a PCIe hierarchy). All data that is read from a drive or written to it crosses the links of its domains.
//!
//! A simulator shares the links among flows. For requests that come one after another, [`LinkQueues`] makes each wait
//! for those before it. Either way a link carries its rate and no more.
//!
//! Invariant: a link never carries more than its rate times the time that has passed.

use crate::id::DriveId;
use crate::rack::{DomainLimit, RackSpec};
use crate::time::{Time, transfer_time};
use alloc::vec;
use alloc::vec::Vec;

/// The links of a rack, by number, and those that each drive crosses.
#[derive(Clone, Debug)]
pub struct RackLinks {
    /// The rate of each link, in bytes/s.
    bytes_per_s: Vec<u64>,
    /// The links of each drive, drive after drive: one for each resource of this kind.
    of_drive: Vec<usize>,
    each_crosses: usize,
}

impl RackLinks {
    /// The links of `spec`.
    pub fn new(spec: &RackSpec) -> Self {
        let mut bytes_per_s = Vec::new();
        let mut firsts = Vec::new();
        for (resource, described) in spec.resources_by_id() {
            if let DomainLimit::BytesPerS(carries) = described.limit {
                firsts.push((resource, bytes_per_s.len()));
                bytes_per_s.extend(core::iter::repeat_n(carries, spec.domain_count(resource)));
            }
        }
        let link_of = |drive, &(resource, first): &(_, usize)| first + spec.domain_of(drive, resource).index();
        let of_drive = spec.drives.iter().flat_map(|drive| firsts.iter().map(|at| link_of(drive.id, at))).collect();
        Self { bytes_per_s, of_drive, each_crosses: firsts.len() }
    }

    /// The rate of each link, in bytes/s.
    pub fn bytes_per_s(&self) -> &[u64] {
        &self.bytes_per_s
    }

    /// The links that `drive` crosses.
    #[inline]
    pub fn of(&self, drive: DriveId) -> &[usize] {
        &self.of_drive[drive.index() * self.each_crosses..][..self.each_crosses]
    }
}

/// The links of a rack under requests that come one after another.
#[derive(Clone, Debug)]
pub struct LinkQueues {
    links: RackLinks,
    /// When each link has carried all of its bytes.
    free_at: Vec<Time>,
}

impl LinkQueues {
    /// The links of `spec`, all idle.
    pub fn new(spec: &RackSpec) -> Self {
        let links = RackLinks::new(spec);
        Self { free_at: vec![Time::ZERO; links.bytes_per_s.len()], links }
    }

    /// Adds `bytes` to the queues of the links of `drive`; returns when the last of these links has carried them.
    pub fn carry(&mut self, now: Time, drive: DriveId, bytes: u64) -> Time {
        let mut done = now;
        for link in self.links.of(drive) {
            let free_at = &mut self.free_at[*link];
            *free_at = now.max(*free_at) + transfer_time(bytes, self.links.bytes_per_s[*link]);
            done = done.max(*free_at);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use core::time::Duration;

    #[test]
    fn drives_share_the_link_of_their_server_and_no_other() {
        let (_, text) = crate::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let spec = crate::text::parse(text, "pelican").unwrap();
        let (links, mut queues) = (RackLinks::new(&spec), LinkQueues::new(&spec));
        assert_eq!(links.bytes_per_s(), [8_000_000_000; 2]);
        let on = |link: usize| spec.drives.iter().map(|drive| drive.id).find(|id| links.of(*id) == [link]).unwrap();
        let (left, right, now) = (on(0), on(1), Time::from_secs(100));
        let second = Duration::from_secs(1);
        assert_eq!(queues.carry(now, left, 8_000_000_000), now + second);
        assert_eq!(queues.carry(now, left, 4_000_000_000), now + second + second / 2, "behind the first");
        assert_eq!(queues.carry(now, right, 8_000_000_000), now + second);
        assert_eq!(queues.carry(now + second * 9, left, 0), now + second * 9, "what was not used is lost");
    }
}
