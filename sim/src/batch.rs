//! Many experiments on several processors.
//!
//! Each experiment is one job, taken by the next thread that is free, in their order. Points come out in the order of
//! the experiments, and are the same for any number of threads.

use crate::experiment::{Experiment, ExperimentError, run};
use crate::measure::Point;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs all experiments on so many threads; calls `done` after each with how many are done. A run that finds a fault
/// ends all of them with its panic.
///
/// # Errors
/// The [`ExperimentError`] of the first experiment that has one; the others are not begun any more.
pub fn run_all(
    experiments: &[Experiment],
    threads: NonZeroUsize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Point>, ExperimentError> {
    run_each(experiments, threads, &run, done)
}

/// [`run_all`] of anything that can be run.
pub(crate) fn run_each<J: Sync, R: Send, E: Send>(
    jobs: &[J],
    threads: NonZeroUsize,
    run: &(dyn Fn(&J) -> Result<R, E> + Sync),
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<R>, E> {
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, Result<R, E>)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some((index, job)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(index).map(|job| (index, job))
        } {
            let result = run(job);
            if result.is_err() {
                next.store(jobs.len(), Ordering::Relaxed);
            }
            // No holder of the lock can panic.
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
            done(ended.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
