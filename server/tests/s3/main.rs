//! The S3 front over real HTTP, before an object store in memory.

#![allow(clippy::unwrap_used)]

mod access;
mod client;
mod configuration;
mod copies;
mod fake;
mod gets;
mod hostile;
mod limits;
mod lists;
mod odd_keys;
mod puts;
mod refusals;
mod signatures;
mod strict;
mod tagging;
mod uploads;
mod versions;

use client::{Call, Reply};
use fake::Fake;
use s3::{Domain, Keys, Limits, Traffic, serve};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Users;

impl Keys for Users {
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
fn domain() -> Option<Domain> {
    Domain::new("s3.test")
}

/// A server with a bucket, `shelf`, of Alice's.
struct House {
    address: SocketAddr,
    store: Fake,
    traffic: Arc<Traffic>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<std::io::Result<()>>,
}

impl House {
    async fn open() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Fake::new();
        let traffic = Traffic::new(&limits);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let running = tokio::spawn(serve(
            listener,
            Arc::new(store.clone()),
            Arc::new(Users),
            traffic.clone(),
            domain(),
            shutdown,
        ));
        let house = Self { address, store, traffic, stop: Some(stop), running };
        assert_eq!(house.send(Call::new("PUT", "/shelf")).await.status, 200);
        house
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
