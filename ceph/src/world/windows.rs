//! Ownership of the deep scrubs and the health scrapes of the pools whose cold copies sleep: the agents own them while
//! they run.
//!
//! Ceph has no flag that prevents scrubs of one OSD: a placement group's primary starts them. So the flags `noscrub`
//! and `nodeep-scrub` are set on the pools, which still permits requested scrubs (tested on 16.2.15), and reading the
//! health of devices is switched off. A shallow scrub does not access a cold drive whose `block.db` has room, but wakes
//! one whose `block.db` spills over to it (both seen on the same release); the deep scrubs of the windows do its work.
//! The earlier settings are first written to the monitors' key-value store (`ceph config-key`), once for the cluster;
//! each host's agent has its own key, and the last one that ends restores everything.
//!
//! An agent that is killed, or ends while the monitors are away, leaves flags and keys. The next one, or
//! `larder ceph agent --release`, which its systemd unit runs when it ends, finds them and restores the settings; each
//! of its steps may be done twice. Taking is repeated as the cluster changes, so it covers new pools, and flags that an
//! operator has cleared.

use crate::cluster::{Cluster, OsdId, Pool};
use crate::world::tools::{Ceph, CephError};
use serde::Deserialize;

const AGENTS: &str = "larder/ceph/agent/";
const BEFORE: &str = "larder/ceph/before/";

/// The flags of pools, as Ceph names them.
const FLAGS: [&str; 2] = ["noscrub", "nodeep-scrub"];

/// The windows of one host's agent.
pub struct Windows {
    ceph: Ceph,
    host: String,
}

/// The output of `ceph config-key ls`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Keys(Vec<String>);

impl Windows {
    /// The windows of the agent on `host`.
    pub fn new(ceph: Ceph, host: &str) -> Self {
        Self { ceph, host: host.to_owned() }
    }

    fn keys(&self, below: &str) -> Result<Vec<String>, CephError> {
        let text = self.ceph.json(&["config-key", "ls"])?;
        let Keys(keys) = crate::dumps::decode("config-key ls", &text)?;
        Ok(keys.into_iter().filter_map(|key| Some(key.strip_prefix(below)?.to_owned())).collect())
    }

    /// Notes the earlier value of `name`, unless an agent did so already; must be done before anything is changed.
    fn note(&self, known: &[String], name: &str, value: &str) -> Result<(), CephError> {
        if known.iter().any(|key| key == name) {
            return Ok(());
        }
        self.ceph.run(&["config-key", "set", &format!("{BEFORE}{name}"), value]).map(drop)
    }

    /// Takes the windows of the pools that have copies on `osds`.
    pub fn take(&self, cluster: &Cluster, osds: &[OsdId]) -> Result<(), CephError> {
        let known = self.keys(BEFORE)?;
        if !self.keys(AGENTS)?.contains(&self.host) {
            self.ceph.run(&["config-key", "set", &format!("{AGENTS}{}", self.host), "1"])?;
        }
        for pool in pools_on(cluster, osds) {
            for flag in FLAGS {
                let was_set = pool.flags.iter().any(|set| set == flag);
                self.note(&known, &format!("pool/{}/{flag}", pool.id), if was_set { "1" } else { "0" })?;
                if !was_set {
                    self.ceph.run(&["osd", "pool", "set", &pool.name, flag, "1"])?;
                }
            }
        }
        let scraped = self.ceph.run(&["config", "get", "mgr", "mgr/devicehealth/enable_monitoring"])?;
        let is_scraped = scraped.trim() == "true";
        self.note(&known, "devicehealth", if is_scraped { "1" } else { "0" })?;
        if is_scraped {
            self.ceph.run(&["device", "monitoring", "off"])?;
        }
        Ok(())
    }

    /// Releases the windows, if no other host's agent has them as well. True if they were released.
    pub fn release(&self) -> Result<bool, CephError> {
        self.ceph.run(&["config-key", "rm", &format!("{AGENTS}{}", self.host)])?;
        if !self.keys(AGENTS)?.is_empty() {
            return Ok(false);
        }
        let cluster = self.ceph.cluster()?;
        for name in self.keys(BEFORE)? {
            let key = format!("{BEFORE}{name}");
            let was_set = self.ceph.run(&["config-key", "get", &key])?.trim() == "1";
            self.restore(&cluster, &name, was_set)?;
            self.ceph.run(&["config-key", "rm", &key])?;
        }
        Ok(true)
    }

    fn restore(&self, cluster: &Cluster, name: &str, was_set: bool) -> Result<(), CephError> {
        if let Some((id, flag)) = name.strip_prefix("pool/").and_then(|name| name.split_once('/')) {
            // A pool that no longer exists has no flag.
            let pool = id.parse().ok().and_then(|id: u64| cluster.pools.get(&id));
            if let Some(pool) = pool.filter(|_| !was_set && FLAGS.contains(&flag)) {
                self.ceph.run(&["osd", "pool", "set", &pool.name, flag, "0"])?;
            }
        } else if name == "devicehealth" && was_set {
            self.ceph.run(&["device", "monitoring", "on"])?;
        }
        Ok(())
    }
}

/// The pools that have copies on `osds`.
fn pools_on<'a>(cluster: &'a Cluster, osds: &[OsdId]) -> Vec<&'a Pool> {
    let has_copies = |pool: &&Pool| {
        let mut pgs = cluster.pgs.iter().filter(|pg| pg.pool == pool.id);
        pgs.any(|pg| pg.acting.iter().any(|osd| osds.contains(osd)))
    };
    cluster.pools.values().filter(has_copies).collect()
}
