//! A trial of a disk's power control: stop it, see that it sleeps and stays asleep, start it, see that it is awake.
//!
//! Some controls do not do what they say: bridges that swallow the stop or answer for a sleeping disk, disks that
//! answer "active" whatever they do, disks that somebody wakes at once. None of them can be seen from the outside but
//! by trying. The disk must not be mounted.
//!
//! Time is measured by the pauses between questions, which are the caller's; so a trial runs in virtual time as well.

use super::{PowerControl, PowerError, PowerMode};
use std::time::Duration;

/// How long a trial waits, and how often it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialTimes {
    /// Between two questions.
    pub pause: Duration,
    /// Until the platters stand still after a stop.
    pub stop_max: Duration,
    /// How long they must stay still without a question in between.
    pub asleep: Duration,
    /// Until they turn at speed after a start.
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

/// What a successful trial found, to the pause between two questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialReport {
    /// From the stop until the disk said that its platters stand still.
    pub stop: Duration,
    /// From the start until the disk said that they turn at speed.
    pub start: Duration,
}

/// What a trial found wrong.
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
    /// The disk does not say what its platters do, so nobody can know that they stand still.
    #[error("after a {action}, the disk's power mode is unknown: {error}")]
    Unknown {
        /// `stop` or `start`.
        action: &'static str,
        /// The reason.
        error: PowerError,
    },
    /// The command succeeded, and the disk still says that its platters turn.
    #[error(
        "the disk accepts a stop and still says that it spins after {0:?}: something between ignores the command, or \
         answers for the disk; connect it to a SATA or SAS port, or control its power by a command"
    )]
    StopIgnored(Duration),
    /// It stood still and then did not.
    #[error(
        "the disk went to sleep and was awake again within {0:?}, though nobody asked: `larder drive doctor` looks for \
         programs that wake disks"
    )]
    WokeUp(Duration),
    /// The command succeeded, and the disk does not get to speed.
    #[error("the disk accepts a start and is not at speed after {0:?}")]
    StartIgnored(Duration),
}

/// Asks every `times.0` until `wanted` is the answer; the time that took, or `None` after `times.1`. An unknown mode is
/// an error at once.
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

/// Tries the control of a disk that is not in use; `sleep` waits. After an error the disk may be asleep or awake.
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
