//! The loop of a host's agent: observe, let the agent decide, execute.

use crate::agent::{Action, Agent, AgentRecord, DriveSeen, OsdSeen, Phase, RECOVERY_GRACE, Seen, Settings};
use crate::cluster::{Cluster, Osd, OsdId};
use crate::record::{self, RecordError};
use crate::world::drives::{DriveError, HostDrive};
use crate::world::hold::{self, Holds};
use crate::world::lock::{self, Lock};
use crate::world::tools::{Ceph, CephError};
use crate::world::windows::Windows;
use disk::power::PowerError;
use disk::{Clock, TokioClock, clock};
use engine::SpinDownPolicy;
use engine::spin_down::NodePolicy;
use model::Time;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the write that makes an OSD flush its drive. A write above the limit of deferred writes goes to the drive
/// at once, is flushed with its transaction, and leaves nothing to be flushed later. Seen on 16.2: 128 KiB gives three
/// writes and one flush within a second and none after; 4 KiB gives a write seconds later, and its flush with the next
/// transaction, at any later time.
const FLUSH_BYTES: &str = "131072";

/// Reasons why an agent cannot run, or cannot end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The cluster cannot be read at the start.
    #[error(transparent)]
    Ceph(#[from] CephError),
    /// A drive cannot be used.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// Its record cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No OSD on this host is cold.
    #[error("no OSD of class {class} runs on {host}; convert one first (`larder ceph plan`)")]
    NothingCold {
        /// The device class.
        class: String,
        /// This host.
        host: String,
    },
    /// The idle time is too short.
    #[error(
        "--idle must be {least:?} at least: an OSD that fails is out only after {down_out:?}, and its recovery would \
             wake what just fell asleep"
    )]
    IdleTooShort {
        /// The minimum.
        least: Duration,
        /// The cluster's down-out interval.
        down_out: Duration,
    },
    /// The cluster's own settings hold back more than the agent would allow.
    #[error(
        "bluestore_throttle_deferred_bytes of {0} is as large by itself as --hold would set it, so that nothing tells \
             the two apart; allow more"
    )]
    HoldTooSmall(OsdId),
    /// Another agent has the drives.
    #[error("an agent runs on this host already")]
    AnotherRuns,
    /// The windows could not be released.
    #[error(
        "the scrub flags of the pools, or what makes OSDs hold back writes, could not be given back ({0}); `larder \
             ceph agent --release` does it when the monitors answer"
    )]
    Release(CephError),
    /// Signals cannot be waited for.
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
}

/// The drives of an agent, and how it handles them.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The cluster.
    pub ceph: Ceph,
    /// This host's name, as `ceph osd metadata` reports it.
    pub host: String,
    /// The device class of cold OSDs.
    pub class: String,
    /// Only these; all if it is empty.
    pub osds: Vec<OsdId>,
    /// True if touches are counted instead of stopping drives.
    pub is_emulated: bool,
    /// Time between two looks.
    pub every: Duration,
    /// Maximum cost of the writes that each OSD may hold back from its sleeping drive; `None` if it holds back none.
    pub hold_max: Option<u64>,
    /// The directory of the record.
    pub folder: PathBuf,
}

impl Scope {
    /// The file of the agent's record.
    pub fn record_path(folder: &Path) -> PathBuf {
        folder.join("agent.record")
    }

    fn osds<'a>(&self, cluster: &'a Cluster) -> Vec<&'a Osd> {
        let is_named = |osd: &Osd| self.osds.is_empty() || self.osds.contains(&osd.id);
        let is_cold = |osd: &&Osd| osd.class.as_ref() == Some(&self.class) && osd.hostname == self.host;
        cluster.osds.values().filter(is_cold).filter(|osd| is_named(osd)).collect()
    }

    fn drive(&self, osd: &Osd, cluster: &Cluster) -> Result<HostDrive, DriveError> {
        self.hold_max.map_or(Ok(()), |max| hold::fits(osd, max))?;
        HostDrive::of(osd, cluster, self.is_emulated)
    }
}

