//! Chooses the hot class, and the OSDs that go cold.

use super::types::{Notes, Options, OsdPlan, OsdRole, PoolPlan, PoolRole, Room};
use crate::cluster::{Cluster, Osd, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// The outcome.
pub struct Choice {
    pub hot_class: String,
    cold_class: String,
    /// OSDs that have first copies.
    pub hot: BTreeSet<OsdId>,
    /// OSDs that are cold, or go cold.
    pub cold: BTreeSet<OsdId>,
    /// OSDs that could not go cold, and the reasons.
    refused: BTreeMap<OsdId, &'static str>,
    pub hot_room: Room,
    pub cold_room: Room,
}

/// Speed rank of a device class; lower is faster.
fn rank(class: Option<&str>) -> u32 {
    match class {
        Some("nvme") => 0,
        Some("ssd") => 1,
        Some("hdd") | None => 3,
        Some(_) => 2,
    }
}

/// The cluster below one root, and the other inputs of the choice.
struct Ground<'a> {
    cluster: &'a Cluster,
    options: &'a Options,
    pools: &'a [PoolPlan],
    root: &'a str,
    domain: &'a str,
}

pub fn choose(
    cluster: &Cluster,
    options: &Options,
    pools: &[PoolPlan],
    (root, domain): (&str, &str),
    notes: &mut Notes,
) -> Choice {
    let ground = Ground { cluster, options, pools, root, domain };
    let candidates: Vec<Choice> = ground.hot_classes().iter().map(|class| ground.with_hot(class)).collect();
    let fits =
        |choice: &Choice| !choice.cold.is_empty() && choice.hot_room.fits_after_loss() && choice.cold_room.fits();
    let best = candidates.iter().position(fits);
    // A choice that fits without a spare domain is still better than one that does not fit.
    let second = || candidates.iter().position(|choice| !choice.cold.is_empty() && choice.hot_room.fits());
    let chosen = best.or_else(second).unwrap_or(0);
    let choice = candidates.into_iter().nth(chosen).unwrap_or_else(|| ground.with_hot("ssd"));
    ground.judge(&choice, notes);
    choice
}

