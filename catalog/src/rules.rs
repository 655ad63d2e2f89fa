//! The rules that every batch obeys, for all kinds of changes.
//!
//! A version has exactly one place: it is *staged* (entries S, T and V), or it is a *member* of a blob (entry N). The
//! batches that create, move and remove versions are assembled in many places; here each of them is checked as a whole,
//! only by the kinds of keys in it. A batch that breaks a rule would lose data, so it must not be committed.

use crate::key::Tag;
use crate::store::{Batch, Check, Write};

/// Numbers of writes, deletions and checks of keys with one tag.
#[derive(Default)]
struct Counts {
    puts: u64,
    deletes: u64,
    /// Checks for absence; then, checks for presence or a value.
    absent: u64,
    seen: u64,
    /// Checks that a range is empty.
    empty: u64,
}

/// # Panics
/// If `batch` breaks a rule.
pub(crate) fn assert_obeyed(batch: &Batch) {
    let counts = count(batch);
    let of = |tag: Tag| &counts[usize::from(tag as u8)];
    let (object, staged, aged, owner) = (of(Tag::Object), of(Tag::Staged), of(Tag::Aged), of(Tag::Version));
    let (member, tomb, upload) = (of(Tag::Member), of(Tag::Tomb), of(Tag::Upload));
    let (blob, intent) = (of(Tag::Blob), of(Tag::Intent));
    assert!(object.puts + object.deletes <= object.absent + object.seen, "an object changes only as it was read");
    assert!(staged.puts + member.puts <= object.puts, "a version gets a place only along with its object's record");
    assert!(
        staged.deletes + member.deletes <= staged.puts + member.puts + object.deletes,
        "the last place of a version goes only along with the version"
    );
    assert!(staged.puts == aged.puts && staged.deletes == aged.deletes, "both indexes of staged versions agree");
    assert!(owner.puts == staged.puts + upload.puts, "a number in the workshop has one owner: a version or an upload");
    assert!(owner.deletes >= staged.deletes, "a version that leaves the workshop leaves its number");
    assert!(owner.deletes <= staged.deletes + upload.deletes, "a number is released only along with its owner");
    assert!(tomb.puts >= member.deletes, "the bytes of a member that leaves its blob are dead");
    assert!(blob.deletes <= member.empty, "a blob is forgotten only if no version lives in it");
    assert!(
        blob.deletes <= of(Tag::RebuildTarget).empty,
        "a blob is forgotten only if no stack of it may lie where it is not counted"
    );
    assert!(intent.deletes <= blob.puts, "an intent ends only by becoming a blob");
    assert!(
        intent.deletes <= intent.seen && intent.deletes <= blob.absent,
        "a blob is committed once, after its intent"
    );
    assert!(intent.puts <= intent.absent && intent.puts <= blob.absent, "the number of a blob is used once");
    assert!(blob.puts <= blob.absent + blob.seen, "a blob changes only as it was read");
}

/// Counts by the byte of the tag.
fn count(batch: &Batch) -> [Counts; 1 << 8] {
    let mut counts = std::array::from_fn(|_| Counts::default());
    for check in &batch.checks {
        match check {
            Check::Absent(key) => of_key(&mut counts, key).absent += 1,
            Check::Present(key) | Check::Is(key, _) => of_key(&mut counts, key).seen += 1,
            Check::Empty(range) => {
                let key = range.first_key().unwrap_or_default();
                of_key(&mut counts, key).empty += 1;
            }
        }
    }
    for write in &batch.writes {
        match write {
            Write::Put(key, _) => of_key(&mut counts, key).puts += 1,
            Write::Delete(key) => of_key(&mut counts, key).deletes += 1,
            Write::DeleteRange(range) => {
                let tag = range.first_key().and_then(|key| key.first());
                let ranged = [Tag::Part, Tag::Tomb, Tag::JobInput, Tag::Checkpoint].map(|tag| tag as u8);
                assert!(
                    tag.is_some_and(|tag| ranged.contains(tag)),
                    "places and blobs go one by one, each by its name"
                );
            }
        }
    }
    counts
}

fn of_key<'c>(counts: &'c mut [Counts; 1 << 8], key: &[u8]) -> &'c mut Counts {
    &mut counts[usize::from(key.first().copied().unwrap_or_default())]
}
