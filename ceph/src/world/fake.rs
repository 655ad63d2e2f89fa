//! A made-up cluster for tests of this folder: scripts that answer like Ceph's programs (`ceph/tests/fake`), over the
//! dumps of a cluster that is not converted yet, and a log of the commands.

#![allow(clippy::unwrap_used)]

use crate::cluster::OsdId;
use crate::world::drives::HostDrive;
use crate::world::tools::Ceph;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The OSD that tests are about.
pub const OSD: OsdId = OsdId(3);

pub struct Fake {
    folder: tempfile::TempDir,
    pub ceph: Ceph,
}

impl Fake {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        for from in ["fake", "dumps/ordinary"] {
            for entry in fs::read_dir(tests.join(from)).unwrap().map(Result::unwrap) {
                fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        fs::copy(tests.join("dumps/converted/pg-ls-by-osd.json"), folder.path().join("pg-ls-by-osd.json")).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let ceph = Ceph { timeout: Duration::from_mins(1), path: Some(path.leak()) };
        let fake = Self { folder, ceph };
        fake.write("keys.json", "{}");
        fake.write("epoch", "7");
        fs::create_dir(fake.path("block")).unwrap();
        fake.write("block/stat", "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
        fake
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Changes the cluster like that command.
    pub fn change(&self, words: &[&str]) {
        assert!(Command::new("python3").arg(self.path("change.py")).args(words).status().unwrap().success());
    }

    /// The commands since the last call, without the options that all have, and without plain queries of the cluster.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        self.write("log", "");
        let asked = text.lines().map(|line| line.replace("ceph --connect-timeout 15", "ceph"));
        asked.filter(|line| !line.ends_with("--format json")).collect()
    }

    /// The number of all commands since the last call.
    pub fn count(&self) -> usize {
        let count = fs::read_to_string(self.path("log")).unwrap_or_default().lines().count();
        self.write("log", "");
        count
    }

    /// A drive of [`OSD`] whose counters are in `block/stat`.
    pub fn drive(&self) -> HostDrive {
        HostDrive::emulated(OSD, "sdx", self.path("block"))
    }
}
