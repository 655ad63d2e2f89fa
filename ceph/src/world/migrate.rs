//! Moves objects of RGW into a cold storage class by [`BucketRules`]: sets lifecycle configurations, and copies.
//!
//! It stores no state: a moved object has the cold class, and a listing shows that. A run that was stopped or killed
//! resumes when it is started again. Copies are paced, and stop while a placement group is not active+clean.
//!
//! RGW answers success to a write or a delete that lost a race against a move, by RGW or by a copy ([`copy`]). So
//! objects move only in buckets that the operator declares as written once, and the first change noticed during a copy
//! ends the run.
//!
//! [`copy`]: crate::lifecycle::copy

use crate::agent::stamp;
use crate::cluster::Cluster;
use crate::dumps::{self, DumpError};
use crate::lifecycle::copy::Seen;
use crate::lifecycle::{BucketRules, RulePlan, Way, is_own_rule, window};
use crate::plan::{Options, PoolRole, plan};
use crate::world::rgw::answers::Entry;
use crate::world::rgw::{Rgw, RgwError, signing};
use crate::world::tools::{self, Ceph, CephError};
use disk::{Clock, TokioClock, clock};
use engine::thermometer::{Facts, Thermometer};
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, InvalidHeaderValue};
use model::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two looks at the cluster while objects are copied; a fifth of it while the run waits for a window.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The reason for leaving objects that are due in other buckets.
const NOT_WRITE_ONCE: &str = "its bucket is not named by --write-once: RGW can lose what is overwritten or deleted \
                              while it moves, and answer success";

/// Reasons why a migration stopped early. It resumes when it is started again.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The cluster cannot be queried.
    #[error(transparent)]
    Ceph(#[from] CephError),
    /// RGW cannot be reached, or refused.
    #[error(transparent)]
    Rgw(#[from] RgwError),
    /// A dump cannot be read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The storage class cannot be the value of a header.
    #[error("`{0}` is no name of a storage class")]
    Class(String, #[source] InvalidHeaderValue),
    /// Some placement groups are not clean.
    #[error("{0} placement groups are not active+clean; asked again when they are, it goes on")]
    NotClean(usize),
    /// Objects are overwritten or deleted in a bucket that was declared as written once.
    #[error(
        "s3://{bucket}/{key} changed while it was copied, so that {bucket} is not written once: RGW can lose such a \
         change and answer success. Leave {bucket} out of --write-once; the lifecycle rules that Larder gave it are \
         then removed"
    )]
    Changed {
        /// Its bucket.
        bucket: String,
        /// Its key.
        key: String,
    },
    /// RGW's date of an object is in an unknown form.
    #[error("{key} was written at `{moment}`, which is no moment")]
    Moment {
        /// The object.
        key: String,
        /// RGW's date.
        moment: String,
    },
}

/// A migration: the objects to move, and the way to do it.
pub struct Migration {
    /// The cluster.
    pub ceph: Ceph,
    /// Its gateway, as a user who owns the buckets.
    pub rgw: Rgw,
    /// The rules.
    pub thermometer: Thermometer,
    /// The storage class.
    pub class: String,
    /// The device class of cold OSDs.
    pub cold_class: String,
    /// Only these buckets; all of the user if it is empty.
    pub buckets: Vec<String>,
    /// Buckets whose objects are neither overwritten nor deleted while they move; nothing moves in others.
    pub write_once: Vec<String>,
    /// Maximum number of copies a second.
    pub copies_per_s: u32,
    /// True if it is done; false if it is only reported.
    pub is_applied: bool,
    /// If set, objects are copied only while the drives turn for deep scrubs anyway, and for this long after.
    pub window: Option<Duration>,
}

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Total {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// The result of a migration, or the expected result.
#[derive(Debug, Serialize)]
pub struct MigrationReport {
    /// True if it was done.
    pub is_applied: bool,
    /// The storage class.
    pub class: String,
    /// The buckets.
    pub buckets: Vec<BucketReport>,
    /// Buckets that rules name and that cannot be migrated at all, and the reasons.
    pub refused: BTreeMap<String, String>,
}

/// The state of a bucket's lifecycle configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    /// No rule needs one.
    NotNeeded,
    /// It has a configuration that is not Larder's.
    Foreign,
    /// It would be set.
    Wanted,
    /// It was set.
    Set,
    /// Larder's configuration was no longer needed, and is removed.
    Removed,
}

