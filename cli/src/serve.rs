//! `larder quickstart`, `init` and `serve`: make a data directory, open it, and serve it until a signal.

use crate::args::{Data, Init, Quickstart, Serve};
use crate::human::counted;
use crate::init_discover;
use crate::output;
use anyhow::{Context, bail};
use engine::IdleTimeout;
use server::REGION;
use server::app;
use server::config::Config;
use server::data_dir::{DataDir, InitOptions, RackSource, endpoint, read_rack};
use server::notices::{self, Notices};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The rack of a quickstart.
const QUICKSTART_RACK: &str = "pelican";
/// The age at which objects move to the rack in a directory that `init` makes. Operators who set up a rack with
/// redundancy expect their objects to get it.
const MIGRATE_OLDER_THAN: &str = "1 d";
/// The time the server waits, at its end, for system calls that have not returned.
const CALLS_END: Duration = Duration::from_secs(5);
/// The exit code of a process that a second interrupt ended.
const INTERRUPTED: i32 = 130;

/// `larder quickstart`.
pub fn quickstart(options: &Quickstart) -> anyhow::Result<()> {
    let path = &options.data.data;
    let dir = if DataDir::exists(path) { reused(options)? } else { first_made(options)? };
    let mut config = configured(&dir, options.port)?;
    if let Some(scale) = options.time_scale {
        config.time_scale = scale;
    }
    if let Some(idle) = options.idle_timeout {
        config.idle_timeout = idle.map_or(IdleTimeout::Never, IdleTimeout::After);
    }
    let shown = path.clone();
    let keys = dir.credentials().clone();
    let (setup, port) = (config.clone(), port_notice(&dir, options.port)?);
    run(dir, config, move |address| {
        let mut text = exports(&keys.access_key, &keys.secret_key, &endpoint(setup.tls.scheme(), address));
        let notices = Notices::of(&setup, address);
        let listening = address.ip().is_unspecified().then(|| format!("it listens on {address}"));
        let warning = notices.network.map(|warning| format!("warning: {warning}"));
        for sentence in listening.into_iter().chain(port).chain(warning).chain([notices.staging]) {
            let _ = writeln!(text, "# {sentence}");
        }
        text.push_str(&examples(&shown));
        text
    })
}

fn reused(options: &Quickstart) -> anyhow::Result<DataDir> {
    let dir = DataDir::open_to_serve(&options.data.data)?;
    if let Some(wanted) = &options.rack {
        let (_, wanted) = read_rack(wanted)?;
        if wanted.name != dir.rack().name {
            bail!(
                "{} holds the rack {}, not {}; omit --rack, or choose another directory with --data",
                options.data.data.display(),
                dir.rack().name,
                wanted.name
            );
        }
    }
    Ok(dir)
}

/// Makes a rack for trying things, with objects that move to the drives within a minute.
fn first_made(options: &Quickstart) -> anyhow::Result<DataDir> {
    let mut settings = vec![
        ("time_scale", options.time_scale.unwrap_or(1).to_string()),
        ("migrate.older_than", "\"30 s\"".to_owned()),
        ("migrate.linger", "\"10 s\"".to_owned()),
        ("migrate.scan_interval", "\"5 s\"".to_owned()),
    ];
    let mut listen = Config::default().listen;
    if let Some(port) = options.port {
        listen.set_port(port);
        settings.push(("listen", format!("\"{listen}\"")));
    }
    // A new directory keeps its port, so a port that is already taken must not be stored.
    app::can_listen(listen, "another with --port")?;
    let rack = options.rack.clone().unwrap_or_else(|| QUICKSTART_RACK.to_owned());
    let dir = DataDir::init(&options.data.data, &InitOptions { rack: rack.into(), settings, wipe: Vec::new() })?;
    tracing::info!(
        "created an emulated {} of {} in {}",
        dir.rack().name,
        counted(dir.rack().drives.len() as u64, "drive"),
        options.data.data.display()
    );
    Ok(dir)
}

/// `larder init`.
pub fn init(options: &Init) -> anyhow::Result<()> {
    let settings = vec![
        ("time_scale", options.time_scale.to_string()),
        ("migrate.older_than", format!("\"{MIGRATE_OLDER_THAN}\"")),
    ];
    if DataDir::exists(&options.data.data) {
        bail!(
            "{0} is a Larder data directory already; start it with `larder serve --data {0}`",
            options.data.data.display()
        );
    }
    let rack = match &options.rack {
        Some(named) => RackSource::Named(named.clone()),
        None => RackSource::Text(init_discover::description(options)?),
    };
    let dir = DataDir::init(&options.data.data, &InitOptions { rack, settings, wipe: options.wipe.clone() })?;
    let path = options.data.data.display();
    output::print(&format!(
        "created {path} for the rack {} of {}\n\
         the keys are in {path}/credentials, the configuration is {path}/larder.toml\n\
         {}\n\
         start it with: larder serve --data {path}\n",
        dir.rack().name,
        counted(dir.rack().drives.len() as u64, "drive"),
        notices::staging(&dir.config()?),
    ))?;
    Ok(())
}

