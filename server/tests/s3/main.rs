//! The S3 front over real HTTP, before the object service in memory.

#![allow(clippy::unwrap_used)]

mod access;
mod client;
mod configuration;
mod copies;
mod faults;
mod gets;
mod hostile;
mod limits;
mod lists;
mod odd_keys;
mod puts;
mod refusals;
mod signatures;
mod site;
mod strict;
mod tagging;
mod uploads;
mod versions;

use client::{Call, Reply};
use faults::Faulty;
use s3::{AccessKeys, Frontend, HostDomain, S3Limits, Traffic, serve};
use server::world::WorldCounters;
use site::Site;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Users;

impl AccessKeys for Users {
    fn secret(&self, access_key: &str) -> Option<String> {
        match access_key {
            "ALICE" => Some("alices secret".into()),
            "BOB" => Some("bobs secret".into()),
            _ => None,
        }
    }

    fn user(&self, access_key: &str) -> Option<String> {
        self.secret(access_key).map(|_| access_key.to_lowercase())
    }
}

/// Requests to its subdomains are virtual-hosted style.
fn domain() -> Option<HostDomain> {
    HostDomain::new("s3.test")
}

/// A server with a bucket, `shelf`, that Alice owns.
struct Front {
    address: SocketAddr,
    store: Faulty,
    counters: Arc<WorldCounters>,
    traffic: Arc<Traffic>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<std::io::Result<()>>,
}

impl Front {
    async fn open() -> Self {
        Self::with(S3Limits::default()).await
    }

    async fn with(limits: S3Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let Site { service, counters } = Site::boot().await;
        let store = Faulty::new(Arc::new(service));
        let traffic = Traffic::new(&limits);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let frontend = Frontend::new(Arc::new(store.clone()), Arc::new(Users), traffic.clone(), domain());
        let running = tokio::spawn(serve(listener, frontend, None, Box::pin(shutdown)));
        let front = Self { address, store, counters, traffic, stop: Some(stop), running };
        assert_eq!(front.send(Call::new("PUT", "/shelf")).await.status, 200);
        front
    }

    async fn send(&self, call: Call) -> Reply {
        call.send(self.address).await
    }

    async fn put(&self, key: &str, body: &[u8]) -> Reply {
        self.send(Call::new("PUT", &format!("/shelf/{key}")).body(body)).await
    }

    async fn get(&self, key: &str) -> Reply {
        self.send(Call::new("GET", &format!("/shelf/{key}"))).await
    }
}

/// Waits until `done` holds, for a while.
async fn eventually(what: &str, done: impl Fn() -> bool) {
    for _ in 0..500 {
        if done() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