/// One bucket.
#[derive(Debug, Serialize)]
pub struct BucketReport {
    /// Its name.
    pub bucket: String,
    /// The pool of its cold class.
    pub pool: String,
    /// The plan for each rule.
    pub rules: Vec<RulePlan>,
    /// Its lifecycle configuration.
    pub lifecycle: LifecycleState,
    /// Objects that have the class.
    pub cold: Total,
    /// Objects that RGW will move, and that are due now. Objects that rules select by tags are not counted.
    pub by_lifecycle: Total,
    /// Objects that are due to be copied.
    pub by_copy: Total,
    /// The part of these that was copied.
    pub copied: Total,
    /// Objects that no rule calls cold yet.
    pub hot: Total,
    /// Objects that are due and left alone, by reason.
    pub left: BTreeMap<String, Total>,
}

/// The output of `radosgw-admin zone get`.
#[derive(Deserialize)]
struct Zone {
    placement_pools: Vec<Placement>,
}

#[derive(Deserialize)]
struct Placement {
    key: String,
    val: PlacementPools,
}

#[derive(Deserialize)]
struct PlacementPools {
    storage_classes: BTreeMap<String, StorageClass>,
}

#[derive(Deserialize)]
struct StorageClass {
    data_pool: Option<String>,
}

/// The output of `radosgw-admin bucket stats`.
#[derive(Deserialize)]
struct BucketStats {
    placement_rule: String,
}

/// The outcome for one object.
enum Copied {
    Done,
    Left(String),
    Hot,
    Changed,
}

/// The state of one bucket during a run.
struct OneBucket<'a> {
    rules: &'a BucketRules,
    /// The reason why none of its objects move, if any.
    obstacle: Option<String>,
    report: BucketReport,
    user: &'a str,
    copies: u64,
    looked_at: Option<Time>,
    clock: TokioClock,
}

impl Migration {
    /// Migrates, or reports what a migration would do.
    pub async fn run(&mut self) -> Result<MigrationReport, MigrateError> {
        let cluster = self.ceph.cluster()?;
        if self.is_applied && !cluster.is_clean() {
            return Err(MigrateError::NotClean(cluster.unclean_count()));
        }
        let zone: Zone = admin(self.ceph, &["zone", "get"])?;
        let listed = self.rgw.buckets().await?;
        let owned: Vec<String> = listed.buckets.bucket.into_iter().map(|bucket| bucket.name).collect();
        let (class, is_applied) = (self.class.clone(), self.is_applied);
        let mut report = MigrationReport { is_applied, class, buckets: Vec::new(), refused: BTreeMap::new() };
        for bucket in self.named(&owned) {
            match self.pool(&cluster, &zone, &owned, &bucket)? {
                Err(reason) => drop(report.refused.insert(bucket, reason)),
                Ok(pool) => report.buckets.push(self.bucket(bucket, pool, &listed.owner.id).await?),
            }
        }
        Ok(report)
    }

    /// The buckets to migrate: all of the user to which a rule can apply, and those that rules name.
    fn named(&self, owned: &[String]) -> Vec<String> {
        let by_rules = self.thermometer.rules.iter().filter_map(|rule| rule.bucket.clone());
        let is_meant = |name: &String| self.buckets.is_empty() || self.buckets.contains(name);
        let mut all: Vec<String> = owned.iter().cloned().chain(by_rules).filter(is_meant).collect();
        all.extend(self.buckets.iter().cloned());
        all.sort();
        all.dedup();
        let rules = &self.thermometer.rules;
        let matters = |name: &String| rules.iter().any(|rule| rule.bucket.as_ref().is_none_or(|named| named == name));
        all.into_iter().filter(matters).collect()
    }

