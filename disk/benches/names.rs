//! The cost of many files in one directory: listing their names and asking each for its length (a mount), and removing
//! them one by one, each with a sync of the directory, or many with one: `cargo bench -p disk --bench names`. 68,000
//! files; 20,000 of them are removed; `-- 68000 20000 DIRECTORY` sets other numbers and the directory.
#![allow(clippy::unwrap_used)]

use disk::{DirectoryDrive, Drive, FileName};
use std::path::PathBuf;
use std::time::Instant;

/// Files that are removed one by one, out of those that are removed many at a time.
const ONE_OF: usize = 20;
/// Files that are removed with one sync, as the workshop does.
const AT_ONCE: usize = 1_024;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo test --benches` only checks that the bench can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |at: usize, else_is| words.get(at).map_or(else_is, |word| word.parse::<usize>().unwrap());
    let (count, removed) = (number(0, 68_000), number(1, 20_000));
    assert!(removed + removed / ONE_OF <= count, "what is removed is there");
    let parent = words.get(2).map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let directory = tempfile::tempdir_in(parent).unwrap();
    let drive = DirectoryDrive::open(directory.path()).unwrap();
    let names: Vec<FileName> = (0..count).map(|file| FileName::new(format!("{file:016x}.staged")).unwrap()).collect();
    for name in &names {
        drive.create(name, 4_096).await.unwrap();
    }
    drive.sync(&names[0]).await.unwrap();

    let began = Instant::now();
    assert_eq!(drive.list().await.unwrap().len(), count);
    let listed = began.elapsed().as_secs_f64();
    let began = Instant::now();
    for name in &names {
        drive.len(name).await.unwrap();
    }
    let measured = began.elapsed().as_secs_f64();
    println!("{count} files: names listed in {listed:.3} s, each asked for its length in {measured:.3} s");

    let (first, rest) = names.split_at(removed / ONE_OF);
    let began = Instant::now();
    for name in first {
        drive.remove(name).await.unwrap();
    }
    let one_by_one = began.elapsed().as_secs_f64() / first.len() as f64;
    let began = Instant::now();
    for some in rest[..removed].chunks(AT_ONCE) {
        assert!(drive.remove_many(some.to_vec()).await.iter().all(Result::is_ok));
    }
    let many = began.elapsed().as_secs_f64();
    println!(
        "{removed} removed, {AT_ONCE} with one sync: {many:.2} s; one by one {:.2} s ({:.2} ms each, of {}): {:.0} \
         times",
        one_by_one * removed as f64,
        one_by_one * 1e3,
        first.len(),
        one_by_one * removed as f64 / many
    );
}
