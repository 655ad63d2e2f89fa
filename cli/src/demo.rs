//! `larder demo`: a first minute with Larder.
//!
//! A server of its own serves a small emulated rack in a temporary directory. A hundred files go through S3 into its
//! workshop and move to the drives; the drives fall asleep; a GET of one file wakes its group. Each step is waited for
//! within a limit, and what it cost is measured. On a terminal the rack is drawn meanwhile; otherwise, and with
//! `--plain`, each step is a paragraph.
//!
//! Invariant: the directory is removed at the end, also after an error or a signal.

mod client;
mod drawing;

use crate::args::Demo as Options;
use crate::human::{count, seconds, watts};
use crate::output;
use crate::serve::Signals;
use crate::window::Window;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use client::S3Client;
use drawing::{Drawing, drives, step};
use engine::layout::synthesise;
use model::{RackSpec, Rng};
use server::admin::Client;
use server::app;
use server::data_dir::{DataDir, InitOptions};
use server::report::{PlaceReport, Status};
use std::future::pending;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

const RACK: &str = "pelican-mini";
/// Fast enough for a minute, slow enough to be seen.
const TIME_SCALE: u32 = 3;
const SETTINGS: [(&str, &str); 6] = [
    ("listen", "\"127.0.0.1:0\""),
    ("idle_timeout", "\"10 s\""),
    ("migrate.older_than", "\"1 s\""),
    ("migrate.linger", "\"1 s\""),
    ("migrate.scan_interval", "\"500 ms\""),
    ("workshop.read_ahead", "false"),
];
const BUCKET: &str = "attic";
const FILES: u64 = 100;
const FILE_BYTES: usize = 256 << 10;
/// The file that is read.
const READ: u64 = 42;
/// The interval of looks at the rack.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// The maximum time of a step.
const STEP_MAX: Duration = Duration::from_secs(90);
/// The time that the server has to end.
const END_MAX: Duration = Duration::from_secs(20);
/// The time, after that, for system calls that have not returned.
const CALLS_END: Duration = Duration::from_secs(5);
/// The exit code after a signal.
const INTERRUPTED: u8 = 130;

