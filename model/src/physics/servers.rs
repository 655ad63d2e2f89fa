//! The servers of a rack and their load, on which the time of a mount depends (Pelican, section 5: two load regimes).
//!
//! A server is a domain of the description's first resource with a limit in bytes/s (Pelican: the root of a PCIe
//! hierarchy); without such a resource there is one server. The paper does not define heavy load. The rack's
//! description does ([`HeavyLoad`]), and this module applies the definition, for simulated and emulated racks alike.
//!
//! If a stream is seen as separate requests, it continues for [`STREAM_GAP`] after each of them, so that it does not
//! end before its next request arrives.

use crate::id::DriveId;
use crate::rack::{DomainLimit, DriveSpec, HeavyLoad, RackSpec};
use crate::time::Time;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// The time that a stream continues after a request. Short beside a mount, long beside a server's pause between
/// requests.
pub const STREAM_GAP: Duration = Duration::from_millis(100);

/// The load of the server that mounts a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLoad {
    /// It is light; a mount takes the profile's `mount`.
    Idle,
    /// It is heavy; a mount takes the profile's `mount_busy`.
    Busy,
}

/// The servers of a rack, and their streams.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The server of each drive.
    of_drive: Vec<usize>,
    /// The definition of heavy load.
    heavy: HeavyLoad,
    /// The number of streams under way on each server.
    streams: Vec<u32>,
    /// When the last known request of a stream on each server ends, plus the gap.
    moves_until: Vec<Time>,
    /// The same for each drive.
    drive_moves_until: Vec<Time>,
    /// The fill of the clients' queue of the class of the drive in question, in thousandths.
    queue_fill_permille: u32,
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
            heavy: spec.profile.heavy_load,
            streams: vec![0; count],
            moves_until: vec![Time::ZERO; count],
            drive_moves_until: vec![Time::ZERO; spec.drives.len()],
            queue_fill_permille: 0,
        }
    }

    /// The number of servers.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// The server that `drive` hangs on.
    #[inline]
    pub fn of(&self, drive: DriveId) -> usize {
        self.of_drive[drive.index()]
    }

    /// Sets the fill of the clients' queue of the class of the next drive in question, in thousandths.
    pub fn set_queue_fill(&mut self, permille: u32) {
        self.queue_fill_permille = permille;
    }

    /// A stream of each of these drives begins.
    #[inline]
    pub fn streams_begin(&mut self, drives: impl IntoIterator<Item = DriveId>) {
        self.change_streams(drives, |streams, count| *streams += count);
    }

    /// A stream of each of these drives ends.
    #[inline]
    pub fn streams_end(&mut self, drives: impl IntoIterator<Item = DriveId>) {
        self.change_streams(drives, |streams, count| {
            assert!(*streams >= count, "a stream ends that never began");
            *streams -= count;
        });
    }

    /// Changes the streams of each server, together for drives of one server that follow each other.
    #[inline]
    fn change_streams(&mut self, drives: impl IntoIterator<Item = DriveId>, change: impl Fn(&mut u32, u32)) {
        let (mut server, mut count) = (0, 0);
        for drive in drives {
            let of = self.of(drive);
            if of != server {
                change(&mut self.streams[server], count);
                (server, count) = (of, 0);
            }
            count += 1;
        }
        change(&mut self.streams[server], count);
    }

    /// A request of a stream of `drive` will be done at `done`.
    pub fn request_until(&mut self, drive: DriveId, done: Time) {
        let server = self.of_drive[drive.index()];
        for until in [&mut self.moves_until[server], &mut self.drive_moves_until[drive.index()]] {
            *until = (*until).max(done + STREAM_GAP);
        }
    }

    /// The load of the server that `drive` hangs on, at `now`.
    #[inline]
    pub fn load(&self, now: Time, drive: DriveId) -> ServerLoad {
        let is_heavy = match self.heavy {
            HeavyLoad::StreamOnServer => {
                let server = self.of_drive[drive.index()];
                self.streams[server] > 0 || now < self.moves_until[server]
            }
            HeavyLoad::StreamsInRack(streams) => self.streams_at(now) >= streams as usize,
            HeavyLoad::QueueFill(permille) => self.queue_fill_permille >= u32::from(permille),
        };
        if is_heavy { ServerLoad::Busy } else { ServerLoad::Idle }
    }

    /// The streams of the whole rack at `now`.
    fn streams_at(&self, now: Time) -> usize {
        let by_requests = self.drive_moves_until.iter().filter(|until| now < **until).count();
        by_requests + self.streams.iter().sum::<u32>() as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pelican(heavy_load: HeavyLoad) -> RackSpec {
        let (_, text) = crate::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let mut draft = crate::rack::RackDraft::clone(&crate::text::parse(text, "pelican").unwrap());
        draft.profile.heavy_load = heavy_load;
        RackSpec::validated(draft).unwrap()
    }

    #[test]
    fn a_server_is_busy_while_its_own_drives_move_payload() {
        let spec = pelican(HeavyLoad::StreamOnServer);
        let mut servers = Servers::new(&spec);
        let on = |server: usize| spec.drives.iter().map(|drive| drive.id).find(|id| servers.of(*id) == server).unwrap();
        let (left, right, now) = (on(0), on(1), Time::from_secs(100));
        assert_eq!((servers.count(), servers.load(now, left)), (2, ServerLoad::Idle));
        servers.streams_begin([left]);
        assert_eq!((servers.load(now, left), servers.load(now, right)), (ServerLoad::Busy, ServerLoad::Idle));
        servers.streams_end([left]);
        assert_eq!(servers.load(now, left), ServerLoad::Idle);
        servers.request_until(right, now);
        assert_eq!(servers.load(now, right), ServerLoad::Busy, "the stream's next request is on the way");
        assert_eq!(servers.load(now + STREAM_GAP, right), ServerLoad::Idle);
    }

    #[test]
    fn a_description_says_what_makes_load_heavy() {
        let under = |heavy| Servers::new(&pelican(heavy));
        let (now, drive, other) = (Time::from_secs(100), DriveId(0), DriveId(1_151));
        let mut servers = under(HeavyLoad::QueueFill(500));
        servers.streams_begin([drive]);
        servers.set_queue_fill(499);
        assert_eq!(servers.load(now, drive), ServerLoad::Idle);
        servers.set_queue_fill(500);
        assert_eq!([servers.load(now, drive), servers.load(now, other)], [ServerLoad::Busy; 2]);
        let mut servers = under(HeavyLoad::StreamsInRack(2));
        servers.streams_begin([drive]);
        assert_eq!(servers.load(now, drive), ServerLoad::Idle);
        servers.request_until(other, now);
        assert_eq!(servers.load(now, drive), ServerLoad::Busy);
        assert_eq!(servers.load(now + STREAM_GAP, drive), ServerLoad::Idle);
    }
}
