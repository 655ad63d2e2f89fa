//! Runs Ceph's own programs: `ceph`, `crushtool`, and on the OSD's host `systemctl` and `ceph-volume` or the operator's
//! replacements. They find the cluster as usual: from /etc/ceph, `CEPH_CONF` or `CEPH_ARGS`.

use crate::cluster::{Cluster, OsdId, Pg};
use crate::conversion::{OsdRecord, Shape};
use crate::dumps::{self, DUMPS, DumpError};
use disk::child::{self, Ended};
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

/// Maximum size of an answer, in bytes; `ceph pg dump` prints some 3 kB for each placement group.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Seconds in which a command must reach the monitors.
const CONNECT_S: &str = "15";

/// Reasons why a program failed.
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
        /// The time limit.
        timeout: Duration,
    },
    /// It failed.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: String,
        /// The last line that it wrote to standard error.
        output: String,
    },
    /// Its answer is not Ceph's output.
    #[error(transparent)]
    Answer(#[from] DumpError),
}

/// Runs `argv` and returns its standard output. Programs are searched in `path`, by default in `PATH`.
fn run(argv: &[String], path: Option<&str>, timeout: Duration) -> Result<String, CephError> {
    assert!(!argv.is_empty(), "a command has a program");
    let command = argv.join(" ");
    tracing::debug!(%command, "run");
    let mut program = Command::new(&argv[0]);
    program.args(&argv[1..]);
    if let Some(path) = path {
        program.env("PATH", path);
    }
    match child::run(&mut program, timeout, ANSWER_BYTES_MAX) {
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

impl CephError {
    /// True if `ceph-volume lvm zap --osd-id` found nothing to wipe: an earlier run did it.
    pub fn is_nothing_to_zap(&self) -> bool {
        let Self::Failed { command, output, .. } = self else { return false };
        command.starts_with("ceph-volume lvm zap ") && output.contains("Unable to find any LV for zapping OSD")
    }
}

/// The `ceph` command of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Ceph {
    /// Maximum time of a command.
    pub timeout: Duration,
    /// The search path for programs, instead of `PATH`: tests have their own.
    pub path: Option<&'static str>,
}

impl Default for Ceph {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(1), path: None }
    }
}

/// The output of `ceph tell osd.N dump_recovery_reservations`.
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
    /// The whole command with these `arguments`.
    pub fn argv(arguments: &[&str]) -> Vec<String> {
        let mut argv = words(&["ceph", "--connect-timeout", CONNECT_S]);
        argv.extend(words(arguments));
        argv
    }

    /// Runs it; returns its standard output.
    pub fn run(&self, arguments: &[&str]) -> Result<String, CephError> {
        self.program(&Self::argv(arguments), self.timeout)
    }

    /// Runs any program where `ceph` is found.
    pub fn program(&self, argv: &[String], timeout: Duration) -> Result<String, CephError> {
        run(argv, self.path, timeout)
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

    /// Marks the OSDs of `cluster` that are encrypted: their keys are in the monitors' store.
    pub fn mark_encrypted(&self, cluster: &mut Cluster) -> Result<(), CephError> {
        let keys: Vec<String> = dumps::decode("config-key ls", &self.json(&["config-key", "ls"])?)?;
        let uuids: Vec<&str> =
            (keys.iter()).filter_map(|key| Some(key.strip_prefix("dm-crypt/osd/")?.split_once('/')?.0)).collect();
        for osd in cluster.osds.values_mut() {
            osd.is_encrypted = uuids.contains(&osd.uuid.as_str());
        }
        Ok(())
    }

    /// The version of the OSD map, which every change of OSDs, pools and rules increments. A short request, which also
    /// shows if the monitors answer.
    pub fn epoch(&self) -> Result<u64, CephError> {
        #[derive(Deserialize)]
        struct Stat {
            epoch: u64,
        }
        let Stat { epoch } = dumps::decode("osd stat", &self.json(&["osd", "stat"])?)?;
        Ok(epoch)
    }

    /// The cluster's identity.
    pub fn fsid(&self) -> Result<String, CephError> {
        Ok(self.run(&["fsid"])?.trim().to_owned())
    }

    /// The placement groups with a copy on `osd`.
    pub fn pgs_of(&self, osd: OsdId) -> Result<Vec<Pg>, CephError> {
        Ok(dumps::pgs(&self.json(&["pg", "ls-by-osd", &osd.to_string()])?)?)
    }

    /// True if a recovery or backfill is reserved on `osd`, or waits for it.
    pub fn is_reserved(&self, osd: OsdId) -> Result<bool, CephError> {
        let text = self.json(&["tell", &osd.to_string(), "dump_recovery_reservations"])?;
        let reservations: Reservations = dumps::decode("dump_recovery_reservations", &text)?;
        Ok(!reservations.local_reservations.is_idle() || !reservations.remote_reservations.is_idle())
    }
}

/// The commands that stop, create and start an OSD on its host.
#[derive(Clone, Debug, Default)]
pub struct HostCommands {
    /// Stops the daemon; by default `systemctl stop ceph-osd@N`.
    pub stop: Option<String>,
    /// Wipes the devices and creates the OSD again; by default two commands of `ceph-volume lvm`.
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

    /// The commands that create the OSD again in the shape at the goal of `record`.
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

/// An operator's command with `{id}`, `{data}`, `{db}` and `{class}` filled in; the word `{db}` is left out when there
/// is no `block.db`.
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
