//! Reads Ceph's JSON output. Unused fields are ignored, so releases may add theirs.
//!
//! Tested with 16.2 (Pacific).

use crate::agent::stamp;
use crate::cluster::{Cluster, Osd, OsdId, Pg, Pool, REWEIGHT_WHOLE, Rule, Take};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap};

/// The dumps that describe a cluster: the name of the file in a directory of dumps, and the arguments of `ceph`.
pub const DUMPS: [(&str, &[&str]); 5] = [
    ("osd-dump", &["osd", "dump"]),
    ("osd-crush-dump", &["osd", "crush", "dump"]),
    ("osd-df", &["osd", "df"]),
    ("osd-metadata", &["osd", "metadata"]),
    ("pg-dump", &["pg", "dump"]),
];

/// A dump that is not Ceph's output.
#[derive(Debug, thiserror::Error)]
#[error("the dump {dump} cannot be read ({reason}); make it again with `ceph {command} --format json`")]
pub struct DumpError {
    dump: String,
    command: String,
    reason: String,
}

/// Decodes one dump.
pub fn decode<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, DumpError> {
    let command = DUMPS.iter().find(|(dump, _)| *dump == name).map_or(name.to_owned(), |(_, argv)| argv.join(" "));
    serde_json::from_str(text).map_err(|error| DumpError { dump: name.to_owned(), command, reason: error.to_string() })
}

#[derive(Deserialize)]
struct OsdDump {
    fsid: String,
    #[serde(default)]
    crush_version: u64,
    #[serde(default = "default_nearfull")]
    nearfull_ratio: f64,
    pools: Vec<PoolEntry>,
    osds: Vec<OsdEntry>,
}

fn default_nearfull() -> f64 {
    0.85
}

#[derive(Deserialize)]
struct PoolEntry {
    pool: u64,
    pool_name: String,
    #[serde(rename = "type")]
    kind: u32,
    size: u32,
    pg_num: u32,
    crush_rule: u32,
    #[serde(default)]
    tiers: Vec<u64>,
    #[serde(default = "no_tier")]
    tier_of: i64,
    #[serde(default)]
    flags_names: String,
    #[serde(default)]
    create_time: String,
    #[serde(default)]
    application_metadata: BTreeMap<String, serde_json::Value>,
}

fn no_tier() -> i64 {
    -1
}

#[derive(Deserialize)]
struct OsdEntry {
    osd: u32,
    uuid: String,
    up: u32,
    #[serde(rename = "in")]
    is_in: u32,
    primary_affinity: f64,
    #[serde(default = "whole")]
    weight: f64,
    state: Vec<String>,
}

fn whole() -> f64 {
    1.0
}

#[derive(Deserialize)]
struct CrushDump {
    devices: Vec<CrushDevice>,
    buckets: Vec<CrushBucket>,
    rules: Vec<CrushRule>,
}

#[derive(Deserialize)]
struct CrushDevice {
    id: i64,
    #[serde(default)]
    class: Option<String>,
}

#[derive(Deserialize)]
struct CrushBucket {
    id: i64,
    name: String,
    type_name: String,
    items: Vec<CrushItem>,
}

#[derive(Deserialize)]
struct CrushItem {
    id: i64,
    weight: u64,
}

#[derive(Deserialize)]
struct CrushRule {
    rule_id: u32,
    rule_name: String,
    steps: Vec<CrushStep>,
}

#[derive(Deserialize)]
struct CrushStep {
    op: String,
    #[serde(default)]
    item_name: String,
    #[serde(default)]
    num: i64,
    #[serde(default, rename = "type")]
    domain: String,
}

#[derive(Deserialize)]
struct OsdDf {
    nodes: Vec<DfEntry>,
}

#[derive(Deserialize)]
struct DfEntry {
    id: u32,
    kb: u64,
    kb_used: u64,
}

/// For a destroyed OSD, only the number is left, or the last report of its daemon.
#[derive(Default, Deserialize)]
struct Metadata {
    id: u32,
    #[serde(default)]
    osd_objectstore: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    devices: String,
    #[serde(default)]
    bluestore_bdev_devices: String,
    #[serde(default)]
    bluestore_bdev_access_mode: String,
    #[serde(default, deserialize_with = "flag")]
    bluefs_dedicated_db: Option<bool>,
    #[serde(default, deserialize_with = "flag")]
    bluefs_db_rotational: Option<bool>,
    #[serde(default)]
    bluefs_db_size: String,
}

