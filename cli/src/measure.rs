//! `larder drive measure`: measures the disks of a rack, and writes the figures into its description.
//!
//! It holds the data directory's lock, so no server runs, and measures one disk at a time, while all others are known
//! to stand still: under any limits of the rack, one drive may start.

use crate::drive_args::Measure;
use crate::human::{bytes, counted, seconds};
use crate::output::show;
use anyhow::{Context, bail, ensure};
use disk::clock;
use disk::device::DeviceDrive;
use disk::measure::{Figures, Measured, Trial, measure};
use disk::power::PowerMode;
use model::DriveId;
use serde::Serialize;
use server::data_dir::DataDir;
use std::time::Duration;

/// The answer. Spans are in seconds.
#[derive(Serialize)]
struct Report {
    drives: Vec<DriveFigures>,
    bytes_per_s: u64,
    zone_spread: f64,
    drive_spread: f64,
    seek_s: f64,
    spin_up_s: [f64; 2],
    mount_s: [f64; 2],
    unmount_s: [f64; 2],
    spin_down_s: [f64; 2],
    /// True if the description has these figures now.
    written: bool,
}

/// One drive of it.
#[derive(Serialize)]
struct DriveFigures {
    drive: u32,
    /// From the beginning of the drive to its end.
    zones_bytes_per_s: Vec<u64>,
    seek_s: f64,
    starts_s: Vec<f64>,
}

/// `larder drive measure`.
pub fn run(options: &Measure) -> anyhow::Result<()> {
    let dir = DataDir::open(&options.data.data)?;
    let devices = devices(&dir)?;
    let wanted = |drive: &DriveId| options.drives.is_empty() || options.drives.contains(&drive.0);
    if let Some(unknown) = options.drives.iter().find(|drive| !devices.iter().any(|(known, _)| known.0 == **drive)) {
        bail!(
            "drive {unknown} is not a disk of this rack; the rack's disks have a path below /dev/disk/by-id in \
             rack.toml"
        );
    }
    all_stand_still(&devices)?;
    let began = clock::monotonic();
    let mut all = Vec::new();
    for (drive, device) in devices.iter().filter(|(drive, _)| wanted(drive)) {
        let measured = measure(&mut device.to_measure(), &Trial::default(), &mut || began.elapsed());
        all.push((*drive, measured.with_context(|| format!("measuring drive {}; it was sent a stop", drive.0))?));
    }
    let figures = Figures::of(&all.iter().map(|(_, measured)| measured.clone()).collect::<Vec<_>>());
    let figures = figures.context("nothing was measured")?;
    if !options.dry_run {
        let rates: Vec<(DriveId, u64)> = all.iter().map(|(drive, own)| (*drive, own.bytes_per_s())).collect();
        dir.put_figures(&figures, &rates)?;
    }
    show(options.json, &report(&all, &figures, !options.dry_run), sentences)
}

/// The drives of the rack that are whole disks.
fn devices(dir: &DataDir) -> anyhow::Result<Vec<(DriveId, DeviceDrive)>> {
    let drives = dir.rack().drives.iter();
    let devices: Vec<_> = drives.filter_map(|drive| Some((drive.id, dir.device_drive(drive.id)?))).collect();
    ensure!(
        !devices.is_empty(),
        "no drive of this rack is a whole disk: the rack's description defines its emulated drives"
    );
    Ok(devices)
}

/// Refuses to start anything while another disk of the rack turns, or may.
fn all_stand_still(devices: &[(DriveId, DeviceDrive)]) -> anyhow::Result<()> {
    for (drive, device) in devices {
        match device.mode().with_context(|| format!("asking drive {} for its state", drive.0))? {
            PowerMode::Standby => {}
            mode => bail!(
                "drive {0} is not asleep ({mode:?}), and takes its share of the drives that may spin: let `larder \
                 serve` put it to sleep, or stop it with `larder drive power`",
                drive.0
            ),
        }
    }
    Ok(())
}

fn report(all: &[(DriveId, Measured)], figures: &Figures, written: bool) -> Report {
    let pair = |(min, max): (Duration, Duration)| [min.as_secs_f64(), max.as_secs_f64()];
    let drive = |(drive, measured): &(DriveId, Measured)| DriveFigures {
        drive: drive.0,
        zones_bytes_per_s: measured.zones.clone(),
        seek_s: measured.seek.as_secs_f64(),
        starts_s: measured.starts.iter().map(Duration::as_secs_f64).collect(),
    };
    Report {
        drives: all.iter().map(drive).collect(),
        bytes_per_s: figures.bytes_per_s,
        zone_spread: f64::from(figures.zone_permille) / 1000.0,
        drive_spread: f64::from(figures.drive_permille) / 1000.0,
        seek_s: figures.seek.as_secs_f64(),
        spin_up_s: pair(figures.spin_up),
        mount_s: pair(figures.mount),
        unmount_s: pair(figures.unmount),
        spin_down_s: pair(figures.spin_down),
        written,
    }
}

fn sentences(report: &Report) -> String {
    let range = |name: &str, [min, max]: [f64; 2]| format!("{name:<10}{} to {}\n", seconds(min), seconds(max));
    let drive = |drive: &DriveFigures| {
        let rates: Vec<String> = drive.zones_bytes_per_s.iter().map(|rate| bytes(*rate)).collect();
        format!("drive {}: {} per second, from its first zone to its last\n", drive.drive, rates.join(", "))
    };
    let rates = format!(
        "rate      {}/s, zones differ by {:.1} %, drives by {:.1} %\nseek      {:.1} ms\n",
        bytes(report.bytes_per_s),
        report.zone_spread * 100.0,
        report.drive_spread * 100.0,
        report.seek_s * 1000.0
    );
    let spans = [
        range("start", report.spin_up_s),
        range("mount", report.mount_s),
        range("unmount", report.unmount_s),
        range("stop", report.spin_down_s),
    ];
    let drives = counted(report.drives.len() as u64, "drive");
    let end = if report.written {
        format!(
            "[drive] in rack.toml now has the results of {drives}, and each drive its own rate; rack.toml.before is \
             the old description\n"
        )
    } else {
        format!("the results of {drives}; rack.toml was not changed\n")
    };
    report.drives.iter().map(drive).chain([rates]).chain(spans).chain([end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_said_with_what_became_of_them() {
        let span = Duration::from_secs;
        let measured = Measured {
            starts: vec![span(9)],
            zones: vec![200_000_000, 100_000_000],
            seek: Duration::from_millis(8),
            ..Measured::default()
        };
        let all = [(DriveId(3), measured)];
        let Some(figures) = Figures::of(&[all[0].1.clone()]) else { panic!("one was measured") };
        let text = sentences(&report(&all, &figures, true));
        for line in [
            "drive 3: 200.0 MB, 100.0 MB per second",
            "rate      150.0 MB/s, zones differ by 33.3 %, drives by 0.0 %\n",
            "seek      8.0 ms\n",
            "[drive] in rack.toml now has the results of 1 drive",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(sentences(&report(&all, &figures, false)).contains("rack.toml was not changed"));
    }
}
