//! Power control by a command of the operator's, for what no disk can do by itself: relays, slots of an enclosure, a
//! power strip.
//!
//! The command is run with two more arguments: `start`, `stop` or `state`, and the disk. Exit code 0 is success, any
//! other one failure; what it wrote to standard error last is shown then. `state` writes one word to standard output:
//! `standby`, `starting` or `active`; another word, or none, is unknown. No shell is involved. Standard
//! input is empty. A command that does not end in time is killed, with all processes of its group.
//!
//! Invariant: a command's output never takes more than [`COMMAND_OUTPUT_BYTES`] of memory, and never holds it up: what
//! is beyond is read and forgotten, and what its descendants keep open is not waited for.

use super::{PowerControl, PowerError, PowerMode};
use crate::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The bytes of each of a command's outputs that are kept.
pub const COMMAND_OUTPUT_BYTES: usize = 4096;

/// Reads that empty a pipe, of which the kernel fills at most 64 KiB.
const READS_MAX: usize = (64 << 10) / COMMAND_OUTPUT_BYTES;

/// Power control by a command.
pub struct CommandPower {
    argv: Vec<String>,
    disk: String,
    timeout: Duration,
}

/// How a command ended.
struct Ended {
    status: ExitStatus,
    output: String,
    errors: String,
}

impl CommandPower {
    /// Control of `disk` by `argv` (a program and its first arguments), which has `timeout` for each action.
    pub fn new(argv: Vec<String>, disk: impl Into<String>, timeout: Duration) -> Self {
        assert!(!argv.is_empty(), "a command has a program");
        Self { argv, disk: disk.into(), timeout }
    }

    fn program(&self) -> String {
        self.argv[0].clone()
    }

    /// Runs the command for `action`; its standard output.
    fn run(&self, action: &str) -> Result<String, PowerError> {
        let not_run = |reason: String| PowerError::CommandNotRun { command: self.program(), reason };
        let mut child = Command::new(&self.argv[0])
            .args(&self.argv[1..])
            .args([action, &self.disk])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| not_run(error.to_string()))?;
        let ended = wait(&mut child, self.timeout);
        if !matches!(ended, Ok(Some(_))) {
            end(&mut child);
        }
        match ended.map_err(|errno| not_run(errno.to_string()))? {
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

/// A stream of a command's output, as far as it is kept.
struct Stream<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>) -> Result<Self, Errno> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { pipe, kept: Vec::new() })
    }

    /// Reads what is there, and closes at the end of the stream.
    fn drain(&mut self) {
        let mut chunk = [0; COMMAND_OUTPUT_BYTES];
        // A command that writes without end must not hold this up beyond its timeout: a full pipe, and no more.
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(bytes) => {
                    let room = COMMAND_OUTPUT_BYTES - self.kept.len();
                    self.kept.extend_from_slice(&chunk[..bytes.min(room)]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Waits for the end of `child`, and reads what it writes; `None` if it did not end within `timeout`.
fn wait(child: &mut Child, timeout: Duration) -> Result<Option<Ended>, Errno> {
    let started = clock::monotonic();
    let process = pidfd_open(pid(child), PidfdFlags::empty())?;
    let mut output = Stream::new(child.stdout.take())?;
    let mut errors = Stream::new(child.stderr.take())?;
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        let mut waits = vec![PollFd::new(&process, PollFlags::IN)];
        waits.extend(output.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        waits.extend(errors.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let longest = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut waits, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ended = !waits[0].revents().is_empty();
        output.drain();
        errors.drain();
        if ended {
            let status = child.wait().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CHILD))?;
            return Ok(Some(Ended { status, output: output.text(), errors: errors.text() }));
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Kills `child` and what it started, and waits for its end.
fn end(child: &mut Child) {
    if let Err(error) = kill_process_group(pid(child), Signal::KILL) {
        tracing::warn!(%error, "a power command cannot be killed");
    }
    if let Err(error) = child.wait() {
        tracing::warn!(%error, "a power command that was killed cannot be waited for");
    }
}