/// Ceph writes `"1"` or `"0"`.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(Some(String::deserialize(deserializer)? == "1"))
}

#[derive(Deserialize)]
struct PgDump {
    pg_map: PgMap,
}

#[derive(Deserialize)]
struct PgMap {
    #[serde(default)]
    stamp: String,
    pg_stats: Vec<PgEntry>,
}

#[derive(Deserialize)]
struct PgEntry {
    pgid: String,
    state: String,
    acting: Vec<i64>,
    #[serde(default)]
    last_deep_scrub_stamp: String,
    stat_sum: PgSum,
}

#[derive(Deserialize)]
struct PgSum {
    num_bytes: u64,
    #[serde(default)]
    num_write: u64,
}

/// The output of `ceph pg ls-by-osd`.
#[derive(Deserialize)]
struct PgList {
    pg_stats: Vec<PgEntry>,
}

/// Reads a cluster; `text` gives the dump of each name of [`DUMPS`].
pub fn cluster<E: From<DumpError>>(mut text: impl FnMut(&str) -> Result<String, E>) -> Result<Cluster, E> {
    let mut dump = |name: &str| text(name);
    let osds: OsdDump = decode("osd-dump", &dump("osd-dump")?)?;
    let crush: CrushDump = decode("osd-crush-dump", &dump("osd-crush-dump")?)?;
    let df: OsdDf = decode("osd-df", &dump("osd-df")?)?;
    let metadata: Vec<Metadata> = decode("osd-metadata", &dump("osd-metadata")?)?;
    let pgs: PgDump = decode("pg-dump", &dump("pg-dump")?)?;
    Ok(assembled(osds, &crush, &df, metadata, pgs))
}

/// Reads the placement groups of `ceph pg ls-by-osd osd.N`.
pub fn pgs(text: &str) -> Result<Vec<Pg>, DumpError> {
    let list: PgList = decode("pg ls-by-osd", text)?;
    Ok(list.pg_stats.into_iter().filter_map(pg).collect())
}

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn pg(entry: PgEntry) -> Option<Pg> {
    let pool = entry.pgid.split('.').next()?.parse().ok()?;
    // A vacant place has the largest number of all.
    let acting = entry.acting.iter().filter_map(|osd| u32::try_from(*osd).ok()).filter(|osd| *osd < i32::MAX as u32);
    Some(Pg {
        pool,
        state: entry.state,
        bytes: entry.stat_sum.num_bytes,
        writes: entry.stat_sum.num_write,
        acting: acting.map(OsdId).collect(),
        deep_scrubbed: entry.last_deep_scrub_stamp,
        name: entry.pgid,
    })
}

fn assembled(dump: OsdDump, crush: &CrushDump, df: &OsdDf, metadata: Vec<Metadata>, pgs: PgDump) -> Cluster {
    let tree = Tree::new(crush);
    let mut metadata: HashMap<u32, Metadata> = metadata.into_iter().map(|entry| (entry.id, entry)).collect();
    let osds = dump.osds.into_iter().map(|entry| {
        let id = entry.osd;
        (OsdId(id), tree.osd(entry, df.nodes.iter().find(|node| node.id == id), metadata.remove(&id)))
    });
    let permille = |share: f64| (share * 1000.0).round() as u64;
    Cluster {
        fsid: dump.fsid,
        crush_version: dump.crush_version,
        nearfull_permille: permille(dump.nearfull_ratio),
        seen_at: stamp::parse(&pgs.pg_map.stamp),
        osds: osds.collect(),
        pools: dump.pools.into_iter().map(|entry| (entry.pool, pool(entry))).collect(),
        rules: crush.rules.iter().map(|entry| (entry.rule_id, rule(entry))).collect(),
        pgs: pgs.pg_map.pg_stats.into_iter().filter_map(pg).collect(),
    }
}

/// Replicated pools are of type 1, erasure coded ones of type 3.
const REPLICATED: u32 = 1;

fn pool(entry: PoolEntry) -> Pool {
    Pool {
        id: entry.pool,
        is_replicated: entry.kind == REPLICATED,
        size: entry.size,
        pg_count: entry.pg_num,
        rule: entry.crush_rule,
        is_tiered: !entry.tiers.is_empty() || entry.tier_of >= 0,
        applications: entry.application_metadata.into_keys().collect(),
        flags: entry.flags_names.split(',').map(str::to_owned).collect(),
        created: stamp::parse(&entry.create_time),
        name: entry.pool_name,
    }
}

