//! Power control by an operator's command, for actions that no disk can do by itself: relays, slots of an enclosure, a
//! power strip.
//!
//! The command is run with two more arguments: `start`, `stop` or `state`, and the disk. Exit code 0 is success, any
//! other code failure; then the last line of its standard error is shown. `state` writes one word to standard output:
//! `standby`, `starting` or `active`; another word, or none, is unknown. No shell is involved. Standard input is empty.
//! A command that does not end in time is killed, with all processes of its group.
//!
//! Invariant: a command's output never takes more than [`COMMAND_OUTPUT_BYTES`] of memory ([`child`]).

use super::{PowerControl, PowerError, PowerMode};
use crate::child;
use model::PowerCommand;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Number of bytes that are kept of each of a command's outputs.
pub const COMMAND_OUTPUT_BYTES: usize = 4096;

/// Power control by a command.
pub struct CommandPower {
    argv: Vec<String>,
    disk: String,
    timeout: Duration,
}

impl CommandPower {
    /// Control of `disk` by `argv` (a program and its first arguments), which has `timeout` for each action.
    pub fn new(argv: Vec<String>, disk: impl Into<String>, timeout: Duration) -> Self {
        assert!(!argv.is_empty(), "a command has a program");
        Self { argv, disk: disk.into(), timeout }
    }

    /// Control of the disk at `path` by the `command` of a rack's description.
    pub fn of(command: &PowerCommand, path: &Path) -> Self {
        Self::new(command.argv.clone(), path.to_string_lossy(), command.timeout)
    }

    fn program(&self) -> String {
        self.argv[0].clone()
    }

    /// Runs the command for `action`, and returns its standard output.
    fn run(&self, action: &str) -> Result<String, PowerError> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).args([action, &self.disk]);
        let ended = child::run(&mut command, self.timeout, COMMAND_OUTPUT_BYTES)
            .map_err(|error| PowerError::CommandNotRun { command: self.program(), reason: error.to_string() })?;
        match ended {
            None => Err(PowerError::CommandTimeout { command: self.program(), timeout: self.timeout }),
            Some(ended) if ended.status.success() => Ok(ended.output),
            Some(ended) => Err(PowerError::CommandFailed {
                command: self.program(),
                status: ended.status.to_string(),
                output: ended.errors.lines().last().unwrap_or("no message").trim().to_owned(),
            }),
        }
    }

    fn checked_mode(&self) -> Result<PowerMode, PowerError> {
        let output = self.run("state")?;
        match output.split_whitespace().next().unwrap_or_default() {
            "standby" => Ok(PowerMode::Standby),
            "starting" => Ok(PowerMode::Starting),
            "active" => Ok(PowerMode::Active),
            other => Err(PowerError::CommandAnswer { command: self.program(), answer: other.to_owned() }),
        }
    }
}

impl PowerControl for CommandPower {
    fn mode(&self) -> PowerMode {
        self.checked_mode().unwrap_or_else(PowerMode::Unknown)
    }

    fn start(&self) -> Result<(), PowerError> {
        self.run("start").map(drop)
    }

    fn stop(&self) -> Result<(), PowerError> {
        self.run("stop").map(drop)
    }
}