    /// The pool of `bucket`'s cold class, or the reason why the bucket cannot be migrated.
    fn pool(
        &self,
        cluster: &Cluster,
        zone: &Zone,
        owned: &[String],
        bucket: &str,
    ) -> Result<Result<String, String>, MigrateError> {
        if !owned.iter().any(|name| name == bucket) {
            return Ok(Err(match cluster.pool(bucket) {
                Some(_) => {
                    "it is a pool, not a bucket: RADOS moves no object between pools, changing a pool's name under \
                            clients breaks them, and its redirects are unsafe; give the whole pool the rule \
                            (`larder ceph convert pool/NAME`)"
                        .to_owned()
                }
                None => "the user has no such bucket".to_owned(),
            }));
        }
        let stats: BucketStats = admin(self.ceph, &["bucket", "stats", "--bucket", bucket])?;
        let placement = stats.placement_rule.split('/').next().unwrap_or_default();
        let placed = zone.placement_pools.iter().find(|known| known.key == placement);
        let class = placed.and_then(|placed| placed.val.storage_classes.get(&self.class));
        let Some(pool) = class.and_then(|class| class.data_pool.clone()) else {
            return Ok(Err(format!(
                "placement {placement} has no storage class {} with a pool of its own",
                self.class
            )));
        };
        let options = Options { pools: vec![pool.clone()], cold_class: self.cold_class.clone(), ..Options::default() };
        let plan = plan(cluster, &options);
        let is_ready = |role: PoolRole, rule: &Option<String>| role == PoolRole::HotPrimary && rule.is_none();
        Ok(match plan.pool(&pool) {
            Some(known) if is_ready(known.role, &known.new_rule) => Ok(pool),
            _ => Err(format!(
                "pool {pool} of class {} has no hot-primary rule, so that every read would wake drives \
                 (`larder ceph convert pool/{pool} --pool {pool}`)",
                self.class
            )),
        })
    }

    async fn bucket(&mut self, bucket: String, pool: String, user: &str) -> Result<BucketReport, MigrateError> {
        let ids = self.rgw.lifecycle(&bucket).await?;
        let is_taken = ids.iter().any(|id| !is_own_rule(id));
        let rules = BucketRules::of(&self.thermometer, &bucket, is_taken);
        let is_write_once = self.write_once.contains(&bucket);
        let wanted = rules.lifecycle(&self.class).filter(|_| is_write_once);
        let lifecycle = self.set_lifecycle(&bucket, wanted, &ids, is_taken).await?;
        let report = BucketReport {
            bucket,
            pool,
            rules: rules.plans.clone(),
            lifecycle,
            cold: Total::default(),
            by_lifecycle: Total::default(),
            by_copy: Total::default(),
            copied: Total::default(),
            hot: Total::default(),
            left: BTreeMap::new(),
        };
        let clock = TokioClock::starting_at(Time::from_nanos(clock::since_epoch().as_nanos() as u64), 1);
        let obstacle = (!is_write_once).then(|| NOT_WRITE_ONCE.to_owned());
        let mut one = OneBucket { rules: &rules, obstacle, report, user, copies: 0, looked_at: None, clock };
        let is_versioned = rules.copies() && self.rgw.is_versioned(&one.report.bucket).await?;
        let mut after = String::new();
        loop {
            let (entries, is_truncated) = self.rgw.list(&one.report.bucket, &after).await?;
            for entry in &entries {
                self.object(&mut one, entry, is_versioned).await?;
            }
            match entries.last().filter(|_| is_truncated) {
                Some(last) => after.clone_from(&last.key),
                None => return Ok(one.report),
            }
        }
    }

    async fn set_lifecycle(
        &mut self,
        bucket: &str,
        wanted: Option<String>,
        ids: &[String],
        is_taken: bool,
    ) -> Result<LifecycleState, MigrateError> {
        if is_taken {
            return Ok(LifecycleState::Foreign);
        }
        if wanted.is_none() && ids.is_empty() {
            return Ok(LifecycleState::NotNeeded);
        }
        let state = if wanted.is_some() { LifecycleState::Set } else { LifecycleState::Removed };
        if !self.is_applied {
            return Ok(if wanted.is_some() { LifecycleState::Wanted } else { LifecycleState::NotNeeded });
        }
        self.rgw.set_lifecycle(bucket, wanted).await?;
        Ok(state)
    }