/// `larder demo`.
pub fn demo(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::new().context("starting")?;
    let (done, folder) = runtime.block_on(async {
        // First, so that no signal leaves a directory.
        let mut ends = Ends::watch().context("watching for signals")?;
        let folder = TempDir::with_prefix("larder-demo-").context("making a directory for the demo; set TMPDIR")?;
        Ok::<_, anyhow::Error>((Box::pin(played(options, &folder, &mut ends)).await, folder))
    })?;
    runtime.shutdown_timeout(CALLS_END);
    let path = folder.path().to_owned();
    let removed = folder.close().with_context(|| format!("removing {}; remove it", path.display()));
    match (done, removed) {
        (Ok(true), Ok(())) => {
            output::print(&format!("{}\n", next()))?;
            Ok(ExitCode::SUCCESS)
        }
        (Ok(false), Ok(())) => {
            eprintln!("larder: interrupted; the demo's directory is removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        (Err(error), Err(left)) => {
            eprintln!("larder: {}", output::sentence(&left));
            Err(error)
        }
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The signals that end the demo: SIGINT, SIGTERM, and SIGHUP of a terminal that was closed.
struct Ends {
    signals: Signals,
    hangup: Signal,
}

impl Ends {
    fn watch() -> std::io::Result<Self> {
        Ok(Self { signals: Signals::watch()?, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        tokio::select! {
            () = self.signals.next() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Serves the demo's rack and plays the story; `false` after a signal.
async fn played(options: &Options, folder: &TempDir, ends: &mut Ends) -> anyhow::Result<bool> {
    let settings = SETTINGS.map(|(key, value)| (key, value.to_owned())).into_iter();
    let settings = settings.chain([("time_scale", TIME_SCALE.to_string())]).collect();
    let init = InitOptions { rack: RACK.to_owned().into(), settings, wipe: Vec::new() };
    let dir = DataDir::init(&folder.path().join("data"), &init)?;
    let (admin, keys) = (Client::of(dir.path())?, dir.credentials().clone());
    let (spec, config) = (dir.rack().clone(), dir.config()?);
    let (ready, is_ready) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let announce = Box::new(move |address| {
        // Without a receiver the demo has ended.
        let _ = ready.send(address);
    });
    let server = app::run(dir, config, announce, Box::pin(async { drop(stopped.await) }));
    let mut server = tokio::spawn(server);
    let story = async {
        // The server's own error says why it never is.
        let Ok(address) = is_ready.await else { return pending().await };
        let s3 = S3Client::new(address, BUCKET, &keys)?;
        Demo::new(options, admin, s3, spec)?.play().await
    };
    let done = tokio::select! {
        done = story => done.map(|()| true),
        () = ends.next() => Ok(false),
        ended = &mut server => {
            ended??;
            bail!("the demo's server ended early; `larder demo --log info` shows more");
        }
    };
    drop(stop);
    // A second signal ends the wait.
    tokio::select! {
        _ = tokio::time::timeout(END_MAX, server) => {}
        () = ends.next() => {}
    }
    done
}

/// The commands to try next.
fn next() -> String {
    let lines = [
        ("quickstart", "an emulated rack of 1,152 drives that stays, for any client"),
        ("plan nas8", "the groups and watts of a box of eight drives"),
        ("init --discover", "a data directory on the disks of this machine"),
        ("simulate scenarios/home.toml", "the speed of a rack, before you buy it"),
    ];
    let lines = lines.map(|(command, what)| format!("  larder {command:<30} {what}"));
    format!("\nThe demo's directory is removed. Next:\n\n{}", lines.join("\n"))
}

/// The story: server, client, drawing, and measurements.
struct Demo {
    admin: Client,
    s3: S3Client,
    spec: RackSpec,
    drawing: Drawing,
    /// The number of lines of the frame on the terminal, if frames are drawn.
    frame_lines: Option<usize>,
    steps: usize,
    stored: u64,
    /// Energy in joules beyond that of a sleeping rack, and the modelled time up to which it is counted.
    energy_j: f64,
    counted_s: f64,
    watts_max: f64,
}

impl Demo {
    fn new(options: &Options, admin: Client, s3: S3Client, spec: RackSpec) -> anyhow::Result<Self> {
        let is_drawn = !options.plain && std::io::stdout().is_terminal();
        let title = format!(
            "Larder on {RACK}: {} emulated drives, {TIME_SCALE} times as fast as real ones",
            count(spec.drives.len() as u64)
        );
        let drawing = Drawing::new(title.clone(), &synthesise(&spec)?, FILES, console::colors_enabled());
        let frame_lines = is_drawn.then_some(0);
        if frame_lines.is_none() {
            output::print(&format!("{title}\n"))?;
        }
        let (steps, stored, energy_j, counted_s, watts_max) = (0, 0, 0.0, 0.0, 0.0);
        Ok(Self { admin, s3, spec, drawing, frame_lines, steps, stored, energy_j, counted_s, watts_max })
    }

    async fn play(mut self) -> anyhow::Result<()> {
        within("store the files", self.store()).await?;
        within("move the files to its drives", self.migrate()).await?;
        within("fall asleep", self.fall_asleep()).await?;
        within("read a file", self.read()).await
    }

    async fn store(&mut self) -> anyhow::Result<()> {
        self.s3.create_bucket().await?;
        let began = self.look().await?;
        for number in 0..FILES {
            self.s3.put(&name(number), content(number)).await?;
            self.stored += 1;
            if number % 10 == 0 {
                self.look().await?;
            }
        }
        let took = seconds(self.look().await?.uptime_s - began.uptime_s);
        let size = FILE_BYTES >> 10;
        self.say(&format!(
            "{FILES} files of {size} KiB are stored through S3, in {took}. They are in the workshop, the server's own \
             disk, and no drive has to spin for that."
        ))
    }

    async fn migrate(&mut self) -> anyhow::Result<()> {
        let is_done =
            |status: &Status| status.workshop.staged_count == 0 && status.groups.initialised == status.groups.total;
        let status = self.until(is_done).await?;
        let (k, r) = (self.spec.code.data, self.spec.code.parity);
        self.say(&format!(
            "The files have moved to the drives, in packs. Each pack is coded over {} drives of a group, and any {k} \
             of them restore it. The first start also wakes every group once, to check its drives: {} starts in all.",
            k + r,
            count(status.totals.drive_starts),
        ))
    }

    async fn fall_asleep(&mut self) -> anyhow::Result<()> {
        let all = self.spec.drives.len() as u64;
        let status = self.until(|status| status.drives.standby == all).await?;
        let awake_mw = all * u64::from(self.spec.profile.watts.active_mw);
        self.say(&format!(
            "All {} drives sleep. They draw {}; spinning, they would draw {}.",
            count(all),
            watts(status.power.watts),
            watts(awake_mw as f64 / 1000.0),
        ))
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        let key = name(READ);
        let place = self.admin.explain(BUCKET, &key).await?.map(|explanation| explanation.place);
        let Some(PlaceReport::Rack(place)) = place else { bail!("{key} is not on the drives") };
        let forecast = place
            .wait_expected_s
            .map_or_else(String::new, |wait| format!(" The forecast: {} until its first byte.", seconds(wait)));
        self.say(&format!("GET s3://{BUCKET}/{key}, which is in group {}.{forecast}", place.group))?;
        let before = self.look().await?;
        (self.energy_j, self.watts_max) = (0.0, 0.0);
        let get = tokio::spawn({
            let (s3, key) = (self.s3.clone(), key.clone());
            async move { s3.get(&key).await }
        });
        let answered = self.until(|_| get.is_finished()).await?;
        ensure!(get.await?? == content(READ), "the bytes of {key} are not those that were stored; please report this");
        let all = self.spec.drives.len() as u64;
        let after = self.until(|status| status.drives.standby == all).await?;
        let started = after.totals.drive_starts - before.totals.drive_starts;
        let (wall_s, modelled_s) = (answered.uptime_s - before.uptime_s, answered.modelled_s - before.modelled_s);
        let (peak, energy_j) = (watts(self.watts_max), self.energy_j);
        self.say(&format!(
            "The bytes are the same. The read took {}, which is {} of the hardware's time, and started {} of {}. The \
             rack drew at most {peak}, and until all drives slept again the read cost about {energy_j:.0} J.",
            seconds(wall_s),
            seconds(modelled_s),
            drives(started),
            count(all),
        ))
    }

    /// Looks at the rack until `is_so`.
    async fn until(&mut self, is_so: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        loop {
            let status = self.look().await?;
            if is_so(&status) {
                return Ok(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The status, after a frame of it was drawn.
    async fn look(&mut self) -> anyhow::Result<Status> {
        let status = self.admin.status().await?;
        let above = (status.power.watts - status.power.standby_watts).max(0.0);
        self.energy_j += above * (status.modelled_s - self.counted_s).max(0.0);
        self.counted_s = status.modelled_s;
        self.watts_max = self.watts_max.max(status.power.watts);
        if let Some(lines) = self.frame_lines {
            let frame = self.drawing.frame(&status, &self.admin.drives().await?, self.stored);
            let frame =
                Window::of_stdout().map_or(frame.clone(), |window| window.fit(&frame, "a larger window shows all"));
            output::print(&format!("{}{frame}", erased(lines)))?;
            self.frame_lines = Some(frame.lines().count());
        }
        Ok(status)
    }

    /// Prints a step of the story, above the frame.
    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.steps += 1;
        let before = self.frame_lines.map_or_else(|| "\n".to_owned(), erased);
        output::print(&format!("{before}{}", step(self.steps, text)))?;
        if self.frame_lines.is_some() {
            output::print("\n")?;
            self.frame_lines = Some(0);
        }
        Ok(())
    }
}

/// A step of the story, with its limit; `does` names it.
async fn within(does: &str, step: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    if let Ok(done) = tokio::time::timeout(STEP_MAX, step).await {
        return done;
    }
    let limit = seconds(STEP_MAX.as_secs_f64());
    bail!("the demo's rack did not {does} within {limit}; `larder demo --log info` shows more")
}

/// The codes that erase the last `lines` lines.
fn erased(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}F\x1b[J") }
}

fn name(number: u64) -> String {
    format!("file-{number:03}")
}

/// The bytes of a file: the same at every call.
fn content(number: u64) -> Bytes {
    let mut rng = Rng::for_thing(0, number);
    (0..FILE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}