/// `larder serve`.
pub fn serve(options: &Serve) -> anyhow::Result<()> {
    let Data { data } = &options.data;
    let dir = DataDir::open_to_serve(data)?;
    let config = configured(&dir, options.port)?;
    let shown = data.display().to_string();
    let (setup, port, message) = (config.clone(), port_notice(&dir, options.port)?, dir.stored_endpoint());
    run(dir, config, move |address| {
        let here = endpoint(setup.tls.scheme(), address);
        let on = if address.ip().is_unspecified() { format!("{address}, here {here}") } else { here.clone() };
        let mut text = format!("serving S3 on {on}\nthe keys are in {shown}/credentials\n");
        let elsewhere =
            message.filter(|message| (address.ip().is_loopback() || address.ip().is_unspecified()) && *message != here);
        let elsewhere =
            elsewhere.map(|message| format!("AWS_ENDPOINT_URL there is {message}, and the server is {here}"));
        let notices = Notices::of(&setup, address);
        let warning = notices.network.map(|warning| format!("warning: {warning}"));
        for sentence in elsewhere.into_iter().chain(port).chain([notices.staging]).chain(warning) {
            let _ = writeln!(text, "{sentence}");
        }
        text
    })
}

/// A notice if the port was chosen for this run, or is another one at every start.
fn port_notice(dir: &DataDir, port: Option<u16>) -> anyhow::Result<Option<String>> {
    let kept = dir.config()?.listen.port();
    let toml = dir.path().join("larder.toml");
    let toml = toml.display();
    Ok(match (port, kept) {
        (None | Some(0), 0) => {
            Some(format!("the port is a free one, and differs at every start; set `listen` in {toml} to choose one"))
        }
        (Some(port), _) if port != kept => {
            Some(format!("the port is for this run only; the next start uses `listen` in {toml} again, port {kept}"))
        }
        _ => None,
    })
}

fn configured(dir: &DataDir, port: Option<u16>) -> anyhow::Result<Config> {
    let mut config = dir.config()?;
    if let Some(port) = port {
        config.listen.set_port(port);
    }
    Ok(config)
}

/// Serves until a signal. As soon as requests are answered, prints the text of `announce`, and then `ready`.
fn run(
    dir: DataDir,
    config: Config,
    announce: impl FnOnce(SocketAddr) -> String + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("starting")?;
    let ended = runtime.block_on(async {
        let signals = Signals::watch().context("watching for signals")?;
        let ready = Box::new(move |address| {
            // The server runs even if its output has no reader.
            let _ = output::print(&format!("{}ready\n", announce(address)));
        });
        app::run(dir, config, ready, Box::pin(signals.first())).await?;
        tracing::info!("stopped");
        Ok(())
    });
    // A call to a drive that hangs cannot be cancelled, and may never return.
    runtime.shutdown_timeout(CALLS_END);
    ended
}

/// SIGINT and SIGTERM.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Watches from now on, instead of the end of the process.
    pub fn watch() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for the first signal, which stops the server in an orderly way. A second one ends the process at once,
    /// which loses nothing that was acknowledged.
    async fn first(mut self) {
        self.next().await;
        tracing::info!(
            "stopping: waiting for open requests, and for drives to go to sleep; a second signal stops at once"
        );
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }
}

fn exports(access_key: &str, secret_key: &str, endpoint: &str) -> String {
    format!(
        "export AWS_ACCESS_KEY_ID={access_key}\n\
         export AWS_SECRET_ACCESS_KEY={secret_key}\n\
         export AWS_DEFAULT_REGION={REGION}\n\
         export AWS_ENDPOINT_URL={endpoint}\n"
    )
}

/// Commands to try, with this program under the name by which it was called.
fn examples(data: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "larder".to_owned());
    let data = data.display();
    let mut text = String::from("\n# paste the lines above into another terminal, and then try:\n");
    for (line, what) in [
        ("aws s3 mb s3://attic".to_owned(), "create a bucket"),
        (format!("aws s3 cp {data}/rack.toml s3://attic/"), "copy a file into it; it is first stored in the workshop"),
        (format!("{program} status --data {data} --watch"), "watch it move to the rack"),
        (format!("{program} explain --data {data} s3://attic/rack.toml"), "show where it is stored"),
        ("aws s3 cp s3://attic/rack.toml ./copy.toml".to_owned(), "read it back, from sleeping drives"),
    ] {
        let _ = writeln!(text, "#   {line}   # {what}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_printed_can_be_read_by_a_shell() {
        let address = "0.0.0.0:4711".parse().unwrap();
        let text = exports("KEY", "SECRET", &endpoint("http", address)) + &examples(Path::new("./d"));
        assert!(text.contains("export AWS_ENDPOINT_URL=http://127.0.0.1:4711\n"));
        assert!(text.contains("export AWS_DEFAULT_REGION=us-east-1\n"));
        assert!(text.contains("s3 cp ./d/rack.toml s3://attic/ "), "what is copied is there");
        let shell = text.lines().all(|line| line.is_empty() || line.starts_with("export ") || line.starts_with('#'));
        assert!(shell, "{text}");
    }

    #[test]
    fn clients_are_shown_an_address_they_can_reach() {
        assert_eq!(endpoint("https", "[::]:1".parse().unwrap()), "https://[::1]:1");
        assert_eq!(endpoint("http", "192.0.2.1:9000".parse().unwrap()), "http://192.0.2.1:9000");
    }

    fn options(data: &Path, rack: Option<&str>) -> Quickstart {
        Quickstart {
            data: Data { data: data.to_owned() },
            port: Some(0),
            time_scale: None,
            idle_timeout: None,
            rack: rack.map(str::to_owned),
        }
    }

    #[test]
    fn a_quickstart_rack_migrates_soon_and_is_used_again() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("d");
        let made = first_made(&options(&data, Some("nas8"))).unwrap();
        assert_eq!(made.config().unwrap().migrate.older_than, Some(Duration::from_secs(30)));
        drop(made);
        assert_eq!(reused(&options(&data, None)).unwrap().rack().name, "nas8");
        let message = reused(&options(&data, Some("pelican"))).unwrap_err().to_string();
        assert!(message.contains("holds the rack nas8, not pelican; omit --rack"), "{message}");
    }
}
