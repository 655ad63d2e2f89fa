//! A trial of a disk's power control: stop it, check that it sleeps and stays asleep, start it, check that it is awake.
//!
//! Some controls do not work as reported: bridges that swallow the stop or answer for a sleeping disk, disks that
//! answer "active" in any state, disks that are woken at once by something else. Only a trial reveals them. The disk
//! must not be mounted.
//!
//! Time is measured by the pauses between queries, which the caller provides; so a trial also runs in virtual time.

use super::{PowerControl, PowerError, PowerMode};
use std::time::Duration;

/// The wait times of a trial, and the interval of its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialTimes {
    /// Pause between two queries.
    pub pause: Duration,
    /// Maximum time from a stop until the platters have stopped.
    pub stop_max: Duration,
    /// Time for which they must stay stopped without a query in between.
    pub asleep: Duration,
    /// Maximum time from a start until they are at speed.
    pub start_max: Duration,
}

impl Default for TrialTimes {
    fn default() -> Self {
        Self {
            pause: Duration::from_millis(250),
            stop_max: Duration::from_secs(30),
            asleep: Duration::from_secs(10),
            start_max: Duration::from_mins(2),
        }
    }
}

/// The results of a successful trial, with the accuracy of the pause between two queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialReport {
    /// From the stop until the disk reported that its platters have stopped.
    pub stop: Duration,
    /// From the start until the disk reported that they are at speed.
    pub start: Duration,
}

/// The defect that a trial found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// A command failed.
    #[error("the command to {action} the disk failed: {error}")]
    Command {
        /// `stop` or `start`.
        action: &'static str,
        /// The failure.
        error: PowerError,
    },
    /// The disk does not report its power mode, so it is unknown whether the platters have stopped.
    #[error("after a {action}, the disk's power mode is unknown: {error}")]
    Unknown {
        /// `stop` or `start`.
        action: &'static str,
        /// The reason.
        error: PowerError,
    },
    /// The command succeeded, and the disk still reports that its platters turn.
    #[error(
        "the disk accepts a stop but still reports that it spins after {0:?}: a bridge or controller ignores the \
         command, or answers for the disk; connect it to a SATA or SAS port, or control its power by a command"
    )]
    StopIgnored(Duration),
    /// It stopped and then started again.
    #[error(
        "the disk went to sleep and was awake again within {0:?}, without a request: `larder drive doctor` looks for \
         programs that wake disks"
    )]
    WokeUp(Duration),
    /// The command succeeded, and the disk does not reach speed.
    #[error("the disk accepts a start but is not at speed after {0:?}")]
    StartIgnored(Duration),
}

/// Queries the mode at the interval `times.0` until it is `wanted`, and returns the elapsed time; `None` after
/// `times.1`. An unknown mode is an error at once.
pub fn wait_for(
    control: &dyn PowerControl,
    times: (Duration, Duration),
    wanted: &PowerMode,
    sleep: &mut dyn FnMut(Duration),
) -> Result<Option<Duration>, PowerError> {
    let (pause, longest) = times;
    let mut waited = Duration::ZERO;
    loop {
        match control.mode() {
            PowerMode::Unknown(error) => return Err(error),
            mode if mode == *wanted => return Ok(Some(waited)),
            _ if waited >= longest => return Ok(None),
            _ => sleep(pause),
        }
        waited += pause;
    }
}

/// Tests the control of a disk that is not in use; `sleep` waits. After an error the disk may be asleep or awake.
pub fn run(
    control: &dyn PowerControl,
    times: TrialTimes,
    sleep: &mut dyn FnMut(Duration),
) -> Result<TrialReport, TrialError> {
    let unknown = |action| move |error| TrialError::Unknown { action, error };
    let failed = |action| move |error| TrialError::Command { action, error };
    control.stop().map_err(failed("stop"))?;
    let stop = wait_for(control, (times.pause, times.stop_max), &PowerMode::Standby, sleep)
        .map_err(unknown("stop"))?
        .ok_or(TrialError::StopIgnored(times.stop_max))?;
    sleep(times.asleep);
    match control.mode() {
        PowerMode::Standby => {}
        PowerMode::Unknown(error) => return Err(unknown("stop")(error)),
        PowerMode::Starting | PowerMode::Active => return Err(TrialError::WokeUp(times.asleep)),
    }
    control.start().map_err(failed("start"))?;
    let start = wait_for(control, (times.pause, times.start_max), &PowerMode::Active, sleep)
        .map_err(unknown("start"))?
        .ok_or(TrialError::StartIgnored(times.start_max))?;
    Ok(TrialReport { stop, start })
}
