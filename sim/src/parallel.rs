//! Many jobs on several processors.
//!
//! The next free thread takes the next job. Results come in the order of the jobs, and are the same for any number of
//! threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs all jobs on this number of threads; calls `done` after each job with the number of finished ones. If a job
/// panics, for example because its judge finds a fault, the whole call panics.
///
/// # Errors
/// The error of the first job with an error; once a job has failed, no further job starts.
pub fn run_each<J: Sync, R: Send, E: Send>(
    jobs: &[J],
    threads: NonZeroUsize,
    run: &(dyn Fn(&J) -> Result<R, E> + Sync),
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<R>, E> {
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return results };
            let result = run(job);
            if result.is_err() {
                next.store(jobs.len(), Ordering::Relaxed);
            }
            results.push((index, result));
            done(ended.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let mut results: Vec<(usize, Result<R, E>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get().min(jobs.len())).map(|_| scope.spawn(work)).collect();
        let results = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        results.flat_map(|results| results.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    let results: Result<Vec<R>, E> = results.into_iter().map(|(_, result)| result).collect();
    assert!(results.as_ref().ok().is_none_or(|all| all.len() == jobs.len()), "each job has one result");
    results
}