impl Ground<'_> {
    fn osds(&self) -> impl Iterator<Item = &Osd> {
        self.cluster.osds.values().filter(|osd| osd.is_below(self.root))
    }

    /// The device classes that may be hot, fastest first.
    fn hot_classes(&self) -> Vec<String> {
        if let Some(class) = &self.options.hot_class {
            return vec![class.clone()];
        }
        let classes: BTreeSet<(u32, &str)> = (self.osds().filter_map(|osd| osd.class.as_deref()))
            .filter(|class| *class != self.options.cold_class)
            .map(|class| (rank(Some(class)), class))
            .collect();
        classes.into_iter().map(|(_, class)| class.to_owned()).collect()
    }

    /// The choice with this hot class.
    fn with_hot(&self, hot_class: &str) -> Choice {
        let is_cold = |osd: &&Osd| osd.class.as_deref() == Some(&self.options.cold_class);
        let mut choice = Choice {
            hot_class: hot_class.to_owned(),
            cold_class: self.options.cold_class.clone(),
            hot: self.osds().filter(|osd| osd.class.as_deref() == Some(hot_class)).map(|osd| osd.id).collect(),
            cold: self.osds().filter(is_cold).map(|osd| osd.id).collect(),
            refused: BTreeMap::new(),
            hot_room: Room::default(),
            cold_room: Room::default(),
        };
        let mut candidates = Vec::new();
        for osd in self.osds().filter(|osd| !is_cold(osd)) {
            match refusal(osd) {
                Some(reason) => drop(choice.refused.insert(osd.id, reason)),
                None => candidates.push(osd),
            }
        }
        let slower: Vec<&Osd> =
            (candidates.iter().copied()).filter(|osd| rank(osd.class.as_deref()) > rank(Some(hot_class))).collect();
        if !slower.is_empty() {
            choice.cold.extend(slower.iter().map(|osd| osd.id));
        } else if rank(Some(hot_class)) >= rank(Some("hdd")) {
            // Flash has nothing to gain from sleep.
            self.split(&mut choice, &candidates);
        }
        choice.hot_room = self.room(&choice.hot, self.hot_need(&choice.hot));
        choice.cold_room = self.room(&choice.cold, self.cold_need());
        choice
    }

    /// In a cluster of one class: one OSD after the other goes cold, domain by domain, while those that stay hot have
    /// enough room.
    fn split(&self, choice: &mut Choice, candidates: &[&Osd]) {
        let mut by_domain: BTreeMap<&str, Vec<OsdId>> = BTreeMap::new();
        for osd in candidates.iter().filter(|osd| choice.hot.contains(&osd.id)) {
            by_domain.entry(osd.place(self.domain).unwrap_or_default()).or_default().push(osd.id);
        }
        while by_domain.values().any(|osds| !osds.is_empty()) {
            for osds in by_domain.values_mut() {
                let Some(osd) = osds.pop() else { continue };
                choice.hot.remove(&osd);
                if self.room(&choice.hot, self.hot_need(&choice.hot)).fits_after_loss() {
                    choice.cold.insert(osd);
                } else {
                    choice.hot.insert(osd);
                }
            }
        }
    }

    /// The room of `osds`, and `need_bytes`.
    fn room(&self, osds: &BTreeSet<OsdId>, need_bytes: u64) -> Room {
        let mut domains: BTreeMap<&str, u64> = BTreeMap::new();
        for osd in osds.iter().filter_map(|osd| self.cluster.osds.get(osd)) {
            *domains.entry(osd.place(self.domain).unwrap_or_default()).or_default() += osd.capacity_bytes;
        }
        let usable = |bytes: u64| bytes / 1000 * self.cluster.nearfull_permille;
        let all: u64 = domains.values().sum();
        let largest = domains.values().max().copied().unwrap_or(0);
        Room {
            osds: osds.len(),
            domains: domains.len(),
            room_bytes: usable(all),
            room_after_loss_bytes: usable(all - largest),
            need_bytes,
        }
    }

    /// One copy of each hot-primary pool, all copies of hot-only pools, and the copies of other pools on `hot`.
    fn hot_need(&self, hot: &BTreeSet<OsdId>) -> u64 {
        let pool = |pool: &PoolPlan| match pool.role {
            PoolRole::HotPrimary => pool.stored_bytes,
            PoolRole::HotOnly => pool.stored_bytes * u64::from(pool.size),
            PoolRole::Untouched | PoolRole::InTheWay => self.copies_on(&pool.pool, hot),
        };
        self.pools.iter().map(pool).sum()
    }

    fn copies_on(&self, pool: &str, osds: &BTreeSet<OsdId>) -> u64 {
        let Some(pool) = self.cluster.pool(pool) else { return 0 };
        let pgs = self.cluster.pgs.iter().filter(|pg| pg.pool == pool.id);
        // Shards of an erasure code are smaller than a copy; counting a copy for each is on the safe side.
        pgs.map(|pg| pg.bytes * pg.acting.iter().filter(|osd| osds.contains(osd)).count() as u64).sum()
    }

    fn cold_need(&self) -> u64 {
        let cold = self.pools.iter().filter(|pool| pool.role == PoolRole::HotPrimary);
        cold.map(|pool| pool.stored_bytes * u64::from(pool.size.saturating_sub(1))).sum()
    }

    /// Notes the obstacles to the choice.
    fn judge(&self, choice: &Choice, notes: &mut Notes) {
        let Choice { hot_class, hot_room: hot, cold_room: cold, .. } = choice;
        let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        if hot.osds == 0 {
            notes.reason(format!("no OSD below {} is of device class {hot_class}", self.root));
        } else if !hot.fits() {
            notes.reason(format!(
                "the hot OSDs (class {hot_class}) hold {} before they are nearly full, and one copy of all data with \
                 what else must be hot is {}; add hot OSDs, or name fewer pools",
                gb(hot.room_bytes),
                gb(hot.need_bytes)
            ));
        } else if !hot.fits_after_loss() {
            notes.warning(format!(
                "when the largest {} of hot OSDs is lost, {} of room is left for {}: recovery will not end",
                self.domain,
                gb(hot.room_after_loss_bytes),
                gb(hot.need_bytes)
            ));
        }
        if cold.osds == 0 {
            notes.reason("no OSD can go cold".to_owned());
        } else if !cold.fits() {
            notes.reason(format!("the cold OSDs hold {}, and {} is needed", gb(cold.room_bytes), gb(cold.need_bytes)));
        }
        self.judge_domains(choice, notes);
    }

    fn judge_domains(&self, choice: &Choice, notes: &mut Notes) {
        let places = |osds: &BTreeSet<OsdId>| -> BTreeSet<&str> {
            osds.iter().filter_map(|osd| self.cluster.osds.get(osd)?.place(self.domain)).collect()
        };
        let (hot, cold, domain) = (places(&choice.hot), places(&choice.cold), self.domain);
        let shared = hot.intersection(&cold).count();
        for pool in self.pools.iter().filter(|pool| pool.role == PoolRole::HotPrimary) {
            let wanted = pool.size.saturating_sub(1) as usize;
            if cold.len() < wanted && !choice.cold.is_empty() {
                let (name, there) = (&pool.pool, cold.len());
                notes.reason(format!("pool {name} has {wanted} cold copies, and cold OSDs lie in {there} {domain}s"));
            }
            match (shared, pool.size) {
                (1.., ..=2) => notes.reason(format!(
                    "pool {} has two copies, and the rule may put both into one {domain}: hot and cold OSDs share \
                     {shared} of them, and CRUSH spreads the copies of one class only; make its size 3",
                    pool.pool
                )),
                (1.., _) => notes.warning(format!(
                    "hot and cold OSDs share {shared} {domain}s, and CRUSH spreads the copies of one class only: of \
                     pool {}, two of {} copies may lie in one {domain}",
                    pool.pool, pool.size
                )),
                _ => {}
            }
        }
    }
}

