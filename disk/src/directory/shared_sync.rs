//! One sync for all callers that wait for one.
//!
//! A sync makes durable what was done before it started. A caller that arrives while one runs waits for the next one,
//! together with all others that arrive meanwhile; one of them then runs it for all. So a thousand callers cost two
//! syncs and not a thousand.
//!
//! Invariant: a caller returns only after a sync that started after its call.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;

/// Lets callers that sync the same directory share their syncs.
#[derive(Default)]
pub(super) struct SharedSync {
    rounds: Mutex<Rounds>,
    ended: Condvar,
}

#[derive(Default)]
struct Rounds {
    begun: u64,
    running: bool,
    /// The last failed round, with its error, for all callers that waited for it: the system may report it only once.
    failed: Option<(u64, io::ErrorKind, String)>,
    #[cfg(test)]
    waiting: usize,
}

impl Rounds {
    /// The result of `round`, or of a later one.
    fn outcome(&self, round: u64) -> io::Result<()> {
        match &self.failed {
            Some((failed, kind, text)) if *failed >= round => Err(io::Error::new(*kind, text.clone())),
            _ => Ok(()),
        }
    }
}

impl SharedSync {
    /// The number of started syncs.
    #[cfg(test)]
    pub fn begun(&self) -> u64 {
        self.rounds.lock().begun
    }

    /// Blocks until `sync`, or another caller's, has made durable everything that was done before this call.
    ///
    /// # Errors
    /// The error of the sync.
    pub fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut rounds = self.rounds.lock();
        let mine = rounds.begun + 1;
        while rounds.running {
            self.wait(&mut rounds);
            if rounds.begun > mine || (rounds.begun == mine && !rounds.running) {
                return rounds.outcome(mine);
            }
        }
        assert!(
            !rounds.running && rounds.begun < mine,
            "one sync runs at a time, and each begins after its caller arrived"
        );
        rounds.begun = mine;
        rounds.running = true;
        drop(rounds);
        let result = sync();
        let mut rounds = self.rounds.lock();
        assert!(rounds.running && rounds.begun == mine, "no sync begins while one runs");
        rounds.running = false;
        if let Err(error) = &result {
            rounds.failed = Some((mine, error.kind(), error.to_string()));
        }
        drop(rounds);
        self.ended.notify_all();
        result
    }

    fn wait(&self, rounds: &mut MutexGuard<'_, Rounds>) {
        #[cfg(test)]
        {
            rounds.waiting += 1;
        }
        self.ended.wait(rounds);
        #[cfg(test)]
        {
            rounds.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    /// Lets `callers` wait for a first sync that ends when all of them wait; returns the number of further syncs, and
    /// their results.
    fn while_one_runs(callers: usize, then: impl Fn() -> io::Result<()> + Sync) -> (u64, Vec<io::Result<()>>) {
        let shared = SharedSync::default();
        let (began, syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        let counted = || {
            syncs.fetch_add(1, Ordering::SeqCst);
            then()
        };
        let results = thread::scope(|scope| {
            let first = scope.spawn(|| {
                shared.run(|| {
                    began.store(1, Ordering::SeqCst);
                    while shared.rounds.lock().waiting < callers {
                        thread::yield_now();
                    }
                    Ok(())
                })
            });
            while began.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..callers).map(|_| scope.spawn(|| shared.run(counted))).collect();
            first.join().unwrap().unwrap();
            others.into_iter().map(|other| other.join().unwrap()).collect()
        });
        (syncs.into_inner(), results)
    }

    #[test]
    fn all_waiting_callers_share_the_next_sync() {
        let (syncs, results) = while_one_runs(8, || Ok(()));
        assert_eq!(syncs, 1);
        assert!(results.iter().all(Result::is_ok));
    }

    #[test]
    fn all_waiting_callers_get_the_failure() {
        let (syncs, results) = while_one_runs(8, || Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(syncs, 1);
        assert!(results.iter().all(|result| result.as_ref().unwrap_err().kind() == io::ErrorKind::StorageFull));
    }

    #[test]
    fn no_caller_relies_on_a_sync_that_began_before() {
        let shared = SharedSync::default();
        let (done, durable) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mine = done.fetch_add(1, Ordering::SeqCst) + 1;
                        let sync = || {
                            let now = done.load(Ordering::SeqCst);
                            thread::yield_now();
                            durable.fetch_max(now, Ordering::SeqCst);
                            Ok(())
                        };
                        shared.run(sync).unwrap();
                        assert!(durable.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
    }
}
