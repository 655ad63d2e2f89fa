//! Random concurrent histories with crashes, against what every actor knows to be acknowledged and a world of bytes.
//!
//! Clients put, overwrite and delete their keys; migrators pack staged versions; evacuators bring versions back;
//! reclaimers remove blobs without living versions. The world of bytes is a set of workshop files and of blobs: at
//! every read and after every crash, each place in the catalog must hold its bytes in this world.

use super::{blob, catalog_in, object, sound};
use crate::{Catalog, Displaced, Member, MemoryStore, Object, Place, PutCondition, SqliteStore, Store, VersionId};
use model::{BlobId, GroupId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const GROUPS: u32 = 2;
const CLIENTS: u64 = 4;
const KEYS_OF_A_CLIENT: u64 = 4;

/// The bytes in the world, and the knowledge of the clients.
#[derive(Default)]
struct World {
    files: BTreeMap<u64, VersionId>,
    blobs: BTreeMap<BlobId, Vec<Member>>,
    /// By key: the version that was acknowledged last, or `None`.
    acknowledged: BTreeMap<String, Option<VersionId>>,
    /// By key: what a request under way would make of it.
    pending: BTreeMap<String, Option<VersionId>>,
    moved: u64,
    evacuated: u64,
    forgotten: u64,
}

impl World {
    fn holds(&self, version: VersionId, place: Place) -> bool {
        match place {
            Place::Staged { slot } => self.files.get(&slot) == Some(&version),
            Place::Parts => self.files.values().any(|file| *file == version),
            Place::Stored { blob, offset } => self
                .blobs
                .get(&blob)
                .is_some_and(|members| members.iter().any(|m| m.version == version && m.offset == offset)),
        }
    }
}

/// An actor: its view of the world, and its dice.
struct Actor {
    catalog: Catalog,
    world: Arc<Mutex<World>>,
    dice: Rng,
    /// True if a read and a look at the world are one moment, as they are in virtual time.
    strict: bool,
}

impl Actor {
    fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world.lock().unwrap())
    }

    async fn pause(&mut self) {
        let micros = self.dice.below(8_000);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    async fn client(mut self, number: u64, rounds: u64) {
        for _ in 0..rounds {
            self.pause().await;
            let key = format!("{}/{number}", self.dice.below(KEYS_OF_A_CLIENT));
            match self.dice.below(4) {
                0 => self.delete(&key).await,
                1 => self.read().await,
                _ => self.put(&key).await,
            }
        }
    }

    async fn put(&mut self, key: &str) {
        let version = self.catalog.next_version_id().await.unwrap();
        let slot = self.catalog.next_slot().await.unwrap();
        self.world(|world| {
            world.files.insert(slot, version);
            world.pending.insert(key.to_owned(), Some(version));
        });
        let object = object(version, self.dice.below(50), self.dice.below(20));
        let displaced =
            self.catalog.put_object((&super::bucket(), key), &object, slot, &PutCondition::None).await.unwrap();
        self.acknowledge(key, Some(version), displaced);
    }

    async fn delete(&mut self, key: &str) {
        self.world(|world| world.pending.insert(key.to_owned(), None));
        let displaced = self.catalog.delete_object("b", key).await.unwrap();
        self.acknowledge(key, None, displaced);
    }

    fn acknowledge(&self, key: &str, version: Option<VersionId>, displaced: Displaced) {
        self.world(|world| {
            let before = world.acknowledged.insert(key.to_owned(), version).flatten();
            world.pending.remove(key);
            let reported = match displaced {
                Displaced::Nothing => None,
                Displaced::Staged { version, slots, .. } => {
                    for slot in slots {
                        assert_eq!(world.files.remove(&slot), Some(version));
                    }
                    Some(version)
                }
                Displaced::Dead { version, .. } => Some(version),
            };
            assert_eq!(reported, before, "{key} displaced what was acknowledged last");
        });
    }

    async fn read(&mut self) {
        let key = format!("{}/{}", self.dice.below(KEYS_OF_A_CLIENT), self.dice.below(CLIENTS));
        if let Ok((object, place)) = self.catalog.get_object("b", &key).await {
            let holds = self.world(|world| world.holds(object.version, place));
            assert!(holds || !self.strict, "{key} is not at {place:?}");
        }
    }

    async fn migrator(mut self, rounds: u64) {
        for _ in 0..rounds {
            self.pause().await;
            let limit = 1 + self.dice.below(6) as usize;
            let when = crate::StagedWhen::until(self.dice.below(25));
            let staged = self.catalog.staged_page(None, when, limit).await.unwrap().items;
            if !staged.is_empty() {
                self.migrate(&staged).await;
            }
        }
    }

    async fn migrate(&mut self, staged: &[crate::Version]) {
        let id = self.catalog.next_blob_id(7).await.unwrap();
        let mut offset = 0;
        let members: Vec<_> = staged
            .iter()
            .map(|v| {
                offset += v.bytes;
                Member { version: v.version, offset: offset - v.bytes, bytes: v.bytes }
            })
            .collect();
        let blob = blob(id, self.dice.below(GROUPS.into()) as u32, offset + 10, members.len());
        self.catalog.begin_blob(&blob).await.unwrap();
        self.pause().await;
        self.world(|world| world.blobs.insert(id, members.clone()));
        if self.dice.below(5) == 0 {
            self.catalog.abort_blob(id).await.unwrap().unwrap();
            return;
        }
        let outcome = self.catalog.commit_blob(&blob, &members).await.unwrap();
        self.world(|world| {
            for (version, slot) in outcome.moved {
                world.moved += 1;
                assert_eq!(world.files.remove(&slot), Some(version));
            }
        });
    }

    /// The object of a version in the rack, as the index of a pack names it.
    async fn key_of(&self, version: VersionId) -> Option<(String, String)> {
        let objects = self.catalog.sound_objects(None, 10_000).await.unwrap().items;
        let found = objects.into_iter().find(|(_, _, placed)| placed.object.version == version);
        found.map(|(bucket, key, _)| (bucket, key))
    }

    async fn evacuator(mut self, rounds: u64) {
        for _ in 0..rounds {
            self.pause().await;
            let blobs = self.catalog.blobs_page(None, 50).await.unwrap().items;
            if blobs.is_empty() {
                continue;
            }
            let id = blobs[self.dice.below(blobs.len() as u64) as usize].blob;
            for member in self.catalog.blob_members(id, None, 50).await.unwrap().items {
                let slot = self.catalog.next_slot().await.unwrap();
                self.world(|world| world.files.insert(slot, member.version));
                self.pause().await;
                let Some((bucket, key)) = self.key_of(member.version).await else {
                    self.world(|world| world.files.remove(&slot));
                    continue;
                };
                let moved = self.catalog.restage((&bucket, &key), member.version, id, slot).await.unwrap();
                self.world(|world| match moved {
                    Some(_) => world.evacuated += 1,
                    None => drop(world.files.remove(&slot)),
                });
            }
        }
    }

    async fn reclaimer(mut self, rounds: u64) {
        for _ in 0..rounds {
            self.pause().await;
            let group = GroupId(self.dice.below(GROUPS.into()) as u32);
            let dead = self.catalog.dead_page(group, None, 5).await.unwrap().items;
            for dead in dead.into_iter().filter(|dead| !dead.living) {
                self.world(|world| world.blobs.remove(&dead.blob.blob));
                self.pause().await;
                self.catalog.forget_blob(dead.blob.blob).await.unwrap();
                self.world(|world| world.forgotten += 1);
            }
        }
    }
}

