//! Sources that cannot be read: they are named, they do not block other work, and they wake no drives.

use crate::errors::Errors;
use crate::site::{HOUR, KIB, Larder, MIB, Site};
use catalog::Place;
use workshop::staged_file_name;

async fn in_quarantine(larder: &Larder) -> Vec<String> {
    let page = larder.context.catalog.unreadable_page(None, 100).await.unwrap();
    page.items.into_iter().map(|found| found.key).collect()
}

async fn staged_count(larder: &Larder) -> u64 {
    larder.context.catalog.staged_usage().await.unwrap().count
}

async fn wakes(larder: &Larder) -> [u64; 3] {
    larder.ask(|rack| rack.stats().group_wakes).await
}

#[test]
fn a_corrupt_staged_file_keeps_its_own_object_and_wakes_nothing_twice() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = larder.put_many("k", 6, 300 * KIB).await;
        for (key, lost) in [(&keys[2], false), (&keys[5], true)] {
            let Place::Staged { slot } = larder.place(key).await else { panic!("{key} is staged") };
            let file = staged_file_name(slot);
            if lost { assert!(facts.staged.lose_file(&file)) } else { facts.staged.flip_bit(&file, 100_000, 4) }
        }
        larder.until("the others are stored", HOUR, async || staged_count(larder).await == 2).await;
        assert_eq!(in_quarantine(larder).await, ["k0002", "k0005"]);
        tokio::time::sleep(26 * HOUR).await;
        assert_eq!(wakes(larder).await, [0, 0, 1], "neither their pack nor they wake another group, on no day");
        assert_eq!(larder.get("k0000").await.unwrap(), 1);
    });
    site.run(async |larder| {
        tokio::time::sleep(26 * HOUR).await;
        assert_eq!(wakes(larder).await, [0, 0, 0], "a start tries nothing anew on the rack");
        larder.put("k0002", 2, 300 * KIB).await.unwrap();
        larder.delete("k0005").await;
        larder.settle().await;
        assert_eq!(in_quarantine(larder).await, Vec::<String>::new());
        assert_eq!(larder.get("k0002").await.unwrap(), 2);
        larder.audit(&facts).await;
    });
}

#[test]
fn an_object_that_is_deleted_while_it_moves_is_no_error() {
    let run = |deletes: bool| {
        let (mut site, errors) = (Site::nas8(), Errors::default());
        let _logged = tracing::subscriber::set_default(errors.clone());
        let facts = site.facts();
        site.run(async |larder| {
            let keys = larder.put_many("k", 6, 300 * KIB).await;
            let Place::Staged { slot } = larder.place(&keys[2]).await else { panic!("it is staged") };
            larder.until("drives start for their pack", HOUR, async || !larder.is_asleep().await).await;
            // Simulates the state that a read finds once the file of a deleted object is removed.
            facts.staged.flip_bit(&staged_file_name(slot), 100_000, 4);
            if deletes {
                larder.delete(&keys[2]).await;
            }
            larder
                .until("the others are stored", HOUR, async || staged_count(larder).await == 1 - u64::from(deletes))
                .await;
            assert_eq!(in_quarantine(larder).await.len(), 1 - usize::from(deletes));
        });
        errors.lines()
    };
    assert_eq!(run(true), Vec::<String>::new());
    let said = run(false);
    assert_eq!((said.len(), said[0].contains("is in quarantine")), (1, true), "{said:?}");
}

#[test]
fn a_staged_file_that_can_be_read_again_leaves_quarantine_at_the_next_start() {
    let mut site = Site::nas8();
    let facts = site.facts();
    let mut file = None;
    site.run(async |larder| {
        larder.put("o", 1, 300 * KIB).await.unwrap();
        let Place::Staged { slot } = larder.place("o").await else { panic!("it is staged") };
        facts.staged.flip_bit(&staged_file_name(slot), 100_000, 4);
        file = Some(staged_file_name(slot));
        larder.until("found out", HOUR, async || !in_quarantine(larder).await.is_empty()).await;
        tokio::time::sleep(HOUR).await;
    });
    facts.staged.flip_bit(&file.unwrap(), 100_000, 4);
    site.run(async |larder| {
        larder.settle().await;
        assert_eq!(larder.get("o").await.unwrap(), 1);
        assert!(in_quarantine(larder).await.is_empty());
    });
}

#[test]
fn what_is_lost_in_a_mostly_dead_blob_does_not_keep_the_rest_there() {
    let mut site = Site::nas8();
    site.policy.evacuate_permille = 300;
    let facts = site.facts();
    site.run(async |larder| {
        larder.put_many("k", 3, MIB).await;
        larder.settle().await;
        // Damages everything in the first fragments, in more stacks than the code can make up for.
        for stack in facts.stacks() {
            facts.media[stack.drive].flip_bit(&stack.name, 20_000, 4);
        }
        let first = larder.place("k0002").await;
        larder.delete("k0001").await;
        // A read wakes the group, and the live objects in its mostly dead blob are copied out.
        assert_eq!(larder.get("k0002").await.unwrap(), 1);
        larder.until("copied out", HOUR, async || larder.place("k0002").await != first).await;
        larder.until("found out", HOUR, async || !in_quarantine(larder).await.is_empty()).await;
        assert_eq!(in_quarantine(larder).await, ["k0000"]);
        assert_eq!(larder.get("k0002").await.unwrap(), 1);
        assert!(larder.get("k0000").await.is_err());
    });
}