/// The policy by which drives sleep: after the cluster's down-out interval and a grace, or `wanted` if that is longer.
/// A shorter `wanted` is an error, except in an emulation.
pub fn node_policy(
    scope: &Scope,
    wanted: Option<Duration>,
    starts_per_day: u32,
    spin_down: SpinDownPolicy,
) -> Result<NodePolicy, AgentError> {
    let text = scope.ceph.run(&["config", "get", "mon", "mon_osd_down_out_interval"])?;
    let down_out_interval = Duration::from_secs(text.trim().parse().unwrap_or(600));
    let policy =
        NodePolicy { idle_timer: Duration::ZERO, down_out_interval, grace: RECOVERY_GRACE, starts_per_day, spin_down };
    let least = policy.idle_timeout();
    match wanted {
        Some(idle_timer) if idle_timer < least && scope.is_emulated => {
            Ok(NodePolicy { idle_timer, down_out_interval: Duration::ZERO, grace: Duration::ZERO, ..policy })
        }
        Some(wanted) if wanted < least => Err(AgentError::IdleTooShort { least, down_out: down_out_interval }),
        wanted => Ok(NodePolicy { idle_timer: wanted.unwrap_or_default(), ..policy }),
    }
}

/// Minimum number of looks between two readings of the whole cluster, each after a change of the OSD map.
const RENEW_LOOKS: u32 = 20;

/// A running agent.
struct Service {
    scope: Scope,
    fsid: String,
    windows: Windows,
    drives: Vec<HostDrive>,
    agent: Agent,
    saved: Option<AgentRecord>,
    /// The version of the OSD map and the time at the last reading of the whole cluster.
    renewed: (u64, Time),
    /// Set when the agent is asked to end: no further command is started.
    ending: Arc<AtomicBool>,
}

/// Runs the agent until the process is asked to end, or no OSD on this host is cold any more; then releases the
/// windows. Each check of the drives runs on a separate thread, so a request to end waits for at most one command.
pub async fn serve(scope: Scope, settings: Settings) -> Result<(), AgentError> {
    let mut ends =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(AgentError::Signals)?;
    let Some(_lock) = Lock::take(&scope.folder, lock::AGENT)? else { return Err(AgentError::AnotherRuns) };
    let clock = TokioClock::starting_at(Time::from_nanos(clock::since_epoch().as_nanos() as u64), 1);
    let mut service = Service::new(scope, settings, clock.now())?;
    let ending = Arc::clone(&service.ending);
    let end = async {
        tokio::select! { _ = ends.recv() => {} _ = tokio::signal::ctrl_c() => {} }
        ending.store(true, Ordering::Relaxed);
    };
    let mut end = pin!(end);
    let mut is_asked = false;
    while !is_asked && !service.drives.is_empty() {
        let (now, every) = (clock.now(), service.scope.every);
        let mut look = tokio::task::spawn_blocking(move || {
            service.look(now);
            service
        });
        let looked = tokio::select! {
            looked = &mut look => looked,
            () = &mut end => {
                is_asked = true;
                look.await
            }
        };
        service = looked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        if !is_asked {
            tokio::select! {
                () = clock.sleep_until(now + every) => {}
                () = &mut end => is_asked = true,
            }
        }
    }
    service.release_holds()?;
    let was_last = service.windows.release().map_err(AgentError::Release)?;
    tracing::info!(was_last, "scrub windows given back");
    Ok(())
}

impl Service {
    fn new(scope: Scope, settings: Settings, now: Time) -> Result<Self, AgentError> {
        let epoch = scope.ceph.epoch()?;
        let cluster = scope.ceph.cluster()?;
        let drives: Vec<HostDrive> =
            (scope.osds(&cluster).into_iter()).map(|osd| scope.drive(osd, &cluster)).collect::<Result<_, _>>()?;
        if drives.is_empty() {
            return Err(AgentError::NothingCold { class: scope.class, host: scope.host });
        }
        begin_holds(&scope, &ids(&drives))?;
        Windows::new(scope.ceph, &scope.host).take(&cluster, &ids(&drives))?;
        Self::of(scope, drives, &cluster.fsid, settings, (epoch, now))
    }

