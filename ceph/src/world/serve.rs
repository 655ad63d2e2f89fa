//! The loop of a host's agent: look, let the agent decide, do.

use crate::agent::{Action, Agent, AgentRecord, OsdSeen, Seen, Settings};
use crate::cluster::{Cluster, Osd, OsdId};
use crate::record::{self, RecordError};
use crate::world::drives::{DriveError, HostDrive};
use crate::world::tools::{Ceph, CephError};
use crate::world::windows::Windows;
use disk::power::PowerError;
use disk::{Clock, TokioClock, clock};
use model::Time;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the write that makes an OSD flush its drive. One that is larger than the limit of deferred writes goes to
/// the drive at once, is flushed with its transaction, and leaves nothing behind that is flushed later (seen on 16.2:
/// 128 KiB gives three writes and one flush within a second and none after, 4 KiB a write seconds later and its flush
/// with the next transaction, whenever that is).
const FLUSH_BYTES: &str = "131072";

/// The grace behind the down-out interval.
pub const IDLE_GRACE: Duration = Duration::from_mins(5);

/// Why an agent cannot run.
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
    /// Nothing on this host is cold.
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
        /// The least.
        least: Duration,
        /// The cluster's down-out interval.
        down_out: Duration,
    },
    /// Signals cannot be waited for.
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
}

/// Which drives an agent has, and how.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The cluster.
    pub ceph: Ceph,
    /// This host's name, as `ceph osd metadata` has it.
    pub host: String,
    /// The device class of cold OSDs.
    pub class: String,
    /// These alone; all if it is empty.
    pub osds: Vec<OsdId>,
    /// Whether touches are counted instead of drives stopped.
    pub is_emulated: bool,
    /// So long between two looks.
    pub every: Duration,
    /// Where the record lies.
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
}

/// The idle time of a cluster: its down-out interval and the grace. `wanted` must not be shorter, unless it is
/// emulated.
pub fn idle(scope: &Scope, wanted: Option<Duration>) -> Result<Duration, AgentError> {
    let text = scope.ceph.run(&["config", "get", "mon", "mon_osd_down_out_interval"])?;
    let down_out = Duration::from_secs(text.trim().parse().unwrap_or(600));
    let least = down_out + IDLE_GRACE;
    match wanted {
        Some(wanted) if wanted < least && !scope.is_emulated => Err(AgentError::IdleTooShort { least, down_out }),
        wanted => Ok(wanted.unwrap_or(least)),
    }
}

/// A running agent.
struct Service {
    scope: Scope,
    fsid: String,
    drives: Vec<HostDrive>,
    agent: Agent,
    saved: Option<AgentRecord>,
}

/// Runs the agent until the process is asked to end, and gives the windows back then.
pub async fn serve(scope: Scope, settings: Settings) -> Result<(), AgentError> {
    let mut ends =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(AgentError::Signals)?;
    let clock = TokioClock::starting_at(Time::from_nanos(clock::since_epoch().as_nanos() as u64), 1);
    let cluster = scope.ceph.cluster()?;
    let windows = Windows::new(scope.ceph, &scope.host);
    let mut service = Service::new(scope, &cluster, settings, clock.now())?;
    let osds: Vec<OsdId> = service.drives.iter().map(|drive| drive.osd).collect();
    windows.take(&cluster, &osds)?;
    loop {
        service.look(clock.now());
        let next = clock.now() + service.scope.every;
        tokio::select! {
            () = clock.sleep_until(next) => {}
            _ = ends.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    let was_last = windows.release()?;
    tracing::info!(was_last, "scrub windows given back");
    Ok(())
}

impl Service {
    fn new(scope: Scope, cluster: &Cluster, settings: Settings, now: Time) -> Result<Self, AgentError> {
        let drives: Vec<HostDrive> = (scope.osds(cluster).into_iter())
            .map(|osd| HostDrive::of(osd, scope.is_emulated))
            .collect::<Result<_, _>>()?;
        if drives.is_empty() {
            return Err(AgentError::NothingCold { class: scope.class, host: scope.host });
        }
        let saved: Option<AgentRecord> = record::read(&Scope::record_path(&scope.folder))?;
        let saved = saved.filter(|record| record.fsid == cluster.fsid);
        let seen: Vec<_> = drives.iter().map(|drive| (drive.osd, drive.seen())).collect();
        let agent = Agent::new(settings, &seen, saved.as_ref(), now);
        for drive in &drives {
            tracing::info!(osd = %drive.osd, device = drive.device, "watched");
        }
        Ok(Self { scope, fsid: cluster.fsid.clone(), drives, agent, saved })
    }

    /// Looks at everything, and does what the agent decides. What fails is logged, and is tried again as the agent sees
    /// that it did not happen.
    fn look(&mut self, now: Time) {
        let mut is_reachable = true;
        let seen: Vec<Seen> = (self.drives.iter())
            .map(|drive| Seen { drive: drive.seen(), osd: seen_of(self.scope.ceph, drive.osd, &mut is_reachable) })
            .collect();
        for action in self.agent.tick(now, &seen) {
            tracing::info!(?action, "do");
            if let Err(error) = self.execute(&action) {
                tracing::warn!(?action, %error, "failed");
            }
        }
        self.save();
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
        let ceph = self.scope.ceph;
        match action {
            Action::Flush(osd) => drop(ceph.run(&["tell", &osd.to_string(), "bench", FLUSH_BYTES, FLUSH_BYTES])?),
            Action::Sleep(osd) => self.drive(*osd).sleep()?,
            Action::Start(osd) => self.drive(*osd).start()?,
            Action::DeepScrub(_, pgs) => {
                for pg in pgs {
                    ceph.run(&["pg", "deep-scrub", pg])?;
                }
            }
            Action::Window(osd) if self.scope.is_emulated => tracing::debug!(%osd, "no health to read"),
            Action::Window(osd) => drop(ceph.run(&["device", "scrape-daemon-health-metrics", &osd.to_string()])?),
        }
        Ok(())
    }

    fn drive(&self, osd: OsdId) -> &HostDrive {
        let drive = self.drives.iter().find(|drive| drive.osd == osd);
        drive.unwrap_or_else(|| unreachable!("the agent names its own drives: {osd}"))
    }
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
enum DoError {
    #[error(transparent)]
    Ceph(#[from] CephError),
    #[error(transparent)]
    Power(#[from] PowerError),
}

/// What the cluster says of `osd`. After the first answer that does not come no other is asked for in the same look,
/// since each takes its timeout.
fn seen_of(ceph: Ceph, osd: OsdId, is_reachable: &mut bool) -> Option<OsdSeen> {
    if !*is_reachable {
        return None;
    }
    let seen = || Ok::<_, CephError>(OsdSeen { pgs: ceph.pgs_of(osd)?, is_reserved: ceph.is_reserved(osd)? });
    match seen() {
        Ok(seen) => Some(seen),
        Err(error) => {
            *is_reachable = !matches!(error, CephError::Timeout { .. });
            tracing::warn!(%osd, %error, "the cluster says nothing of it; it is not put to sleep");
            None
        }
    }
}
