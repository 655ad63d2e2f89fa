//! Hold mode, which is experimental: an OSD keeps its writes on `block.db` while its drive sleeps.
//!
//! BlueStore has a method for small writes to slow drives: they are committed to RocksDB, acknowledged, and written to
//! the drive later, in batches. Hold mode applies it to every write up to 8 MiB, and the agent chooses the later
//! moment. It uses documented options that Ceph can change in a running daemon. Tested on 16.2.15: no write from 4 KiB
//! to 4 MiB touched the drive, and once the options are unset everything is on the drive within seconds, without
//! another write (the decision `hold-mode-by-options-of-a-running-osd` has the numbers).
//!
//! The options are changed only in the running daemon (`ceph tell osd.N config set`): a restarted daemon is an ordinary
//! one. OSDs that may have been changed are first noted in the monitors' key-value store, one key for each host, and
//! `config unset` reverts the change; both may be done twice.
//!
//! The agent's limit is on the cost that the OSD counts: the bytes, and some for each write
//! (`bluestore_throttle_cost_per_io`). At twice that limit the OSD writes by itself, even if no agent runs: its own
//! limit is four times the agent's, and it starts to write at half of its own.

use crate::agent::Held;
use crate::cluster::{Osd, OsdId};
use crate::dumps::decode;
use crate::plan::DB_LOG_BYTES;
use crate::world::drives::DriveError;
use crate::world::tools::{Ceph, CephError};
use serde::Deserialize;

const HOLDS: &str = "larder/ceph/hold/";

/// The counters of an OSD's held-back writes, by their name in Ceph.
const THROTTLE: &str = "throttle-bluestore_throttle_deferred_bytes";

/// The OSD's own limit, in multiples of the agent's.
const OWN_LIMIT: u64 = 4;

/// The option that shows if an OSD holds back writes; it is set last, and unset last.
const LIMIT: &str = "bluestore_throttle_deferred_bytes";

/// The other options: writes of up to 8 MiB are deferred, regardless of their number, and not written because of their
/// age.
const OPTIONS: [(&str, &str); 4] = [
    ("bluestore_prefer_deferred_size", "8388608"),
    ("bluestore_deferred_batch_ops", "65535"),
    ("bluestore_max_deferred_txc", "1000000"),
    ("bluestore_max_defer_interval", "0"),
];

/// An error if the `block.db` of `osd` has no room for the writes that it may hold back before it writes by itself: the
/// logs, and one and a half times the bytes (546 MB took 1.3 GB of it, and 726 MB did not fit into 2 GiB, on 16.2.15).
pub fn fits(osd: &Osd, max: u64) -> Result<(), DriveError> {
    let wanted = DB_LOG_BYTES.saturating_add(max.saturating_mul(OWN_LIMIT / 2 * 3 / 2));
    let has = if osd.has_db { osd.db_bytes } else { 0 };
    if has < wanted { Err(DriveError::HoldNoRoom { osd: osd.id, has, wanted }) } else { Ok(()) }
}

/// The commands that make `osd` hold back writes, if the agent allows a cost of `max`.
pub fn on(osd: OsdId, max: u64) -> Vec<Vec<String>> {
    let limit = max.saturating_mul(OWN_LIMIT).to_string();
    let options = OPTIONS.into_iter().chain([(LIMIT, limit.as_str())]);
    options.map(|(name, value)| Ceph::argv(&["tell", &osd.to_string(), "config", "set", name, value])).collect()
}

/// The commands that revert that.
pub fn off(osd: OsdId) -> Vec<Vec<String>> {
    let options = OPTIONS.into_iter().map(|(name, _)| name).chain([LIMIT]);
    options.map(|name| Ceph::argv(&["tell", &osd.to_string(), "config", "unset", name])).collect()
}

/// The part of the output of `ceph tell osd.N perf dump` that is used.
#[derive(Deserialize)]
struct Counters {
    #[serde(rename = "throttle-bluestore_throttle_deferred_bytes")]
    throttle: Throttle,
}

#[derive(Deserialize)]
struct Throttle {
    val: u64,
    max: u64,
}

/// The writes that `osd` holds back, if the agent allows a cost of `max`.
pub fn held(ceph: Ceph, osd: OsdId, max: u64) -> Result<Held, CephError> {
    let text = ceph.json(&["tell", &osd.to_string(), "perf", "dump", THROTTLE])?;
    let Counters { throttle } = decode("perf dump", &text)?;
    // Ceph adds `bluestore_throttle_bytes` to the configured value.
    Ok(Held { cost: throttle.val, is_on: throttle.max >= max.saturating_mul(OWN_LIMIT) })
}

/// The OSDs of one host's agent that may hold back writes, as noted in the monitors' store.
pub struct Holds {
    ceph: Ceph,
    key: String,
}

