//! Measures a disk: the time of a start, mount, unmount and stop, the read rate of each of its zones, and the time of a
//! seek.
//!
//! 1. The disk is stopped, so that its initial state is known.
//! 2. It is started, mounted, unmounted and stopped the requested number of times, and each step is timed. During the
//!    last round, while nothing is mounted, it is read past the page cache: zones that are spread evenly from its
//!    beginning to its end, and then single blocks at random places.
//! 3. If any step fails, it is stopped.
//!
//! Only the mount of a clean file system writes to it. The caller measures disks one at a time, and [`Figures`] sums
//! them up.
//!
//! Invariant: the last command to a measured disk is a stop, also after an error.

use crate::{ALIGNMENT_BYTES, Buffer, DriveError};
use model::Rng;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Size of a request while a zone is read.
const REQUEST_BYTES: usize = 1 << 20;

/// A disk that can be measured. Calls block until they are done.
pub trait Subject {
    /// Starts the platters; returns when they are at speed.
    ///
    /// # Errors
    /// [`DriveError`], as of the other calls.
    fn start(&mut self) -> Result<(), DriveError>;
    /// Mounts the file system.
    ///
    /// # Errors
    /// [`DriveError`].
    fn mount(&mut self) -> Result<(), DriveError>;
    /// Unmounts it.
    ///
    /// # Errors
    /// [`DriveError`].
    fn unmount(&mut self) -> Result<(), DriveError>;
    /// Stops the platters; returns when they have stopped.
    ///
    /// # Errors
    /// [`DriveError`].
    fn stop(&mut self) -> Result<(), DriveError>;
    /// The data on the platters, for reading while they turn and nothing is mounted.
    ///
    /// # Errors
    /// [`DriveError`].
    fn medium(&mut self) -> Result<Medium, DriveError>;
}

/// The extent of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Starts, at least 1.
    pub starts: u32,
    /// Zones that are read, at least 2.
    pub zones: u32,
    /// Bytes read from each zone.
    pub zone_bytes: u64,
    /// Single blocks to read.
    pub seeks: u32,
}

impl Default for Trial {
    /// Two starts and about 600 MB: less than a minute for most disks.
    fn default() -> Self {
        Self { starts: 2, zones: 9, zone_bytes: 64 << 20, seeks: 100 }
    }
}

/// The measurements of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Each start.
    pub starts: Vec<Duration>,
    /// Each mount.
    pub mounts: Vec<Duration>,
    /// Each unmount.
    pub unmounts: Vec<Duration>,
    /// Each stop.
    pub stops: Vec<Duration>,
    /// The rate of each zone, from the beginning of the disk to its end, in bytes/s.
    pub zones: Vec<u64>,
    /// The average time of reading a single block.
    pub seek: Duration,
}

impl Measured {
    /// Its mean rate, in bytes/s.
    pub fn bytes_per_s(&self) -> u64 {
        mean(&self.zones)
    }
}

/// Measures `disk` by the clock `now`.
///
/// # Errors
/// [`DriveError`] of the step that failed.
pub fn measure(
    disk: &mut impl Subject,
    trial: &Trial,
    now: &mut dyn FnMut() -> Duration,
) -> Result<Measured, DriveError> {
    assert!(trial.starts > 0 && trial.zones > 1 && trial.seeks > 0, "there is something to be measured");
    disk.stop()?;
    let measured = rounds(disk, trial, now);
    if measured.is_err() {
        // The error of the step is the relevant one.
        let _ = disk.stop();
    }
    measured
}

fn rounds(disk: &mut impl Subject, trial: &Trial, now: &mut dyn FnMut() -> Duration) -> Result<Measured, DriveError> {
    let mut measured = Measured::default();
    for round in 1..=trial.starts {
        measured.starts.push(timed(now, || disk.start())?);
        measured.mounts.push(timed(now, || disk.mount())?);
        measured.unmounts.push(timed(now, || disk.unmount())?);
        if round == trial.starts {
            let medium = disk.medium()?;
            measured.zones = zones(&medium, trial, now)?;
            measured.seek = seek(&medium, trial, now)?;
        }
        measured.stops.push(timed(now, || disk.stop())?);
    }
    Ok(measured)
}

fn timed(
    now: &mut dyn FnMut() -> Duration,
    step: impl FnOnce() -> Result<(), DriveError>,
) -> Result<Duration, DriveError> {
    let began = now();
    step()?;
    Ok(now().saturating_sub(began))
}

