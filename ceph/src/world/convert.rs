//! Carries out conversions, step by step; each step is checked before the next.

use crate::cluster::{Cluster, REWEIGHT_WHOLE};
use crate::conversion::{
    Goal, Next, OsdRecord, OsdStep, PoolRecord, PoolRule, PoolStep, has_effect, next_for_osd, next_for_pool,
};
use crate::crush_rule::{InsertError, inserted};
use crate::record::{self, Record, RecordError};
use crate::world::lock::{self, Lock};
use crate::world::tools::{Ceph, CephError, HostCommands, words};
use disk::clock;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

/// Maximum time in which a step shows its effect.
const EFFECT_MAX: Duration = Duration::from_mins(3);

/// Maximum time of a command on the host: wiping and creating an OSD.
const HOST_COMMAND_MAX: Duration = Duration::from_mins(10);

/// Reasons why a conversion stopped. It resumes when it is started again.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CephError),
    /// Its record cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The rule cannot be added.
    #[error(transparent)]
    Rule(#[from] InsertError),
    /// A file of the CRUSH map cannot be used.
    #[error("{path} cannot be used: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// With the rule, some placement groups would have too few copies.
    #[error("`crushtool --test` finds placement groups that the new rule gives too few OSDs: {0}")]
    BadMappings(String),
    /// The operator must do something first.
    #[error("{0}")]
    Refused(String),
    /// An expected change did not happen in time.
    #[error("after {waited:?} still: {reason}; start it again to go on, or revert it")]
    Waited {
        /// The time that it waited.
        waited: Duration,
        /// The obstacle.
        reason: String,
    },
    /// A step did not show its effect.
    #[error("the step {0} was done and has no effect; see the cluster's log")]
    NoEffect(String),
}

/// A progress report.
#[derive(Debug)]
pub enum Progress<'a> {
    /// This command runs.
    Run(&'a [String]),
    /// The rule is added to the decompiled map.
    Edit(&'a str),
    /// The conversion waits for this reason.
    Wait(&'a str),
}

/// Carries out conversions.
pub struct Converter<'a> {
    /// The cluster.
    pub ceph: Ceph,
    /// The host of the OSD.
    pub host: &'a HostCommands,
    /// The directory of records and files of CRUSH maps.
    pub folder: &'a Path,
    /// Maximum time to wait for the cluster, for each step.
    pub wait_max: Duration,
    /// Time between two looks at it.
    pub pause: Duration,
    /// Receives the progress.
    pub report: &'a mut dyn FnMut(Progress<'_>),
}

/// The commands of a step of an OSD.
pub fn osd_commands(step: OsdStep, record: &OsdRecord, host: &HostCommands) -> Vec<Vec<String>> {
    let (name, id) = (record.osd.to_string(), record.osd.0.to_string());
    let ceph = |arguments: &[&str]| Ceph::argv(arguments);
    match step {
        OsdStep::Out => vec![ceph(&["osd", "out", &id])],
        OsdStep::Stop => [vec![ceph(&["osd", "safe-to-destroy", &id])], host.stop(record)].concat(),
        OsdStep::Destroy => {
            vec![ceph(&["osd", "safe-to-destroy", &id]), ceph(&["osd", "destroy", &id, "--yes-i-really-mean-it"])]
        }
        OsdStep::Class => {
            let mut commands = vec![ceph(&["osd", "crush", "rm-device-class", &name])];
            if let Some(class) = &record.wanted().class {
                commands.push(ceph(&["osd", "crush", "set-device-class", class, &name]));
            }
            commands
        }
        OsdStep::Affinity => {
            let permille = record.wanted().affinity_permille;
            let affinity = format!("{}.{:03}", permille / 1000, permille % 1000);
            vec![ceph(&["osd", "primary-affinity", &name, &affinity])]
        }
        OsdStep::Create => host.create(record),
        OsdStep::Start => host.start(record),
        OsdStep::In if record.reweight >= REWEIGHT_WHOLE => vec![ceph(&["osd", "in", &id])],
        // A weight above 0 takes it in.
        OsdStep::In => vec![ceph(&["osd", "reweight", &id, &reweight(record.reweight)])],
    }
}

