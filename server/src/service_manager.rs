//! Notifications to a service manager: that requests are answered, that the server stops, and that it is alive. The
//! protocol is systemd's `sd_notify(3)`: datagrams of `NAME=VALUE` lines to the socket that the environment names.
//!
//! The sign of life is an answer of the task that owns the engine: without that task, nothing moves.

use crate::world::WorldHandle;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Signs of life in the time after which a service manager considers the server dead.
const SIGNS_PER_LIMIT: u32 = 3;

/// The service manager that started this process, if it waits for notifications.
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// The service manager in the environment; `None` without one, or if it cannot be reached, which is logged.
    pub fn of_environment() -> Option<Self> {
        let name = std::env::var("NOTIFY_SOCKET").ok().filter(|name| !name.is_empty())?;
        let found = address(&name).and_then(|address| Ok(Self { socket: UnixDatagram::unbound()?, address }));
        found.inspect_err(|error| tracing::warn!(%error, "the service manager cannot be reached at {name}")).ok()
    }

    /// Sends `state`, for example `READY=1`.
    pub fn notify(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, "cannot send {state} to the service manager");
        }
    }

    /// Sends signs of life while `world` answers, as often as the environment asks for; never ends.
    pub async fn give_signs_of_life(&self, world: &WorldHandle) {
        let Some(limit) = watchdog_limit(|name| std::env::var(name).ok(), std::process::id()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(limit / SIGNS_PER_LIMIT).await;
            if world.ask(|_, _| ()).await.is_some() {
                self.notify("WATCHDOG=1");
            }
        }
    }
}

/// The time without a sign after which the process `id` is considered dead, by the variables of the environment `of`.
fn watchdog_limit(of: impl Fn(&str) -> Option<String>, id: u32) -> Option<Duration> {
    let meant = of("WATCHDOG_PID").is_none_or(|meant| meant == id.to_string());
    let limit_us = of("WATCHDOG_USEC")?.parse::<u64>().ok()?;
    (meant && limit_us > 0).then(|| Duration::from_micros(limit_us))
}

/// The address of a name: a path, or after an `@` a name in Linux's abstract space.
fn address(name: &str) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_notified_arrives_at_a_path_and_at_a_name() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("notify");
        let name = path.display().to_string();
        for name in [name.clone(), format!("@{name}")] {
            let address = address(&name).unwrap();
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            ServiceManager { socket: UnixDatagram::unbound().unwrap(), address }.notify("READY=1");
            let mut bytes = [0; 16];
            let length = manager.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
    }

    #[test]
    fn signs_of_life_are_given_only_where_they_are_asked_for() {
        let limit = |pid: Option<&str>, limit: Option<&str>| {
            watchdog_limit(|name| if name == "WATCHDOG_PID" { pid } else { limit }.map(str::to_owned), 7)
        };
        assert_eq!(limit(Some("7"), Some("30000000")), Some(Duration::from_secs(30)));
        assert_eq!(limit(None, Some("1")), Some(Duration::from_micros(1)));
        assert_eq!(limit(Some("8"), Some("30000000")), None, "another process");
        assert_eq!(limit(Some("7"), None), None);
        assert_eq!(limit(Some("7"), Some("0")), None);
        assert_eq!(limit(Some("7"), Some("soon")), None);
    }
}