impl Holds {
    /// The OSDs of the agent on `host`.
    pub fn new(ceph: Ceph, host: &str) -> Self {
        Self { ceph, key: format!("{HOLDS}{host}") }
    }

    fn noted(&self) -> Result<Vec<OsdId>, CephError> {
        let keys: Vec<String> = decode("config-key ls", &self.ceph.json(&["config-key", "ls"])?)?;
        if !keys.contains(&self.key) {
            return Ok(Vec::new());
        }
        let text = self.ceph.run(&["config-key", "get", &self.key])?;
        Ok(text.split(',').filter_map(|id| id.trim().parse().ok().map(OsdId)).collect())
    }

    /// Notes `osds` beside those that are noted; must be done before any of them is changed.
    pub fn note(&self, osds: &[OsdId]) -> Result<(), CephError> {
        let noted = self.noted()?;
        let new: Vec<&OsdId> = osds.iter().filter(|osd| !noted.contains(osd)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = noted.iter().chain(new).map(|osd| osd.0.to_string()).collect();
        self.ceph.run(&["config-key", "set", &self.key, &names.join(",")]).map(drop)
    }

    /// Reverts the changes in the noted OSDs. An OSD that does not run is ordinary when it starts.
    pub fn release(&self) -> Result<(), CephError> {
        let noted = self.noted()?;
        if noted.is_empty() {
            return Ok(());
        }
        let cluster = self.ceph.cluster()?;
        let runs = |osd: &&OsdId| cluster.osds.get(*osd).is_some_and(|osd| osd.is_up);
        for command in noted.iter().filter(runs).flat_map(|osd| off(*osd)) {
            self.ceph.program(&command, self.ceph.timeout)?;
        }
        self.ceph.run(&["config-key", "rm", &self.key]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::world::fake::{Fake, OSD};

    #[test]
    fn what_is_held_is_what_the_osd_counts() {
        let fake = Fake::new();
        assert_eq!(held(fake.ceph, OSD, 512 << 20).unwrap(), Held { cost: 0, is_on: false });
        for command in on(OSD, 512 << 20) {
            fake.ceph.program(&command, fake.ceph.timeout).unwrap();
        }
        assert_eq!(held(fake.ceph, OSD, 512 << 20).unwrap(), Held { cost: 0, is_on: true });
        fake.write("held", "750000");
        assert_eq!(held(fake.ceph, OSD, 512 << 20).unwrap().cost, 750_000);
        for command in off(OSD) {
            fake.ceph.program(&command, fake.ceph.timeout).unwrap();
        }
        assert_eq!(held(fake.ceph, OSD, 512 << 20).unwrap(), Held { cost: 0, is_on: false });
    }

    #[test]
    fn a_block_db_without_room_is_refused() {
        let mut osd = crate::plan::tests::converted().osds.remove(&OSD).unwrap();
        osd.db_bytes = 2 << 30;
        fits(&osd, 256 << 20).unwrap();
        let error = fits(&osd, 512 << 20).unwrap_err().to_string();
        assert!(error.contains("has 2147483648 bytes, and --hold wants 2791728738"), "{error}");
        osd.has_db = false;
        fits(&osd, 1).unwrap_err();
    }

    #[test]
    fn osds_that_were_changed_are_remembered_and_given_back_by_whoever_comes() {
        let fake = Fake::new();
        let holds = Holds::new(fake.ceph, "host-0");
        holds.release().unwrap();
        assert_eq!(fake.log(), Vec::<String>::new(), "nothing was changed");
        holds.note(&[OSD]).unwrap();
        holds.note(&[OSD, OsdId(4)]).unwrap();
        holds.note(&[OsdId(4)]).unwrap();
        assert_eq!(holds.noted().unwrap(), [OSD, OsdId(4)]);
        assert_eq!(Holds::new(fake.ceph, "host-1").noted().unwrap(), []);
        fake.change(&["stop", "4"]);
        fake.log();
        Holds::new(fake.ceph, "host-0").release().unwrap();
        let log = fake.log();
        let unset: Vec<_> = log.iter().filter(|line| line.contains("config unset")).collect();
        assert!(unset.len() == 5 && unset.iter().all(|line| line.contains("tell osd.3")), "{log:?}");
        assert_eq!(holds.noted().unwrap(), []);
    }

    #[test]
    fn a_release_that_fails_is_not_forgotten() {
        let fake = Fake::new();
        let holds = Holds::new(fake.ceph, "host-0");
        holds.note(&[OSD]).unwrap();
        fake.write("unset-fails", "");
        holds.release().unwrap_err();
        assert_eq!(holds.noted().unwrap(), [OSD]);
        fake.remove("unset-fails");
        holds.release().unwrap();
        assert_eq!(holds.noted().unwrap(), []);
    }
}