/// `parts` of [`REWEIGHT_WHOLE`] as a number that Ceph, which truncates, reads as the same.
fn reweight(parts: u32) -> String {
    let millionths = (u64::from(parts) * 1_000_000).div_ceil(u64::from(REWEIGHT_WHOLE));
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

impl Converter<'_> {
    /// The file of a record.
    pub fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{}.record", name.replace('/', "-")))
    }

    /// Converts or reverts an OSD, by its `record`. At the end of a reversion the record is removed.
    pub fn osd(&mut self, record: &OsdRecord) -> Result<(), ConvertError> {
        let path = Self::path(self.folder, &record.osd.to_string());
        let _lock = self.begin(&path, record, |cluster| next_for_osd(record, cluster))?;
        let of_host = [self.host.stop(record), self.host.create(record), self.host.start(record)].concat();
        while let Some(step) = self.next(|cluster| next_for_osd(record, cluster))? {
            if self.waits_for_earlier(&of_host)? {
                // An OSD that it created may need a moment to run; if it does not run, it is destroyed and created
                // again.
                let has_run = |cluster: &Cluster| cluster.osds.get(&record.osd).is_none_or(|osd| !osd.is_new);
                let _ = self.until(&step, has_run);
                continue;
            }
            for command in &osd_commands(step, record, self.host) {
                match self.run(command) {
                    Err(ConvertError::Command(error)) if error.is_nothing_to_zap() => {}
                    other => other?,
                }
            }
            self.until(&step, |cluster| has_effect(step, record, cluster))?;
        }
        if record.goal == Goal::Original {
            record::remove::<OsdRecord>(&path)?;
        }
        Ok(())
    }

    /// Converts or reverts a pool.
    pub fn pool(&mut self, record: &PoolRecord) -> Result<(), ConvertError> {
        let path = Self::path(self.folder, &format!("pool/{}", record.pool));
        let _lock = self.begin(&path, record, |cluster| next_for_pool(record, cluster))?;
        while let Some(step) = self.next(|cluster| next_for_pool(record, cluster))? {
            match (step, &record.kind) {
                (PoolStep::AddRule, PoolRule::HotPrimary) => self.add_rule(record)?,
                _ => self.run(&pool_command(step, record))?,
            }
            self.until(&step, |cluster| next_for_pool(record, cluster) != Next::Do(step))?;
        }
        if record.goal == Goal::Original {
            record::remove::<PoolRecord>(&path)?;
        }
        Ok(())
    }

    /// Stores `record` before anything is done, unless nothing will be. Only one conversion runs at a time on a host.
    fn begin<R: Record, S>(
        &self,
        path: &Path,
        record: &R,
        next: impl Fn(&Cluster) -> Next<S>,
    ) -> Result<Lock, ConvertError> {
        if let Next::Refused(reason) = next(&self.ceph.cluster()?) {
            return Err(ConvertError::Refused(reason));
        }
        let Some(lock) = Lock::take(self.folder, lock::CONVERSION)? else {
            let text = "another conversion goes on on this host; wait for its end";
            return Err(ConvertError::Refused(text.to_owned()));
        };
        record::write(path, record)?;
        Ok(lock)
    }

    /// Waits while one of `commands`, which a killed run has started, still runs. True if it had to wait.
    fn waits_for_earlier(&mut self, commands: &[Vec<String>]) -> Result<bool, ConvertError> {
        let started = clock::monotonic();
        let mut was_at_work = false;
        while let Some((process, command)) = lock::at_work(commands) {
            let reason = format!("`{command}` of an earlier run is still at work (process {process})");
            if started.elapsed() >= HOST_COMMAND_MAX {
                return Err(ConvertError::Waited { waited: HOST_COMMAND_MAX, reason });
            }
            if !was_at_work {
                (self.report)(Progress::Wait(&reason));
            }
            was_at_work = true;
            thread::sleep(self.pause);
        }
        Ok(was_at_work)
    }

    /// The next step, once the cluster allows it; `None` at the end.
    fn next<S: Debug>(&mut self, next: impl Fn(&Cluster) -> Next<S>) -> Result<Option<S>, ConvertError> {
        let started = clock::monotonic();
        let mut reported = None;
        loop {
            let reason = match next(&self.ceph.cluster()?) {
                Next::Do(step) => return Ok(Some(step)),
                Next::Done => return Ok(None),
                Next::Refused(reason) => return Err(ConvertError::Refused(reason)),
                Next::Wait(reason) => reason,
            };
            if started.elapsed() >= self.wait_max {
                return Err(ConvertError::Waited { waited: self.wait_max, reason });
            }
            if reported.as_ref() != Some(&reason) {
                (self.report)(Progress::Wait(&reason));
                reported = Some(reason);
            }
            thread::sleep(self.pause);
        }
    }

    /// Waits until a step shows its effect.
    fn until(&mut self, step: &impl Debug, is_so: impl Fn(&Cluster) -> bool) -> Result<(), ConvertError> {
        let started = clock::monotonic();
        while !is_so(&self.ceph.cluster()?) {
            if started.elapsed() >= EFFECT_MAX {
                return Err(ConvertError::NoEffect(format!("{step:?}")));
            }
            thread::sleep(self.pause);
        }
        Ok(())
    }

    fn run(&mut self, command: &[String]) -> Result<(), ConvertError> {
        (self.report)(Progress::Run(command));
        self.ceph.program(command, HOST_COMMAND_MAX)?;
        Ok(())
    }

    /// Adds the hot-primary rule: decompile, insert, compile, test, set. Ceph refuses it if the map changed meanwhile.
    fn add_rule(&mut self, record: &PoolRecord) -> Result<(), ConvertError> {
        let cluster = self.ceph.cluster()?;
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (map, text, new) = (file("crush.map"), file("crush.txt"), file("crush.new"));
        self.run(&Ceph::argv(&["osd", "getcrushmap", "-o", &map]))?;
        self.run(&words(&["crushtool", "-d", &map, "-o", &text]))?;
        let failed = |error| ConvertError::File { path: text.clone().into(), error };
        let rule = record.hot_primary();
        let edited = inserted(&fs::read_to_string(&text).map_err(failed)?, &rule)?;
        (self.report)(Progress::Edit(&rule.name));
        fs::write(&text, edited).map_err(failed)?;
        self.run(&words(&["crushtool", "-c", &text, "-o", &new]))?;
        let size = cluster.pools.get(&record.pool).map_or(3, |pool| pool.size).to_string();
        let test = ["crushtool", "-i", &new, "--test", "--show-bad-mappings", "--num-rep", &size];
        let id = (0..u32::MAX).find(|id| !cluster.rules.contains_key(id)).unwrap_or(0).to_string();
        let bad = self.ceph.program(&words(&[&test[..], &["--rule", &id]].concat()), HOST_COMMAND_MAX)?;
        if let Some(line) = bad.lines().find(|line| line.contains("bad mapping")) {
            return Err(ConvertError::BadMappings(line.to_owned()));
        }
        self.run(&Ceph::argv(&["osd", "setcrushmap", "-i", &new, &cluster.crush_version.to_string()]))
    }
}

/// The command of a step of a pool, for steps that are one command.
pub fn pool_command(step: PoolStep, record: &PoolRecord) -> Vec<String> {
    let PoolRecord { name, rule, original_rule, root, domain, hot_class, .. } = record;
    match (step, record.goal) {
        (PoolStep::AddRule, _) => {
            Ceph::argv(&["osd", "crush", "rule", "create-replicated", rule, root, domain, hot_class])
        }
        (PoolStep::SetRule, Goal::Converted) => Ceph::argv(&["osd", "pool", "set", name, "crush_rule", rule]),
        (PoolStep::SetRule, Goal::Original) => Ceph::argv(&["osd", "pool", "set", name, "crush_rule", original_rule]),
        (PoolStep::RemoveRule, _) => Ceph::argv(&["osd", "crush", "rule", "rm", rule]),
    }
}
