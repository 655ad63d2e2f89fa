//! The drives of a rack while no server runs, for commands that read all of it: one group of drives is awake at a time.
//!
//! 1. Every disk is asked for its state, which starts none. A drive that spins, or may spin, is booked in the engine's
//!    ledger and stopped; one that will not stop stays booked.
//! 2. A group wakes: its drives request permits from the ledger, those that get some start and are mounted, their
//!    labels are checked, and then the others request again.
//! 3. The group is read, and rests: its drives are unmounted and stopped, and permits are released. Then the next group
//!    follows.
//!
//! Directories take part like disks, but neither start nor stop.
//!
//! Invariants: no drive starts without a permit from each of its domains; no group wakes before the previous one was
//! put to rest; a drive that could not be stopped keeps its permit.

use crate::data_dir::DataDir;
use crate::error::ServerError;
use disk::device::{DeviceRack, RackDrive};
use disk::{DirectoryDrive, Drive, DriveError, Hardware, OpenFiles};
use engine::layout::Layout;
use engine::ledger::{Ledger, PowerState};
use futures::future::join_all;
use model::{DriveId, RackSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The longest that a drive may take to start and to be mounted, or to be unmounted and to stop. A file system that was
/// not unmounted reads its journal first.
const SWITCH_MAX: Duration = Duration::from_mins(5);

const INTERRUPTED: &str = "interrupted; the drives are put to sleep, and nothing was changed";

/// The reason that a drive of a group is not awake.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// It could not be started or mounted, or is another drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// There is no permit for it.
    #[error("it was not started: drives that spin and were not stopped take its power ({0}); stop these first")]
    NoPower(usize),
}

/// The drives of a rack without a server. See the head of this file.
pub struct OfflineRack {
    hardware: Option<Arc<dyn Hardware>>,
    drives: Vec<Arc<dyn Drive>>,
    ledger: Ledger,
    /// The drives that were started since the last rest.
    awake: Vec<DriveId>,
    starts: BTreeMap<DriveId, u32>,
    was_asked: bool,
    /// The longest that a start of a drive takes.
    spin_up_max: Duration,
}

impl OfflineRack {
    /// The drives of `dir`, with at most `open_files` files open at once. None of them is accessed.
    pub fn of(dir: &DataDir, open_files: usize) -> Self {
        let files = OpenFiles::new(open_files);
        let directory = |(path, label)| {
            let drive = DirectoryDrive::at(path).with_label(label).with_claim(dir.claim());
            Arc::new(drive.with_open_files(&files))
        };
        let places = dir.labels().into_iter();
        if !dir.has_devices() {
            return Self::over(dir.rack(), None, places.map(|place| directory(place) as _).collect());
        }
        let of_rack = |place: (_, disk::label::Label)| match dir.device_drive(place.1.drive) {
            Some(device) => RackDrive::Device(device.with_open_files(&files)),
            None => RackDrive::Other(directory(place)),
        };
        let devices = DeviceRack::new(places.map(of_rack));
        let drives = devices.drives();
        Self::over(dir.rack(), Some(Arc::new(devices)), drives)
    }

    /// The `drives` of `rack`, by number; `hardware` knows which of them spin, if any can.
    pub fn over(rack: &RackSpec, hardware: Option<Arc<dyn Hardware>>, drives: Vec<Arc<dyn Drive>>) -> Self {
        assert!(drives.len() == rack.drives.len(), "each drive of the rack is there, be it only its place");
        let (ledger, spin_up_max) = (Ledger::new(rack), rack.profile.spin_up.longest());
        Self { hardware, drives, ledger, awake: Vec::new(), starts: BTreeMap::new(), was_asked: false, spin_up_max }
    }

    /// The sets of drives of `layout` that are awake together: its groups in the order of their numbers, and each spare
    /// by itself, because spares may share a resource that only one of them may use.
    pub fn order(layout: &Layout) -> Vec<Vec<DriveId>> {
        let groups = layout.groups.iter().map(|group| group.drives.clone());
        groups.chain(layout.spares.iter().map(|spare| vec![*spare])).collect()
    }

    /// Starts and mounts `ids`, as far as there is power for them, and checks their labels. Returns each drive with the
    /// outcome.
    pub async fn wake(&mut self, ids: &[DriveId]) -> Vec<(DriveId, Result<Arc<dyn Drive>, WakeError>)> {
        assert!(self.awake.is_empty(), "the group before it rests");
        self.ask().await;
        let is_booked = |id: &DriveId| self.ledger.state(*id) != PowerState::Standby;
        // A drive that spins already needs no further permit.
        let (mut next, mut waiting): (Vec<DriveId>, Vec<DriveId>) = ids.iter().partition(|id| is_booked(id));
        let mut answers = Vec::new();
        loop {
            let granted = self.ledger.request(&waiting);
            waiting.retain(|id| !granted.contains(id));
            next.extend(granted);
            if next.is_empty() {
                break;
            }
            answers.extend(self.start(std::mem::take(&mut next)).await);
        }
        // Drives that are always on have no permits.
        let permitted = self.awake.iter().filter(|id| !self.ledger.is_always_on(**id)).count();
        let others = self.ledger.active_drives() - permitted;
        answers.extend(waiting.into_iter().map(|id| (id, Err(WakeError::NoPower(others)))));
        answers
    }