    /// An agent for those drives, whose windows are taken.
    fn of(
        scope: Scope,
        drives: Vec<HostDrive>,
        fsid: &str,
        settings: Settings,
        renewed: (u64, Time),
    ) -> Result<Self, AgentError> {
        let saved: Option<AgentRecord> = record::read(&Scope::record_path(&scope.folder))?;
        let saved = saved.filter(|record| record.fsid == fsid);
        let agent = Agent::new(settings, &seen(&drives), saved.as_ref(), renewed.1);
        for drive in &drives {
            tracing::info!(osd = %drive.osd, device = drive.device, "watched");
        }
        let ending = Arc::new(AtomicBool::new(false));
        let windows = Windows::new(scope.ceph, &scope.host);
        Ok(Self { scope, fsid: fsid.to_owned(), windows, drives, agent, saved, renewed, ending })
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Looks at everything, and executes the agent's decisions. Failures are logged; the agent tries again when it sees
    /// that the effect is missing.
    fn look(&mut self, now: Time) {
        let mut is_reachable = self.renews(now);
        let seen: Vec<Seen> = (self.drives.iter())
            .map(|drive| Seen { drive: drive.seen(), osd: self.seen_of(drive.osd, &mut is_reachable) })
            .collect();
        for action in self.agent.tick(now, &seen) {
            let done = if self.is_ending() { Err(DoError::Ending) } else { self.execute(&action) };
            match done {
                Ok(()) => tracing::info!(?action, "done"),
                Err(error) => {
                    tracing::warn!(?action, %error, "failed");
                    if let Action::Flush(osd) = action {
                        self.agent.flush_failed(osd, now);
                    }
                }
            }
        }
        self.save();
    }

    /// Asks the monitors, once for all drives, if the OSD map has changed. If so, and not too soon after the last time,
    /// the agent gets the cold OSDs that are on this host now, and the windows of the pools that exist now. False while
    /// the monitors do not answer.
    fn renews(&mut self, now: Time) -> bool {
        let epoch = match self.scope.ceph.epoch() {
            Ok(epoch) => epoch,
            Err(error) => {
                tracing::warn!(%error, "the monitors do not answer; nothing is put to sleep");
                return false;
            }
        };
        let is_due = now.since(self.renewed.1) >= self.scope.every * RENEW_LOOKS;
        if epoch == self.renewed.0 || !is_due {
            return true;
        }
        match self.renew(now) {
            Ok(()) => self.renewed = (epoch, now),
            Err(error) => tracing::warn!(%error, "the cluster cannot be read anew"),
        }
        true
    }

    fn renew(&mut self, now: Time) -> Result<(), CephError> {
        let cluster = self.scope.ceph.cluster()?;
        let mut had = std::mem::take(&mut self.drives);
        for osd in self.scope.osds(&cluster) {
            let known = had.iter().position(|drive| osd.data_devices == [drive.device.as_str()] && drive.osd == osd.id);
            match known.map_or_else(|| self.scope.drive(osd, &cluster), |at| Ok(had.remove(at))) {
                Ok(drive) => self.drives.push(drive),
                Err(error) => tracing::warn!(%error, "an OSD of the cold class is left alone"),
            }
        }
        self.agent.renew(&seen(&self.drives), now);
        if self.scope.hold_max.is_some() {
            Holds::new(self.scope.ceph, &self.scope.host).note(&ids(&self.drives))?;
            // Otherwise OSDs that are no longer watched would hold back writes without end.
            for command in had.iter().flat_map(|drive| hold::off(drive.osd)) {
                if let Err(error) = self.scope.ceph.program(&command, self.scope.ceph.timeout) {
                    tracing::warn!(%error, "an OSD that is no longer watched may hold back writes");
                }
            }
        }
        self.windows.take(&cluster, &ids(&self.drives))
    }

    /// Starts the drives whose writes were held back, and lets them get these writes.
    fn release_holds(&self) -> Result<(), AgentError> {
        if self.scope.hold_max.is_none() {
            return Ok(());
        }
        let record = self.agent.record(&self.fsid);
        for drive in record.drives.iter().filter(|drive| drive.held_cost > 0 && drive.phase == Phase::Asleep) {
            if let Err(error) = self.drive(drive.osd).start() {
                tracing::warn!(osd = %drive.osd, %error, "a drive is not started; the writes held back do it");
            }
        }
        Holds::new(self.scope.ceph, &self.scope.host).release().map_err(AgentError::Release)
    }

    fn save(&mut self) {
        let record = self.agent.record(&self.fsid);
        if self.saved.as_ref() == Some(&record) {
            return;
        }
        match record::write(&Scope::record_path(&self.scope.folder), &record) {
            Ok(()) => self.saved = Some(record),
            Err(error) => tracing::warn!(%error, "what drives did is not remembered"),
        }
    }

    fn execute(&self, action: &Action) -> Result<(), DoError> {
        match action {
            Action::Sleep(osd) => self.drive(*osd).sleep()?,
            Action::Start(osd) => self.drive(*osd).start()?,
            Action::Flush(_) | Action::Hold(_) | Action::Drain(_) | Action::DeepScrub(..) | Action::Window(_) => {}
        }
        for command in commands(action, &self.scope) {
            if self.is_ending() {
                return Err(DoError::Ending);
            }
            self.scope.ceph.program(&command, self.scope.ceph.timeout)?;
        }
        Ok(())
    }

    fn drive(&self, osd: OsdId) -> &HostDrive {
        let drive = self.drives.iter().find(|drive| drive.osd == osd);
        drive.unwrap_or_else(|| unreachable!("the agent names its own drives: {osd}"))
    }

    /// The cluster's report on `osd`. Once the monitors do not answer, nothing else is asked in the same look, since
    /// each request takes its timeout.
    fn seen_of(&self, osd: OsdId, is_reachable: &mut bool) -> Option<OsdSeen> {
        if !*is_reachable || self.is_ending() {
            return None;
        }
        let ceph = self.scope.ceph;
        let held = || self.scope.hold_max.map(|max| hold::held(ceph, osd, max)).transpose();
        let seen = || {
            let (pgs, is_reserved) = (ceph.pgs_of(osd)?, ceph.is_reserved(osd)?);
            Ok::<_, CephError>(OsdSeen { pgs, is_reserved, held: held()? })
        };
        match seen() {
            Ok(seen) => Some(seen),
            Err(error) => {
                *is_reachable = ceph.epoch().is_ok();
                tracing::warn!(%osd, %error, "the cluster says nothing of it; it is not put to sleep");
                None
            }
        }
    }
}

/// Reverts the changes that an earlier agent left in OSDs of this host, and notes those of `osds` that may hold back
/// writes.
fn begin_holds(scope: &Scope, osds: &[OsdId]) -> Result<(), AgentError> {
    let holds = Holds::new(scope.ceph, &scope.host);
    holds.release()?;
    let Some(max) = scope.hold_max else { return Ok(()) };
    for osd in osds {
        if hold::held(scope.ceph, *osd, max)?.is_on {
            return Err(AgentError::HoldTooSmall(*osd));
        }
    }
    Ok(holds.note(osds)?)
}

/// The Ceph commands of an agent's action. A device that only counts touches has no health to read.
pub fn commands(action: &Action, scope: &Scope) -> Vec<Vec<String>> {
    let is_emulated = scope.is_emulated;
    match action {
        Action::Hold(osd) => scope.hold_max.map(|max| hold::on(*osd, max)).unwrap_or_default(),
        Action::Drain(osd) => hold::off(*osd),
        Action::Flush(osd) => vec![Ceph::argv(&["tell", &osd.to_string(), "bench", FLUSH_BYTES, FLUSH_BYTES])],
        Action::DeepScrub(_, pgs) => pgs.iter().map(|pg| Ceph::argv(&["pg", "deep-scrub", pg])).collect(),
        Action::Window(osd) if !is_emulated => {
            vec![Ceph::argv(&["device", "scrape-daemon-health-metrics", &osd.to_string()])]
        }
        Action::Window(_) | Action::Sleep(_) | Action::Start(_) => Vec::new(),
    }
}

/// Reasons why an action failed.
#[derive(Debug, thiserror::Error)]
enum DoError {
    #[error(transparent)]
    Ceph(#[from] CephError),
    #[error(transparent)]
    Power(#[from] PowerError),
    #[error("the agent is asked to end")]
    Ending,
}

fn ids(drives: &[HostDrive]) -> Vec<OsdId> {
    drives.iter().map(|drive| drive.osd).collect()
}

fn seen(drives: &[HostDrive]) -> Vec<(OsdId, DriveSeen)> {
    drives.iter().map(|drive| (drive.osd, drive.seen())).collect()
}

#[cfg(test)]
mod tests;