/// Sets everybody to work.
fn crew(catalog: &Catalog, world: &Arc<Mutex<World>>, seed: u64, strict: bool, rounds: u64) -> JoinSet<()> {
    let actor =
        |salt| Actor { catalog: catalog.clone(), world: world.clone(), dice: Rng::for_thing(seed, salt), strict };
    let mut crew = JoinSet::new();
    for number in 0..CLIENTS {
        crew.spawn(actor(number).client(number, rounds));
    }
    crew.spawn(actor(100).migrator(rounds));
    crew.spawn(actor(101).migrator(rounds));
    crew.spawn(actor(102).evacuator(rounds));
    crew.spawn(actor(103).reclaimer(rounds));
    crew.spawn(actor(104).reclaimer(rounds));
    crew
}

/// The steps of a boot, and the conditions that must hold then.
async fn boot(catalog: &Catalog, world: &Arc<Mutex<World>>) {
    for intent in catalog.pending_intents().await.unwrap() {
        catalog.abort_blob(intent.blob).await.unwrap().unwrap();
    }
    let slots = catalog.staged_slots(None, usize::MAX).await.unwrap().items;
    let slots: BTreeSet<u64> = slots.into_iter().map(|staged| staged.slot).collect();
    world.lock().unwrap().files.retain(|slot, _| slots.contains(slot));
    let keys: Vec<_> = (0..CLIENTS).flat_map(|c| (0..KEYS_OF_A_CLIENT).map(move |k| format!("{k}/{c}"))).collect();
    for key in keys {
        let found: Option<(Object, Place)> = catalog.get_object("b", &key).await.ok();
        let mut world = world.lock().unwrap();
        let version = found.as_ref().map(|(object, _)| object.version);
        let before = world.acknowledged.get(&key).copied().flatten();
        let pending = world.pending.remove(&key);
        assert!(version == before || pending == Some(version), "{key}: {version:?}, acknowledged {before:?}");
        if let Some((object, place)) = found {
            assert!(world.holds(object.version, place), "{key} is not at {place:?}");
        }
        world.acknowledged.insert(key, version);
    }
    let audit = sound(catalog).await;
    let living = world.lock().unwrap().acknowledged.values().flatten().count() as u64;
    assert_eq!((audit.objects, audit.staged + audit.stored), (living, living));
}

