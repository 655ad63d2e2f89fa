//! Runs Ceph's own programs: `ceph`, `crushtool`, and on the OSD's host `systemctl` and `ceph-volume` or what the
//! operator uses instead. Which cluster is meant they know as always: from /etc/ceph, `CEPH_CONF` or `CEPH_ARGS`.

use crate::cluster::{Cluster, OsdId, Pg};
use crate::conversion::{OsdRecord, Shape};
use crate::dumps::{self, DUMPS, DumpError};
use disk::child::{self, Ended};
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

/// Bytes of an answer, at most; `ceph pg dump` prints some 3 kB for each placement group.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Seconds in which a command must have reached the monitors.
const CONNECT_S: &str = "15";

/// Why a program has not done what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CephError {
    /// It cannot be run.
    #[error("`{command}` cannot be run: {reason}")]
    NotRun {
        /// The command.
        command: String,
        /// The system's error.
        reason: String,
    },
    /// It did not end in time and was killed.
    #[error("`{command}` did not end within {timeout:?} and was killed; are the monitors reachable (`ceph -s`)?")]
    Timeout {
        /// The command.
        command: String,
        /// The time it had.
        timeout: Duration,
    },
    /// It failed.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: String,
        /// The last line that it wrote to standard error.
        output: String,
    },
    /// Its answer is not what Ceph prints.
    #[error(transparent)]
    Answer(#[from] DumpError),
}

/// Runs `argv` and gives back its standard output.
pub fn run(argv: &[String], timeout: Duration) -> Result<String, CephError> {
    assert!(!argv.is_empty(), "a command has a program");
    let command = argv.join(" ");
    tracing::debug!(%command, "run");
    let ended = child::run(Command::new(&argv[0]).args(&argv[1..]), timeout, ANSWER_BYTES_MAX);
    match ended {
        Err(error) => Err(CephError::NotRun { command, reason: error.to_string() }),
        Ok(None) => Err(CephError::Timeout { command, timeout }),
        Ok(Some(Ended { status, output, .. })) if status.success() => Ok(output),
        Ok(Some(Ended { status, errors, .. })) => Err(CephError::Failed {
            command,
            status: status.to_string(),
            output: errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_owned(),
        }),
    }
}

/// The words of a command.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The `ceph` command of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Ceph {
    /// How long a command may take.
    pub timeout: Duration,
}

impl Default for Ceph {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(1) }
    }
}

/// What `ceph tell osd.N dump_recovery_reservations` prints.
#[derive(Deserialize)]
struct Reservations {
    local_reservations: Reserver,
    remote_reservations: Reserver,
}

#[derive(Deserialize)]
struct Reserver {
    queues: Vec<serde_json::Value>,
    in_progress: Vec<serde_json::Value>,
}

impl Reserver {
    fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.in_progress.is_empty()
    }
}

impl Ceph {
    /// The whole command that `arguments` make.
    pub fn argv(arguments: &[&str]) -> Vec<String> {
        let mut argv = words(&["ceph", "--connect-timeout", CONNECT_S]);
        argv.extend(words(arguments));
        argv
    }

    /// Runs it; its standard output.
    pub fn run(&self, arguments: &[&str]) -> Result<String, CephError> {
        run(&Self::argv(arguments), self.timeout)
    }

    /// Runs it and asks for JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<String, CephError> {
        self.run(&[arguments, &["--format", "json"]].concat())
    }

    /// Reads the cluster.
    pub fn cluster(&self) -> Result<Cluster, CephError> {
        dumps::cluster(|name| {
            let dump = DUMPS.iter().find(|(dump, _)| *dump == name);
            self.json(dump.map_or(&[], |(_, argv)| argv))
        })
    }

    /// The cluster's identity.
    pub fn fsid(&self) -> Result<String, CephError> {
        Ok(self.run(&["fsid"])?.trim().to_owned())
    }

    /// The placement groups of which `osd` has a copy.
    pub fn pgs_of(&self, osd: OsdId) -> Result<Vec<Pg>, CephError> {
        Ok(dumps::pgs(&self.json(&["pg", "ls-by-osd", &osd.to_string()])?)?)
    }

    /// Whether a recovery or backfill is reserved on `osd`, or waits for it.
    pub fn is_reserved(&self, osd: OsdId) -> Result<bool, CephError> {
        let text = self.json(&["tell", &osd.to_string(), "dump_recovery_reservations"])?;
        let reservations: Reservations = dumps::decode("dump_recovery_reservations", &text)?;
        Ok(!reservations.local_reservations.is_idle() || !reservations.remote_reservations.is_idle())
    }
}

/// The commands that stop, make and start an OSD on its host.
#[derive(Clone, Debug, Default)]
pub struct HostCommands {
    /// Stops the daemon; by default `systemctl stop ceph-osd@N`.
    pub stop: Option<String>,
    /// Wipes the devices and makes the OSD anew; by default two commands of `ceph-volume lvm`.
    pub create: Option<String>,
    /// Starts the daemon.
    pub start: Option<String>,
}

impl HostCommands {
    /// The commands that stop the daemon.
    pub fn stop(&self, record: &OsdRecord) -> Vec<Vec<String>> {
        unit(self.stop.as_ref(), "stop", record)
    }

    /// The commands that start it.
    pub fn start(&self, record: &OsdRecord) -> Vec<Vec<String>> {
        unit(self.start.as_ref(), "start", record)
    }

    /// The commands that make the OSD anew in the shape that `record` leads to.
    pub fn create(&self, record: &OsdRecord) -> Vec<Vec<String>> {
        if let Some(own) = &self.create {
            return vec![filled(own, record)];
        }
        let id = record.osd.0.to_string();
        let mut create = words(&["ceph-volume", "lvm", "create", "--osd-id", &id, "--data", &record.data]);
        let Shape { class, has_db, .. } = record.wanted();
        if *has_db {
            create.extend(words(&["--block.db", &record.db]));
        }
        if let Some(class) = class {
            create.extend(words(&["--crush-device-class", class]));
        }
        vec![words(&["ceph-volume", "lvm", "zap", "--osd-id", &id, "--destroy"]), create]
    }
}

fn unit(own: Option<&String>, action: &str, record: &OsdRecord) -> Vec<Vec<String>> {
    let unit = || words(&["systemctl", action, &format!("ceph-osd@{}", record.osd.0)]);
    vec![own.map_or_else(unit, |own| filled(own, record))]
}

/// A command of the operator's with `{id}`, `{data}`, `{db}` and `{class}` filled in; the word `{db}` is left out when
/// there is to be none.
fn filled(command: &str, record: &OsdRecord) -> Vec<String> {
    let wanted = record.wanted();
    let fill = |word: &str| match word {
        "{db}" if !wanted.has_db => None,
        _ => Some(
            word.replace("{id}", &record.osd.0.to_string())
                .replace("{data}", &record.data)
                .replace("{db}", &record.db)
                .replace("{class}", wanted.class.as_deref().unwrap_or_default()),
        ),
    };
    command.split_whitespace().filter_map(fill).collect()
}