    /// Starts and mounts `ids`, which have permits, all at once.
    async fn start(&mut self, ids: Vec<DriveId>) -> Vec<(DriveId, Result<Arc<dyn Drive>, WakeError>)> {
        self.awake.extend(&ids);
        let starts =
            |id: &&DriveId| self.ledger.state(**id) == PowerState::SpinningUp && !self.ledger.is_always_on(**id);
        for id in ids.iter().filter(starts) {
            *self.starts.entry(*id).or_default() += 1;
        }
        let start = async |id: DriveId| {
            let drive = Arc::clone(&self.drives[id.index()]);
            let switched = within_time(async {
                drive.spin_up().await?;
                drive.mount().await.map(drop)
            });
            switched.await.map(|()| drive)
        };
        let started = join_all(ids.iter().map(|id| start(*id))).await;
        let mut answers = Vec::new();
        for (id, started) in ids.into_iter().zip(started) {
            if self.ledger.state(id) == PowerState::SpinningUp {
                self.ledger.spun_up(id);
            }
            if started.is_err() {
                self.awake.retain(|other| *other != id);
                self.stop(vec![id]).await;
            }
            answers.push((id, started.map_err(WakeError::Drive)));
        }
        answers
    }

    /// Unmounts and stops all awake drives. The caller must no longer use them.
    pub async fn rest(&mut self) {
        let awake = std::mem::take(&mut self.awake);
        self.stop(awake).await;
    }

    /// The number of starts of each disk. Directories do not start.
    pub fn starts(&self) -> impl Iterator<Item = (DriveId, u32)> + '_ {
        let have_power = self.hardware.is_some();
        self.starts.iter().filter(move |_| have_power).map(|(drive, starts)| (*drive, *starts))
    }

    /// Asks once which drives spin, and stops them.
    async fn ask(&mut self) {
        if std::mem::replace(&mut self.was_asked, true) {
            return;
        }
        let Some(hardware) = self.hardware.clone() else { return };
        let spinning = hardware.spinning().await;
        for drive in &spinning {
            tracing::info!(%drive, "a drive may be spinning; it counts against the budgets, and is stopped");
            self.ledger.found_spinning(*drive);
        }
        self.stop(spinning.clone()).await;
        let still_spins = |id: &DriveId| self.ledger.state(*id) == PowerState::SpinningUp;
        if spinning.iter().any(still_spins) {
            // Something else may have started them just now, so they count as starting for as long as a start takes.
            tokio::time::sleep(self.spin_up_max).await;
        }
        for drive in spinning {
            self.ledger.found_at_speed(drive);
        }
    }

    /// Unmounts and stops `ids`, which have permits. Those that stopped release them.
    async fn stop(&mut self, ids: Vec<DriveId>) {
        let stop = async |id: &DriveId| {
            let drive = &self.drives[id.index()];
            within_time(async {
                drive.unmount().await?;
                drive.stop().await
            })
            .await
        };
        let stopped = join_all(ids.iter().map(stop)).await;
        for (drive, stopped) in ids.into_iter().zip(stopped) {
            match stopped {
                // A drive that is gone takes no power.
                Ok(()) | Err(DriveError::Gone(_)) => self.ledger.released(drive),
                Err(error) => {
                    tracing::warn!(%drive, %error, "a drive was not stopped; it counts as spinning");
                }
            }
        }
    }
}

/// The result of `work`; an error if the process receives SIGINT or SIGTERM before it is done, so that drives can be
/// put to rest first.
///
/// # Errors
/// Those of `work`.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T, ServerError>>) -> Result<T, ServerError> {
    let failed = |source| ServerError::Io("watching for signals".into(), source);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(ServerError::Refused(INTERRUPTED.into())),
        _ = terminate.recv() => Err(ServerError::Refused(INTERRUPTED.into())),
    }
}

async fn within_time(switch: impl Future<Output = Result<(), DriveError>>) -> Result<(), DriveError> {
    tokio::time::timeout(SWITCH_MAX, switch).await.unwrap_or(Err(DriveError::NoAnswer(SWITCH_MAX)))
}

#[cfg(test)]
pub(crate) mod tests;
