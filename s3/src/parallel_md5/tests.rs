//! Uploads that come, continue and vanish beside each other.

#![allow(clippy::unwrap_used)]

use super::*;
use ::md5::{Digest, Md5 as Reference};
use model::Rng;
use std::time::Duration;

/// Bytes, and the lengths of the pieces they come in.
fn upload(rng: &mut Rng, bytes_max: u64, piece_max: u64) -> (Bytes, Vec<usize>) {
    let bytes: Vec<u8> = (0..rng.below(bytes_max)).map(|_| rng.next_u64() as u8).collect();
    let mut rest = bytes.len();
    let mut pieces = Vec::new();
    while rest > 0 {
        let piece = rest.min(1 + rng.below(piece_max) as usize);
        pieces.push(piece);
        rest -= piece;
    }
    (bytes.into(), pieces)
}

async fn hash(workers: Md5Workers, mut bytes: Bytes, pieces: Vec<usize>) -> [u8; 16] {
    let mut md5 = workers.upload();
    for piece in pieces {
        md5.feed(bytes.split_to(piece)).await.unwrap();
        tokio::task::yield_now().await;
    }
    md5.finish().await.unwrap()
}

/// Runs uploads of any lengths side by side; about a third of them vanish before they end.
async fn many(workers: &Md5Workers, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut uploads = Vec::new();
    for index in 0..40 {
        let piece_max = [3000, 70_000, 500_000][index % 3];
        let (bytes, pieces) = upload(&mut rng, 3_000_000, piece_max);
        let expected: [u8; 16] = Reference::digest(&bytes).into();
        let task = tokio::spawn(hash(workers.clone(), bytes, pieces));
        if rng.below(3) == 0 {
            let after = Duration::from_micros(rng.below(3000));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                task.abort();
            });
        } else {
            uploads.push((task, expected));
        }
    }
    for (task, expected) in uploads {
        assert_eq!(task.await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploads_beside_each_other_get_their_own_digests() {
    for seed in 0..4 {
        let workers = Md5Workers::with_workers(1 + seed as usize % 2);
        many(&workers, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn on_one_thread_no_virtual_time_passes() {
    let began = tokio::time::Instant::now();
    let workers = Md5Workers::new();
    let mut rng = Rng::new(1);
    let (bytes, pieces) = upload(&mut rng, 5_000_000, 100_000);
    let expected: [u8; 16] = Reference::digest(&bytes).into();
    assert_eq!(hash(workers, bytes, pieces).await, expected);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_leave_when_nothing_waits() {
    let workers = Md5Workers::with_workers(3);
    many(&workers, 9).await;
    let busy = || workers.shared.lock().workers > 0;
    while busy() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(workers.shared.lock().waiting.is_empty());
}

/// A batch, and the receiver of its state.
fn lane() -> (LaneBatch, oneshot::Receiver<Md5State>) {
    let (done, back) = oneshot::channel();
    let pieces = VecDeque::from([Bytes::from(vec![7; 4 * SLICE_BLOCKS * BLOCK_BYTES])]);
    (LaneBatch { state: Md5State::new(), pieces, done }, back)
}

/// A worker that is counted and has not started.
fn worker(workers: &Md5Workers) -> Md5Worker {
    workers.shared.lock().workers += 1;
    Md5Worker { shared: Arc::clone(&workers.shared), lanes: Vec::new(), left: false }
}

#[test]
fn who_waits_for_a_worker_that_never_comes_is_told() {
    let workers = Md5Workers::with_workers(1);
    let worker = worker(&workers);
    let (first, mut back) = lane();
    workers.shared.lock().waiting.push_back(first);
    drop(worker);
    assert!(matches!(back.try_recv(), Err(TryRecvError::Closed)));
    assert_eq!(workers.shared.lock().workers, 0);
}

#[test]
fn lanes_take_what_comes_while_others_are_half_done() {
    let workers = Md5Workers::with_workers(1);
    let mut worker = worker(&workers);
    let (first, mut first_back) = lane();
    let (second, mut second_back) = lane();
    worker.shared.lock().waiting.push_back(first);
    assert!(worker.admit());
    worker.settle();
    worker.go_on();
    worker.shared.lock().waiting.push_back(second);
    assert!(worker.admit());
    assert_eq!(worker.lanes.len(), 2);
    worker.work();
    let digest = |back: &mut oneshot::Receiver<Md5State>| back.try_recv().unwrap().finish();
    assert_eq!(digest(&mut first_back), digest(&mut second_back));
    assert_eq!(workers.shared.lock().workers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_uploads_that_end_together_get_their_own_digests_though_some_vanish() {
    let workers = Md5Workers::new();
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let uploads: Vec<_> = (0..100)
            .map(|_| {
                let (bytes, pieces) = upload(&mut rng, 40_000, 20_000);
                let expected: [u8; 16] = Reference::digest(&bytes).into();
                let task = tokio::spawn(hash(workers.clone(), bytes, pieces));
                if rng.below(3) == 0 {
                    task.abort();
                }
                (task, expected)
            })
            .collect();
        for (task, expected) in uploads {
            match task.await {
                Ok(digest) => assert_eq!(digest, expected),
                Err(error) => assert!(error.is_cancelled()),
            }
        }
    }
    // The uploads that vanished are left for the next one that ends.
    let (bytes, pieces) = (Bytes::from(vec![7; 16 << 10]), vec![16 << 10]);
    let expected: [u8; 16] = Reference::digest(&bytes).into();
    assert_eq!(hash(workers.clone(), bytes, pieces).await, expected);
    assert!(workers.shared.ending.lock().is_empty());
}
