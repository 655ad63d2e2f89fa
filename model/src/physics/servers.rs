//! The servers of a rack and their load, on which the time of a mount depends (Pelican, section 5: two load regimes).
//!
//! A server is a domain of the description's first resource that is counted in bytes/s (Pelican: the root of a PCIe
//! hierarchy); without such a resource there is one server. It is busy while a stream moves payload from or to one of
//! its drives. The paper does not say what makes load heavy; this is the one definition, for simulated and emulated
//! racks alike.
//!
//! Where a stream is seen as requests one after another, it goes on for [`STREAM_GAP`] after each of them, so that it
//! does not end while its next request is on the way.

use crate::id::DriveId;
use crate::rack::{DomainLimit, DriveSpec, RackSpec};
use crate::time::Time;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// How long a stream goes on after a request. Short beside a mount, long beside what a server does between requests.
pub const STREAM_GAP: Duration = Duration::from_millis(100);

/// The load of the server that mounts a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLoad {
    /// It moves nothing; a mount takes the profile's `mount`.
    Idle,
    /// It moves payload; a mount takes the profile's `mount_busy`.
    Busy,
}

/// The servers of a rack, and what they move.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The server of each drive.
    of_drive: Vec<usize>,
    /// The streams under way on each.
    streams: Vec<u32>,
    /// When the last stream of each ends that is known by its requests.
    moves_until: Vec<Time>,
}

impl Servers {
    /// The servers of `spec`, all idle.
    pub fn new(spec: &RackSpec) -> Self {
        let counted = |limit: &DomainLimit| matches!(limit, DomainLimit::BytesPerS(_));
        let root = spec.resources_by_id().find(|(_, resource)| counted(&resource.limit)).map(|(id, _)| id);
        let server_of = |drive: &DriveSpec| root.map_or(0, |root| spec.domain_of(drive.id, root).index());
        let count = root.map_or(1, |root| spec.domain_count(root));
        assert!(count > 0, "drives hang on no server");
        Self {
            of_drive: spec.drives.iter().map(server_of).collect(),
            streams: vec![0; count],
            moves_until: vec![Time::ZERO; count],
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// The server that `drive` hangs on.
    #[inline]
    pub fn of(&self, drive: DriveId) -> usize {
        self.of_drive[drive.index()]
    }

    /// The streams under way on all of them, those known by their requests not counted.
    pub fn streams(&self) -> u32 {
        self.streams.iter().sum()
    }

    /// A stream of `drive` begins.
    #[inline]
    pub fn stream_begins(&mut self, drive: DriveId) {
        self.streams[self.of_drive[drive.index()]] += 1;
    }

    /// A stream of `drive` ends.
    #[inline]
    pub fn stream_ends(&mut self, drive: DriveId) {
        let streams = &mut self.streams[self.of_drive[drive.index()]];
        assert!(*streams > 0, "a stream ends that never began");
        *streams -= 1;
    }

    /// A request of a stream of `drive` is going to be done at `done`.
    pub fn request_until(&mut self, drive: DriveId, done: Time) {
        let until = &mut self.moves_until[self.of_drive[drive.index()]];
        *until = (*until).max(done + STREAM_GAP);
    }

    /// The load of the server that `drive` hangs on, at `now`.
    #[inline]
    pub fn load(&self, now: Time, drive: DriveId) -> ServerLoad {
        let server = self.of_drive[drive.index()];
        if self.streams[server] > 0 || now < self.moves_until[server] { ServerLoad::Busy } else { ServerLoad::Idle }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_server_is_busy_while_its_own_drives_move_payload() {
        let (_, text) = crate::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let spec = crate::text::parse(text, "pelican").unwrap();
        let mut servers = Servers::new(&spec);
        let on = |server: usize| spec.drives.iter().map(|drive| drive.id).find(|id| servers.of(*id) == server).unwrap();
        let (left, right, now) = (on(0), on(1), Time::from_secs(100));
        assert_eq!((servers.count(), servers.load(now, left)), (2, ServerLoad::Idle));
        servers.stream_begins(left);
        assert_eq!((servers.load(now, left), servers.load(now, right)), (ServerLoad::Busy, ServerLoad::Idle));
        servers.stream_ends(left);
        assert_eq!(servers.load(now, left), ServerLoad::Idle);
        servers.request_until(right, now);
        assert_eq!(servers.load(now, right), ServerLoad::Busy, "the stream's next request is on the way");
        assert_eq!(servers.load(now + STREAM_GAP, right), ServerLoad::Idle);
    }
}
