//! Reads of staged versions: they add up, and go with their version.

use super::{catalog, put, sound};
use crate::{AgedVersion, Reads, VersionId};

fn reads(count: u64, last_ms: u64, is_through: bool) -> Reads {
    Reads { count, last_ms, is_through }
}

#[tokio::test]
async fn reads_add_up_and_go_with_their_version() {
    let catalog = catalog().await;
    let mut of = Vec::new();
    for (key, staged_ms) in [("a", 5), ("b", 3), ("c", 4)] {
        of.push(AgedVersion { staged_ms, version: put(&catalog, key, 10, staged_ms).await.0 });
    }
    assert_eq!(catalog.reads_of(&of).await.unwrap(), [None; 3]);
    let gone = AgedVersion { staged_ms: 9, version: VersionId(999) };
    let some = [(of[0], reads(1, 7, false)), (of[1], reads(2, 8, true)), (gone, reads(1, 1, true))];
    catalog.record_reads(&some).await.unwrap();
    catalog.record_reads(&[(of[0], reads(3, 6, true))]).await.unwrap();
    let found = catalog.reads_of(&[of[0], of[1], of[2], gone]).await.unwrap();
    assert_eq!(found, [Some(reads(4, 7, true)), Some(reads(2, 8, true)), None, None]);
    let page = catalog.reads_page(None).await.unwrap().items;
    assert_eq!(page.iter().map(|(of, _, _)| of.staged_ms).collect::<Vec<_>>(), [3, 5], "oldest first");
    let aged = catalog.aged_page(None).await.unwrap().items;
    assert_eq!(aged.iter().map(|(of, bytes)| (of.staged_ms, *bytes)).collect::<Vec<_>>(), [(3, 10), (4, 10), (5, 10)]);
    sound(&catalog).await;
    catalog.delete_object("b", "a").await.unwrap();
    put(&catalog, "b", 4, 9).await;
    assert_eq!(catalog.reads_page(None).await.unwrap().items, []);
    sound(&catalog).await;
}