fn rule(entry: &CrushRule) -> Rule {
    Rule { id: entry.rule_id, name: entry.rule_name.clone(), takes: takes(&entry.steps) }
}

/// The rule as a list of takes; `None` if it has other steps.
fn takes(steps: &[CrushStep]) -> Option<Vec<Take>> {
    let steps: Vec<&CrushStep> = steps.iter().filter(|step| !step.op.starts_with("set_")).collect();
    let (triples, rest) = steps.as_chunks::<3>();
    if triples.is_empty() || !rest.is_empty() {
        return None;
    }
    triples.iter().map(take).collect()
}

fn take([take, choose, emit]: &[&CrushStep; 3]) -> Option<Take> {
    let is_one_choice = choose.op.starts_with("chooseleaf_") || (choose.op.starts_with("choose_"));
    if take.op != "take" || !is_one_choice || emit.op != "emit" {
        return None;
    }
    let (root, class) = match take.item_name.split_once('~') {
        Some((root, class)) => (root, Some(class.to_owned())),
        None => (take.item_name.as_str(), None),
    };
    Some(Take { root: root.to_owned(), class, count: choose.num, domain: choose.domain.clone() })
}

/// The CRUSH hierarchy, without the shadows that Ceph creates for device classes.
struct Tree<'a> {
    parents: HashMap<i64, &'a CrushBucket>,
    weights: HashMap<i64, u64>,
    classes: HashMap<i64, &'a str>,
}

/// Maximum number of buckets above one another; a hierarchy has a dozen types.
const DEPTH_MAX: usize = 64;

impl<'a> Tree<'a> {
    fn new(crush: &'a CrushDump) -> Self {
        let real = || crush.buckets.iter().filter(|bucket| !bucket.name.contains('~'));
        let items = || real().flat_map(|bucket| bucket.items.iter().map(move |item| (bucket, item)));
        Self {
            parents: items().map(|(bucket, item)| (item.id, bucket)).collect(),
            weights: items().map(|(_, item)| (item.id, item.weight)).collect(),
            classes: crush.devices.iter().filter_map(|device| Some((device.id, device.class.as_deref()?))).collect(),
        }
    }

    fn places(&self, osd: u32) -> Vec<(String, String)> {
        let above = std::iter::successors(self.parents.get(&i64::from(osd)), |bucket| self.parents.get(&bucket.id));
        above.take(DEPTH_MAX).map(|bucket| (bucket.type_name.clone(), bucket.name.clone())).collect()
    }

    fn osd(&self, entry: OsdEntry, df: Option<&DfEntry>, metadata: Option<Metadata>) -> Osd {
        let metadata = metadata.unwrap_or_default();
        let has_db = metadata.bluefs_dedicated_db == Some(true);
        let is = |word: &str| entry.state.iter().any(|state| state == word);
        Osd {
            id: OsdId(entry.osd),
            uuid: entry.uuid,
            is_up: entry.up == 1,
            is_in: entry.is_in == 1,
            is_destroyed: is("destroyed"),
            is_new: is("new"),
            reweight: (entry.weight * f64::from(REWEIGHT_WHOLE)).round() as u32,
            is_encrypted: false,
            class: self.classes.get(&i64::from(entry.osd)).map(|&class| class.to_owned()),
            affinity_permille: (entry.primary_affinity * 1000.0).round() as u32,
            weight: self.weights.get(&i64::from(entry.osd)).copied().unwrap_or(0),
            capacity_bytes: df.map_or(0, |df| df.kb.saturating_mul(1024)),
            used_bytes: df.map_or(0, |df| df.kb_used.saturating_mul(1024)),
            has_db,
            db_bytes: metadata.bluefs_db_size.parse().ok().filter(|_| has_db).unwrap_or(0),
            db_spins: metadata.bluefs_db_rotational.filter(|_| has_db),
            objectstore: metadata.osd_objectstore,
            hostname: metadata.hostname,
            devices: names(&metadata.devices),
            data_devices: names(&metadata.bluestore_bdev_devices),
            is_in_file: metadata.bluestore_bdev_access_mode == "file",
            places: self.places(entry.osd),
        }
    }
}