/// The reason why an OSD cannot go cold, if any.
fn refusal(osd: &Osd) -> Option<&'static str> {
    match osd {
        Osd { is_destroyed: true, .. } => Some("it is destroyed"),
        Osd { is_up: false, .. } => Some("it is down"),
        Osd { is_in: false, .. } => Some("it is out"),
        Osd { is_encrypted: true, .. } => Some("it is encrypted (dmcrypt), and would be made anew without"),
        Osd { objectstore, .. } if objectstore != "bluestore" => Some("it does not store by BlueStore"),
        _ => None,
    }
}

/// Bytes of `block.db` for 1000 bytes of a cold OSD, as Ceph's documentation has it for objects of RGW.
const DB_PERMILLE: u64 = 40;

/// The minimum, for objects that are large and few.
const DB_PERMILLE_MIN: u64 = 10;

/// Bytes of RocksDB's logs as Ceph configures it: four logs, each of a memtable's 256 MiB and a tenth. One of them
/// exists from the start (282 MiB, seen on 16.2).
pub const DB_LOG_BYTES: u64 = 4 * (256 << 20) / 10 * 11;

/// The recommended `block.db` for the metadata of `osd`.
pub fn db_wanted(osd: &Osd) -> u64 {
    DB_LOG_BYTES + osd.capacity_bytes / 1000 * DB_PERMILLE
}

/// True if `osd` has a `block.db` from which metadata will spill over to the cold drive.
pub fn is_db_small(osd: &Osd) -> bool {
    osd.has_db && osd.db_bytes > 0 && osd.db_bytes < DB_LOG_BYTES + osd.capacity_bytes / 1000 * DB_PERMILLE_MIN
}

impl Choice {
    /// The OSDs' parts of the plan.
    pub fn osds(&self, cluster: &Cluster) -> Vec<OsdPlan> {
        cluster.osds.values().map(|osd| self.osd(osd)).collect()
    }

    fn osd(&self, osd: &Osd) -> OsdPlan {
        let is_converted = osd.class.as_deref() == Some(&self.cold_class);
        let (role, reason) = match () {
            () if is_converted => (OsdRole::Cold, as_cold(osd)),
            () if self.cold.contains(&osd.id) => (OsdRole::GoesCold, "others hold the first copies"),
            () if self.hot.contains(&osd.id) => (OsdRole::Hot, "holds first copies"),
            () => (OsdRole::Stays, self.refused.get(&osd.id).copied().unwrap_or("its device class has no part in it")),
        };
        let db = if role == OsdRole::GoesCold { db_wanted(osd) } else { 0 };
        OsdPlan {
            osd: osd.id,
            host: osd.hostname.clone(),
            class: osd.class.clone(),
            role,
            reason: reason.to_owned(),
            used_bytes: osd.used_bytes,
            db_bytes: db,
        }
    }
}

/// The state of an OSD of the cold class, and its deviations from a complete conversion.
fn as_cold(osd: &Osd) -> &'static str {
    match (osd.has_db, osd.db_spins, osd.affinity_permille) {
        (false, ..) => "cold, but without block.db: reads of metadata wake it",
        (_, Some(true), _) => "cold, but its block.db is on a drive that spins",
        (_, _, 1..) => "cold, but with a primary affinity above 0",
        _ => "converted",
    }
}