/// The rate of each zone, in bytes/s.
fn zones(medium: &Medium, trial: &Trial, now: &mut dyn FnMut() -> Duration) -> Result<Vec<u64>, DriveError> {
    let requests = (trial.zone_bytes / REQUEST_BYTES as u64).max(1);
    let zone_bytes = requests * REQUEST_BYTES as u64;
    let last = medium.bytes.checked_sub(zone_bytes).ok_or_else(|| too_small(medium.bytes, zone_bytes))?;
    let mut buffer = Buffer::zeroed(REQUEST_BYTES);
    let mut rates = Vec::new();
    for zone in 0..u64::from(trial.zones) {
        let from = aligned(last / u64::from(trial.zones - 1) * zone);
        // The first request includes the seek.
        medium.read(from, &mut buffer)?;
        let began = now();
        for request in 1..requests.max(2) {
            medium.read(from + request % requests * REQUEST_BYTES as u64, &mut buffer)?;
        }
        let took = now().saturating_sub(began).max(Duration::from_micros(1));
        let read_bytes = (requests.max(2) - 1) * REQUEST_BYTES as u64;
        rates.push((u128::from(read_bytes) * 1_000_000 / took.as_micros()) as u64);
    }
    Ok(rates)
}

/// The average time of reading a block at random places.
fn seek(medium: &Medium, trial: &Trial, now: &mut dyn FnMut() -> Duration) -> Result<Duration, DriveError> {
    let mut rng = Rng::new(medium.bytes);
    let mut buffer = Buffer::zeroed(ALIGNMENT_BYTES);
    let began = now();
    for _ in 0..trial.seeks {
        let at = rng.below(medium.bytes - ALIGNMENT_BYTES as u64);
        medium.read(aligned(at), &mut buffer)?;
    }
    Ok(now().saturating_sub(began) / trial.seeks)
}

fn aligned(offset: u64) -> u64 {
    offset / ALIGNMENT_BYTES as u64 * ALIGNMENT_BYTES as u64
}

fn too_small(bytes: u64, zone_bytes: u64) -> DriveError {
    let source = io::Error::other(format!("a disk of {bytes} bytes is too small to read zones of {zone_bytes} bytes"));
    DriveError::Io { context: "measuring".into(), source }
}

/// The data on the platters: a device, or a file in its place.
pub struct Medium {
    file: File,
    bytes: u64,
}

impl Medium {
    /// Opens the device or file at `path`, which has `bytes` bytes, for reading past the page cache, or through it if
    /// the file system supports nothing else.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(direct).open(path);
        let file = match file {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => File::open(path)?,
            file => file?,
        };
        Ok(Self { file, bytes })
    }

    fn read(&self, offset: u64, into: &mut Buffer) -> Result<(), DriveError> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| DriveError::of_system(format!("reading {} bytes at {offset}", into.len()), error))
    }
}

/// The common figures of several disks of a kind, for a rack description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The mean rate, in bytes/s.
    pub bytes_per_s: u64,
    /// The deviation of the fastest and the slowest zone from the mean, in thousandths.
    pub zone_permille: u16,
    /// The maximum deviation of a whole disk from the mean, in thousandths.
    pub drive_permille: u16,
    /// The average seek.
    pub seek: Duration,
    /// The shortest and the longest start.
    pub spin_up: (Duration, Duration),
    /// The shortest and the longest mount.
    pub mount: (Duration, Duration),
    /// The shortest and the longest unmount.
    pub unmount: (Duration, Duration),
    /// The shortest and the longest stop.
    pub spin_down: (Duration, Duration),
}

/// Maximum spread of rates in a description, in thousandths.
const SPREAD_MAX: u64 = 499;

impl Figures {
    /// The figures of these disks; `None` without any.
    pub fn of(disks: &[Measured]) -> Option<Self> {
        let means: Vec<u64> = disks.iter().map(Measured::bytes_per_s).collect();
        let bytes_per_s = mean(&means);
        if bytes_per_s == 0 {
            return None;
        }
        let spreads: Vec<u64> = disks.iter().map(|disk| spread(&disk.zones)).collect();
        let off = means.iter().map(|own| own.abs_diff(bytes_per_s).saturating_mul(1000) / bytes_per_s).max();
        let seeks: Duration = disks.iter().map(|disk| disk.seek).sum();
        Some(Self {
            bytes_per_s,
            zone_permille: mean(&spreads) as u16,
            drive_permille: off.unwrap_or(0).min(SPREAD_MAX) as u16,
            seek: seeks / disks.len() as u32,
            spin_up: bounds(disks, |disk| &disk.starts),
            mount: bounds(disks, |disk| &disk.mounts),
            unmount: bounds(disks, |disk| &disk.unmounts),
            spin_down: bounds(disks, |disk| &disk.stops),
        })
    }
}

fn mean(numbers: &[u64]) -> u64 {
    numbers.iter().sum::<u64>() / (numbers.len() as u64).max(1)
}

/// Half the difference between the fastest and the slowest zone, in thousandths of their average.
fn spread(zones: &[u64]) -> u64 {
    let (fastest, slowest) = (zones.iter().max().unwrap_or(&0), zones.iter().min().unwrap_or(&0));
    ((fastest - slowest) * 1000 / (fastest + slowest).max(1)).min(SPREAD_MAX)
}

