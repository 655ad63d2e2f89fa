//! Slow readers: each reads an object of several recalls piece by piece, while the object is overwritten or deleted. So
//! they read a version whose blob is dead, and whose group wakes and reclaims, long before they finish.
//!
//! The spool is small ([`Plan::of`]), so most of the data is ordered after the blob has died.

use crate::answers::{Answer, Clients};
use crate::plan::{Item, Life, Plan, Stream};
use crate::reference::{At, Reference};
use crate::site::{BUCKET, Running};
use catalog::{Place, PutCondition};
use model::Rng;
use std::time::Duration;

/// Maximum time that a reader waits until its object is in the rack, and again until it receives the object.
const PATIENCE: Duration = Duration::from_mins(30);

/// Time between two checks.
const LOOK: Duration = Duration::from_secs(20);

/// The number of the reader among the clients of a life: above theirs.
pub(crate) const CLIENT: u64 = 64;

/// Objects that the reader of a life reads.
pub(crate) fn ops(life: &Life) -> u64 {
    life.ops.div_ceil(15)
}

/// The slow reader of a life, if the plan has one.
pub(crate) async fn live(running: &Running, reference: &Reference, plan: &Plan, (round, life): (u64, &Life)) {
    if !plan.slow_readers {
        return;
    }
    let clients = Clients { running, reference, plan, store: &running.service };
    for op in 0..ops(life) {
        if !plan.is_dropped(Item::Op { round, client: CLIENT, op }) {
            let rng = Stream::Client { round, client: CLIENT, op }.of(plan.seed);
            SlowReader { clients, rng }.act().await;
        }
    }
}

struct SlowReader<'a> {
    clients: Clients<'a>,
    rng: Rng,
}

impl SlowReader<'_> {
    async fn act(mut self) {
        let at: At = (BUCKET.to_owned(), format!("slow/{}", self.rng.below(2)));
        if self.put(&at).await == Answer::Done && self.migrates(&at).await {
            self.read(&at).await;
        }
    }

    async fn put(&mut self, at: &At) -> Answer {
        let spool_bytes = self.clients.plan.spool_bytes;
        let object = (self.rng.next_u64() >> 8, self.rng.between(spool_bytes / 2, spool_bytes));
        self.clients.judged_put(at, object, PutCondition::None).await
    }

    /// Waits until the object is in the rack. False if that takes too long.
    async fn migrates(&self, at: &At) -> bool {
        let began = disk::clock::monotonic();
        while began.elapsed() < PATIENCE {
            let placed = self.clients.running.context.catalog.get_object(&at.0, &at.1).await;
            if matches!(placed, Ok((_, Place::Stored { .. }))) {
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        false
    }

    /// Reads at its own pace, as soon as it may. The object is changed after the first piece.
    async fn read(&mut self, at: &At) {
        let clients = self.clients;
        let pause_s = self.rng.between(1, 60);
        let (is_deleted, other) = (self.rng.below(2) == 0, (self.rng.next_u64() >> 8, 9_000));
        let mut changed = false;
        let mut pace = async || {
            if !std::mem::replace(&mut changed, true) {
                if is_deleted {
                    clients.judged_delete(at, PutCondition::None).await;
                } else {
                    clients.judged_put(at, other, PutCondition::None).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        };
        let began = disk::clock::monotonic();
        while let Answer::Later(s) = clients.judged_read(at, None, &mut pace).await
            && began.elapsed() < PATIENCE
        {
            tokio::time::sleep(Duration::from_secs(u64::from(s.max(1)))).await;
        }
    }
}