    async fn object(&mut self, one: &mut OneBucket<'_>, entry: &Entry, is_versioned: bool) -> Result<(), MigrateError> {
        if entry.storage_class == self.class {
            one.report.cold.add(entry.size);
            return Ok(());
        }
        let moment = || MigrateError::Moment { key: entry.key.clone(), moment: entry.last_modified.clone() };
        let written_ms = written_ms(&entry.last_modified).ok_or_else(moment)?;
        let Some(way) = one.way(&entry.key, entry.size, written_ms) else {
            one.report.hot.add(entry.size);
            return Ok(());
        };
        let by_way = if way == Way::Copy { &mut one.report.by_copy } else { &mut one.report.by_lifecycle };
        by_way.add(entry.size);
        if let Some(obstacle) = one.obstacle.clone() {
            one.report.left.entry(obstacle).or_default().add(entry.size);
            return Ok(());
        }
        if way != Way::Copy {
            return Ok(());
        }
        let copied = match (is_versioned, self.is_applied) {
            (true, _) => Copied::Left("its bucket keeps versions, of which a copy makes one more".to_owned()),
            (false, false) => return Ok(()),
            (false, true) => self.paced(one, entry, written_ms).await?,
        };
        match copied {
            Copied::Done => one.report.copied.add(entry.size),
            Copied::Left(reason) => one.report.left.entry(reason).or_default().add(entry.size),
            Copied::Hot => one.report.hot.add(entry.size),
            Copied::Changed => {
                return Err(MigrateError::Changed { bucket: one.report.bucket.clone(), key: entry.key.clone() });
            }
        }
        Ok(())
    }

    /// Copies an object at the allowed rate.
    async fn paced(&mut self, one: &mut OneBucket<'_>, entry: &Entry, ms: u64) -> Result<Copied, MigrateError> {
        let due = |looked: Time| one.clock.now().since(looked) >= LOOK_EVERY;
        if one.looked_at.is_none_or(due) {
            self.look(one).await?;
        }
        let started = one.clock.now();
        let copied = self.copy(one, entry, ms).await?;
        one.copies += 1;
        one.clock.sleep_until(started + Duration::from_secs(1) / self.copies_per_s.max(1)).await;
        Ok(copied)
    }

    /// Looks at the cluster: an error if it is not clean. Waits for a window if copies are limited to windows.
    async fn look(&mut self, one: &mut OneBucket<'_>) -> Result<(), MigrateError> {
        let mut is_said = false;
        loop {
            let cluster = self.ceph.cluster()?;
            if !cluster.is_clean() {
                return Err(MigrateError::NotClean(cluster.unclean_count()));
            }
            let now = Time::from_nanos(clock::since_epoch().as_nanos() as u64);
            one.looked_at = Some(one.clock.now());
            let Some(span) = self.window else { return Ok(()) };
            let pgs = dumps::pgs(&self.ceph.json(&["pg", "ls-by-pool", &one.report.pool])?)?;
            if window::is_open(&pgs, now, span) {
                return Ok(());
            }
            if !is_said {
                tracing::info!(pool = one.report.pool, "waiting until every drive of the pool was deep-scrubbed");
                is_said = true;
            }
            one.clock.sleep_until(one.clock.now() + LOOK_EVERY / 5).await;
        }
    }

    /// Looks at an object again, and copies it if it still meets the conditions.
    async fn copy(&mut self, one: &OneBucket<'_>, entry: &Entry, ms: u64) -> Result<Copied, MigrateError> {
        let path = format!("/{}/{}", one.report.bucket, entry.key);
        let seen = match self.seen(&path, one.user).await {
            Ok(seen) => seen,
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                return Ok(Copied::Left("deleted meanwhile".to_owned()));
            }
            Err(error) => return left(error),
        };
        let created_ms = seen.created_ms(ms);
        if seen.class() != "STANDARD" {
            return Ok(Copied::Left("another moved it meanwhile".to_owned()));
        }
        if let Some(obstacle) = seen.obstacle() {
            return Ok(Copied::Left(obstacle.to_owned()));
        }
        if one.way(&entry.key, seen.bytes, created_ms) != Some(Way::Copy) {
            return Ok(Copied::Hot);
        }
        let header = |text: &str| HeaderValue::from_str(text).map_err(|error| MigrateError::Class(text.into(), error));
        let class = header(&self.class)?;
        let request = seen.request(&header(&signing::path(&path))?, &class, created_ms);
        match self.copied(&path, request).await {
            Ok(headers) if headers.get("x-amz-storage-class") == Some(&class) => Ok(Copied::Done),
            Ok(_) => Ok(Copied::Changed),
            Err(error) => match error.status() {
                Some(StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND) => Ok(Copied::Changed),
                _ => left(error),
            },
        }
    }

    async fn seen(&mut self, path: &str, user: &str) -> Result<Seen, RgwError> {
        let is_private = self.rgw.acl(path).await?.is_private_of(user);
        let headers = self.rgw.head(path).await?;
        let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(Seen { bytes: length.unwrap_or(u64::MAX), headers, is_private })
    }

    /// Copies an object, and returns its headers after the copy.
    async fn copied(&mut self, path: &str, request: HeaderMap) -> Result<HeaderMap, RgwError> {
        self.rgw.copy(path, request).await?;
        self.rgw.head(path).await
    }
}