fn bounds(disks: &[Measured], spans: impl Fn(&Measured) -> &Vec<Duration>) -> (Duration, Duration) {
    let all = || disks.iter().flat_map(|disk| spans(disk).iter().copied());
    (all().min().unwrap_or_default(), all().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::path::PathBuf;

    /// A disk in a file, with simulated time.
    struct Made<'a> {
        path: PathBuf,
        bytes: u64,
        time: &'a Cell<Duration>,
        steps: &'a RefCell<Vec<&'static str>>,
        fails_at: Option<&'static str>,
    }

    impl Made<'_> {
        fn step(&self, name: &'static str, ms: u64) -> Result<(), DriveError> {
            self.time.set(self.time.get() + Duration::from_millis(ms));
            self.steps.borrow_mut().push(name);
            if self.fails_at == Some(name) { Err(DriveError::NotReady("made to fail")) } else { Ok(()) }
        }
    }

    impl Subject for Made<'_> {
        fn start(&mut self) -> Result<(), DriveError> {
            self.step("start", 9000)
        }
        fn mount(&mut self) -> Result<(), DriveError> {
            self.step("mount", 700)
        }
        fn unmount(&mut self) -> Result<(), DriveError> {
            self.step("unmount", 300)
        }
        fn stop(&mut self) -> Result<(), DriveError> {
            self.step("stop", 500)
        }
        fn medium(&mut self) -> Result<Medium, DriveError> {
            self.step("medium", 0)?;
            Medium::open(&self.path, self.bytes).map_err(|error| DriveError::of_system("opening".into(), error))
        }
    }

    const SMALL: Trial = Trial { starts: 2, zones: 5, zone_bytes: 2 << 20, seeks: 10 };

    fn tried(bytes: u64, fails_at: Option<&'static str>) -> (Result<Measured, DriveError>, Vec<&'static str>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let (time, steps) = (Cell::new(Duration::ZERO), RefCell::default());
        let mut disk = Made { path, bytes, time: &time, steps: &steps, fails_at };
        // Each reading of the clock takes a millisecond; apart from that only the steps take time.
        let now = &mut || {
            time.set(time.get() + Duration::from_millis(1));
            time.get()
        };
        let measured = measure(&mut disk, &SMALL, now);
        (measured, steps.into_inner())
    }

    #[test]
    fn each_step_has_its_time_and_the_disk_is_asleep_before_and_after() {
        let (measured, steps) = tried(16 << 20, None);
        let measured = measured.unwrap();
        let ms = |spans: &[Duration]| spans.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!((ms(&measured.starts), ms(&measured.mounts)), (vec![9001, 9001], vec![701, 701]));
        assert_eq!((ms(&measured.unmounts), ms(&measured.stops)), (vec![301, 301], vec![501, 501]));
        assert_eq!(measured.zones, [1_048_576_000; 5], "a MiB in the millisecond of a look at the clock");
        assert_eq!(measured.seek, Duration::from_micros(100));
        let round = ["start", "mount", "unmount"];
        let expected = [&["stop"][..], &round, &["stop"], &round, &["medium", "stop"]].concat();
        assert_eq!(steps, expected);
    }

    #[test]
    fn whatever_fails_the_disk_is_stopped() {
        for step in ["start", "mount", "unmount", "medium"] {
            let (measured, steps) = tried(16 << 20, Some(step));
            assert!(matches!(measured, Err(DriveError::NotReady(_))), "{step}");
            assert_eq!(steps[steps.len() - 2..], [step, "stop"]);
        }
        let (measured, steps) = tried(16 << 20, Some("stop"));
        assert!(measured.is_err() && steps == ["stop"], "what does not stop is not started");
        let (measured, steps) = tried(1 << 20, None);
        assert!(measured.unwrap_err().to_string().contains("too small") && steps.last() == Some(&"stop"));
    }

    #[test]
    fn disks_of_a_kind_have_figures_in_common() {
        let disk = |zones: &[u64], seek_ms, start_s: &[u64]| Measured {
            starts: start_s.iter().map(|s| Duration::from_secs(*s)).collect(),
            zones: zones.to_vec(),
            seek: Duration::from_millis(seek_ms),
            ..Measured::default()
        };
        let disks = [disk(&[200, 150, 100], 8, &[9, 11]), disk(&[180, 140, 100], 10, &[8])];
        let figures = Figures::of(&disks).unwrap();
        assert_eq!((figures.bytes_per_s, figures.drive_permille), (145, 34));
        assert_eq!(figures.zone_permille, 309);
        assert_eq!((figures.seek.as_millis(), figures.spin_up.0.as_secs(), figures.spin_up.1.as_secs()), (9, 8, 11));
        assert_eq!(Figures::of(&[]), None);
    }
}
