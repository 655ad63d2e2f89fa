//! The object service over a catalog and drives in memory, as a server has it over files: nothing of it is faked.

use catalog::{Catalog, MemoryStore, User};
use disk::label::RackUuid;
use disk::{EmulatedRack, MemoryDrive};
use server::boot;
use server::config::Config;
use server::holds::Holds;
use server::object_service::ObjectService;
use server::pacing::Pacing;
use server::world::{Context, WorldCounters};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use workshop::{Spool, Staging};

/// The drives of the workshop and the rack, in bytes.
const DRIVE_BYTES: u64 = 1 << 30;
const WORKSHOP_BYTES: u64 = 512 << 20;
const SPOOL_BYTES: u64 = 64 << 20;
const SEED: u64 = 1;

/// A service with its counters, through which the engine reports the room that is left.
pub struct Site {
    pub service: ObjectService,
    pub counters: Arc<WorldCounters>,
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A user whose requests are signed with `access_key`.
fn user(name: &str, access_key: &str, secret: &str) -> User {
    let now_ms = wall_ms();
    let (name, access_key, secret) = (name.to_owned(), access_key.to_owned(), secret.to_owned());
    User { name, access_key, secret, created_ms: now_ms, rotated_ms: now_ms }
}

impl Site {
    /// A service with an empty catalog, but for Alice and Bob.
    pub async fn boot() -> Self {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == "nas8").unwrap();
        let spec = model::text::parse(text, "nas8").unwrap();
        let catalog = Catalog::open(Arc::new(MemoryStore::new())).await.unwrap();
        catalog.add_user(&user("alice", "ALICE", "alices secret")).await.unwrap();
        catalog.add_user(&user("bob", "BOB", "bobs secret")).await.unwrap();
        let clock = boot::clock(&catalog, wall_ms(), 1).await.unwrap();
        let medium = || Arc::new(MemoryDrive::new(DRIVE_BYTES)) as Arc<dyn disk::Drive>;
        let rack = Arc::new(EmulatedRack::new(&spec, SEED, Arc::clone(&clock), |_| medium()));
        let counters = Arc::new(WorldCounters::default());
        let context = Context {
            clock,
            wall: Arc::new(wall_ms),
            spawn: Arc::new(|task| drop(tokio::spawn(task))),
            drives: rack.drives().into(),
            rack_uuid: RackUuid([8; 16]),
            nonce: server::world::nonces(SEED),
            catalog,
            staging: Staging::new(medium(), WORKSHOP_BYTES),
            small: None,
            spool: Spool::new(medium(), SPOOL_BYTES),
            holds: Holds::default(),
            catalog_age: Arc::default(),
            recall_order: Arc::default(),
            pacing: Pacing::default(),
            pin_of: Arc::new(|_, _| None),
            counters: Arc::clone(&counters),
            processor: server::processor::Processor::Host,
            trace: None,
        };
        let policy = Config::default().rack_policy(&spec);
        let world = boot::boot(spec, policy, SEED, &context, rack).await.unwrap();
        Self { service: ObjectService::new(context, world, Duration::from_secs(45)), counters }
    }
}