/// Leaves an object alone if RGW refuses to read or copy it. An error, which ends the run, if RGW itself is in trouble.
fn left(error: RgwError) -> Result<Copied, MigrateError> {
    match error.status() {
        Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR) | None => Err(error.into()),
        Some(status) => Ok(Copied::Left(format!("RGW answers {status}"))),
    }
}

impl OneBucket<'_> {
    /// The way to move an object without tags, if it is due.
    fn way(&self, key: &str, bytes: u64, created_ms: u64) -> Option<Way> {
        let now_ms = clock::since_epoch().as_millis() as u64;
        let (bucket, tags) = (&*self.report.bucket, &[][..]);
        let facts = Facts { bucket, key, tags, bytes, created_ms, read_ms: None, reads: 0, is_read_through: false };
        self.rules.due(&facts, now_ms).map(|plan| plan.way)
    }
}

/// The output of a `radosgw-admin` command.
fn admin<T: serde::de::DeserializeOwned>(ceph: Ceph, arguments: &[&str]) -> Result<T, MigrateError> {
    let argv = tools::words(&[&["radosgw-admin"], arguments].concat());
    let text = ceph.program(&argv, ceph.timeout)?;
    Ok(dumps::decode(&argv.join(" "), &text)?)
}

/// The milliseconds of the Unix epoch in `2026-11-25T23:05:32.247Z`.
fn written_ms(moment: &str) -> Option<u64> {
    let whole = stamp::parse(moment)?.as_nanos() / 1_000_000;
    // Without a fraction it is the end of the second, so nothing moves too early.
    let fraction = moment.split_once('.').and_then(|(_, rest)| rest.get(..3)?.parse::<u64>().ok());
    Some(whole + fraction.unwrap_or(999))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::world::rgw::answers::{Acl, Failure, Lifecycle, Listing, decode};

    #[test]
    fn moments_of_a_listing_are_read() {
        assert_eq!(written_ms("2024-02-29T12:00:00.247Z"), Some(1_709_208_000_247));
        assert_eq!(written_ms("2024-02-29T12:00:00Z"), Some(1_709_208_000_999));
        assert_eq!(written_ms("yesterday"), None);
    }

    #[test]
    fn answers_of_16_2_are_read() {
        let listing: Listing = decode(
            b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
              <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bbb</Name><Prefix></Prefix>\
              <MaxKeys>1</MaxKeys><IsTruncated>true</IsTruncated><Contents><Key>a</Key>\
              <LastModified>2026-11-25T23:05:32.247Z</LastModified><ETag>&quot;e1&quot;</ETag><Size>60000</Size>\
              <StorageClass>COLD</StorageClass><Type>Normal</Type></Contents><KeyCount>1</KeyCount></ListBucketResult>",
        )
        .unwrap();
        let entry = &listing.contents[0];
        assert_eq!((&*entry.key, entry.size, &*entry.storage_class), ("a", 60_000, "COLD"));
        let acl: Acl = decode(
            b"<AccessControlPolicy><Owner><ID>larder</ID><DisplayName>x</DisplayName></Owner><AccessControlList><Grant>\
              <Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">\
              <ID>larder</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList>\
              </AccessControlPolicy>",
        )
        .unwrap();
        assert!(acl.is_private_of("larder") && !acl.is_private_of("other"));
        let lifecycle: Lifecycle = decode(
            b"<LifecycleConfiguration><Rule><ID>mine</ID><Prefix>log/</Prefix><Status>Enabled</Status></Rule><Rule>\
              <ID>larder-1</ID></Rule></LifecycleConfiguration>",
        )
        .unwrap();
        assert_eq!(lifecycle.rule.iter().map(|rule| &*rule.id).collect::<Vec<_>>(), ["mine", "larder-1"]);
        let failure: Failure = decode(b"<Error><Code>SlowDown</Code><RequestId>1</RequestId></Error>").unwrap();
        assert_eq!(failure.code, "SlowDown");
        let copied = b"<CopyObjectResult><LastModified>x</LastModified><ETag>e</ETag></CopyObjectResult>";
        assert_eq!(decode::<Failure>(copied).unwrap().code, "");
    }
}
