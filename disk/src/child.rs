//! Runs a command to its end, with a deadline and a bound on the kept output.
//!
//! Invariants: a command that does not end in time is killed, with all processes of its group. Its output never takes
//! more than the given memory, and never delays the end: output beyond that is read and dropped, and streams that
//! descendants keep open are not waited for.

use crate::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The kept part of its standard output.
    pub output: String,
    /// The kept part of its standard error.
    pub errors: String,
}

/// Runs `command` with empty standard input, and keeps `kept_bytes` of each of its outputs; `None` if it did not end
/// within `timeout` and was killed. Blocks.
pub fn run(command: &mut Command, timeout: Duration, kept_bytes: usize) -> io::Result<Option<Ended>> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()?;
    let ended = wait(&mut child, timeout, kept_bytes);
    if !matches!(ended, Ok(Some(_))) {
        end(&mut child);
    }
    ended.map_err(io::Error::from)
}

/// Bytes per read.
const CHUNK_BYTES: usize = 4096;

/// Reads that empty a pipe, which holds at most 64 KiB.
const READS_MAX: usize = (64 << 10) / CHUNK_BYTES;

/// A stream of a command's output, with the kept part.
struct Stream<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
    kept_bytes: usize,
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>, kept_bytes: usize) -> Result<Self, Errno> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { pipe, kept: Vec::new(), kept_bytes })
    }

    /// Reads the available bytes, and closes at the end of the stream.
    fn drain(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        // A command that writes without end must not extend its timeout: at most a full pipe is read.
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(bytes) => {
                    let room = self.kept_bytes - self.kept.len();
                    self.kept.extend_from_slice(&chunk[..bytes.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Waits for the end of `child`, and reads its output; `None` if it did not end within `timeout`.
fn wait(child: &mut Child, timeout: Duration, kept_bytes: usize) -> Result<Option<Ended>, Errno> {
    let started = clock::monotonic();
    let process = pidfd_open(pid(child), PidfdFlags::empty())?;
    let mut output = Stream::new(child.stdout.take(), kept_bytes)?;
    let mut errors = Stream::new(child.stderr.take(), kept_bytes)?;
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
            let status =
                child.wait().map_err(|error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::CHILD))?;
            return Ok(Some(Ended { status, output: output.text(), errors: errors.text() }));
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Kills `child` and its descendants, and waits for its end.
fn end(child: &mut Child) {
    if let Err(error) = kill_process_group(pid(child), Signal::KILL) {
        tracing::warn!(%error, "a command cannot be killed");
    }
    if let Err(error) = child.wait() {
        tracing::warn!(%error, "a command that was killed cannot be waited for");
    }
}
