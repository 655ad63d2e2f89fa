//! `larder ceph agent`: lets the drives of this host's cold OSDs sleep.

use crate::ceph_args::CephAgent;
use crate::human::{bytes, count, table};
use crate::output::{print, show, wait_for};
use anyhow::{Context, bail};
use ceph::OsdId;
use ceph::agent::{AgentRecord, Settings};
use ceph::record;
use ceph::world::Ceph;
use ceph::world::hold::Holds;
use ceph::world::lock::{self, Lock};
use ceph::world::serve::{Scope, node_policy, serve};
use ceph::world::windows::Windows;
use engine::SpinDownPolicy;
use std::time::Duration;

/// Maximum time for which a drive is kept spinning for deep scrubs that do not end.
const WINDOW_MAX: Duration = Duration::from_hours(12);

/// `larder ceph agent`.
pub fn agent(options: &CephAgent) -> anyhow::Result<()> {
    if options.status {
        return status(options);
    }
    let scope = scope(options)?;
    if options.release {
        let is_own_host = hostname().is_ok_and(|name| name == scope.host);
        if is_own_host && Lock::is_taken(&scope.folder, lock::AGENT) {
            bail!(
                "an agent runs on this host and owns the scrub windows; stop it (`systemctl stop larder-ceph-agent`), \
                 and it releases them"
            );
        }
        Holds::new(scope.ceph, &scope.host).release()?;
        let was_last = Windows::new(scope.ceph, &scope.host).release()?;
        let text = if was_last { "released" } else { "kept: the agent of another host uses them too" };
        return Ok(print(&format!("the scrub windows are {text}\n"))?);
    }
    let spin_down = SpinDownPolicy { min_gap: options.min_gap, keeps_exhausted: true };
    let settings = Settings {
        node: node_policy(&scope, options.idle, options.starts_per_day, spin_down)?,
        deep_scrub_every: options.deep_scrub_every,
        settle: options.every,
        window_max: WINDOW_MAX,
        hold_max: options.hold,
    };
    wait_for(async { Ok(serve(scope, settings).await?) })
}

fn scope(options: &CephAgent) -> anyhow::Result<Scope> {
    let osd = |name: &String| match name.strip_prefix("osd.").unwrap_or(name).parse() {
        Ok(id) => Ok(OsdId(id)),
        Err(_) => bail!("`{name}` is not an OSD; write one such as `osd.3`"),
    };
    Ok(Scope {
        ceph: Ceph::default(),
        host: options.host.clone().map_or_else(hostname, Ok)?,
        class: options.cold_class.clone(),
        osds: options.osds.iter().map(osd).collect::<Result<_, _>>()?,
        is_emulated: options.emulated,
        every: options.every,
        hold_max: options.hold,
        folder: options.state.clone(),
    })
}

fn hostname() -> anyhow::Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read this host's name from {path}; give it with --host"))?;
    Ok(name.trim().to_owned())
}

fn status(options: &CephAgent) -> anyhow::Result<()> {
    let path = Scope::record_path(&options.state);
    let Some(record) = record::read::<AgentRecord>(&path)? else {
        bail!("{} does not exist: no agent has run here", path.display());
    };
    show(options.json, &record, |record| {
        let row = |drive: &ceph::agent::DriveRecord| {
            let account = drive.account;
            let phase = format!("{:?}", drive.phase).to_lowercase();
            let counts = [account.sleeps, account.own_wakes, account.other_wakes, u64::from(account.starts)];
            let held = if drive.held_cost > 0 { bytes(drive.held_cost) } else { "-".to_owned() };
            [vec![drive.osd.to_string(), phase], counts.map(count).to_vec(), vec![held]].concat()
        };
        let head = ["OSD", "drive", "slept", "woken by agent", "woken by others", "starts of its last day", "held"];
        table(&head, &head[2..], record.drives.iter().map(row))
    })
}