/// Deletes everything and gives all space back; nothing must remain.
async fn clear(catalog: &Catalog) {
    let request = crate::ListRequest { max_keys: 1_000, ..crate::ListRequest::default() };
    for (key, _) in catalog.list_objects("b", &request).await.unwrap().objects {
        catalog.delete_object("b", &key).await.unwrap();
    }
    for group in 0..GROUPS {
        for dead in catalog.dead_page(GroupId(group), None, usize::MAX).await.unwrap().items {
            catalog.forget_blob(dead.blob.blob).await.unwrap();
        }
    }
    let audit = sound(catalog).await;
    assert_eq!((audit.objects, audit.staged, audit.stored, audit.blobs, audit.dead_bytes), (0, 0, 0, 0, 0));
    catalog.delete_bucket("b").await.unwrap();
}

async fn live_through_crashes(seed: u64) -> (u64, u64, u64) {
    let mut dice = Rng::for_thing(seed, 1_000);
    let mut store = MemoryStore::new().with_delay(Duration::from_millis(4));
    let world = Arc::new(Mutex::new(World::default()));
    let mut catalog = catalog_in(Arc::new(store.clone())).await;
    for epoch in 0..5 {
        let mut crew = crew(&catalog, &world, seed ^ (epoch << 32), true, 40);
        let end = tokio::time::sleep(Duration::from_micros(dice.below(300_000)));
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                done = crew.join_next() => match done {
                    Some(done) => done.unwrap(),
                    None => break,
                },
            }
        }
        store = store.crash();
        crew.abort_all();
        while let Some(ended) = crew.join_next().await {
            assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
        }
        catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
        boot(&catalog, &world).await;
    }
    clear(&catalog).await;
    let world = world.lock().unwrap();
    (world.moved, world.evacuated, world.forgotten)
}

#[test]
fn nothing_acknowledged_is_lost_whatever_crashes_when() {
    let mut total = (0, 0, 0);
    for seed in 0..150 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (moved, evacuated, forgotten) = runtime.block_on(live_through_crashes(seed));
        total = (total.0 + moved, total.1 + evacuated, total.2 + forgotten);
    }
    assert!(total.0 > 1_000 && total.1 > 100 && total.2 > 100, "the histories do something: {total:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crew_on_the_embedded_store_leaves_a_sound_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let world = Arc::new(Mutex::new(World::default()));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    let catalog = catalog_in(store).await;
    let mut crew = crew(&catalog, &world, 7, false, 60);
    let mut views = 0;
    while !crew.is_empty() {
        // A view is a sound catalog, regardless of concurrent changes.
        let view = catalog.view().await.unwrap();
        assert_eq!(view.audit().await.unwrap().findings, Vec::<String>::new(), "view {views}");
        views += 1;
        while let Some(done) = crew.try_join_next() {
            done.unwrap();
        }
    }
    assert!(views > 3, "there was something to look at: {views} views");
    boot(&catalog, &world).await;
    drop(catalog);
    let catalog = Catalog::open(Arc::new(SqliteStore::open(&path).unwrap())).await.unwrap();
    boot(&catalog, &world).await;
    clear(&catalog).await;
}
