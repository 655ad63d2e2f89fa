//! Listings against a naive model that rolls up everything and then cuts a page out.

use super::{catalog_in, object, put};
use crate::{Batch, Entry, KeyRange, Sealed, Sequence};
use crate::{Catalog, CatalogError, ListRequest, Listing, MemoryStore, PutCondition, Store, StoreFuture, VersionId};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The listed entries, in order: keys as `Err`, common prefixes as `Ok`.
type Items = Vec<Result<String, String>>;

/// The key or common prefix itself.
fn text(item: &Result<String, String>) -> &str {
    match item {
        Ok(text) | Err(text) => text,
    }
}

fn naive(keys: &BTreeSet<String>, request: &ListRequest) -> Items {
    let mut items = Items::new();
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    for key in keys {
        let Some(rest) = key.strip_prefix(&request.prefix) else { continue };
        let item = match delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len())) {
            Some(end) => Ok(key[..request.prefix.len() + end].to_owned()),
            None => Err(key.clone()),
        };
        let passed = |after: &str| key.as_bytes() <= after.as_bytes() || item.as_deref() == Ok(after);
        if !request.start_after.as_deref().is_some_and(passed) && items.last() != Some(&item) {
            items.push(item);
        }
    }
    items
}

/// One page as items; also checks that each of its two lists is in order.
fn items_of(listing: &Listing) -> Items {
    let keys = listing.objects.iter().map(|(key, _)| (key.clone(), Err(key.clone())));
    let prefixes = listing.common_prefixes.iter().map(|prefix| (prefix.clone(), Ok(prefix.clone())));
    assert!(listing.objects.is_sorted_by(|a, b| a.0.as_bytes() < b.0.as_bytes()));
    assert!(listing.common_prefixes.is_sorted_by(|a, b| a.as_bytes() < b.as_bytes()));
    let mut items: Vec<_> = keys.chain(prefixes).collect();
    items.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    items.into_iter().map(|(_, item)| item).collect()
}

/// All pages, each as full as it may be and behind the one before, whose last entry it continues.
async fn all_pages(catalog: &Catalog, request: &ListRequest) -> Items {
    let mut items = Items::new();
    let mut request = request.clone();
    loop {
        let listing = catalog.list_objects("b", &request).await.unwrap();
        let page = items_of(&listing);
        if let (Some(last), Some(first)) = (items.last(), page.first()) {
            assert!(text(last).as_bytes() < text(first).as_bytes(), "{first:?} comes behind {last:?}");
        }
        items.extend(page.iter().cloned());
        if !listing.truncated {
            return items;
        }
        assert_eq!(page.len(), request.max_keys, "a truncated page is full");
        request.start_after = page.last().map(|item| text(item).to_owned());
    }
}

fn any_key() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "b", "/", "//", "é", "日", "\u{10FFFF}", "\0", "-", "."]);
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn any_request() -> impl Strategy<Value = ListRequest> {
    let delimiters = vec![None, Some("/"), Some("/"), Some("a"), Some("é"), Some("b/"), Some("")];
    let prefix = prop_oneof![Just(String::new()), any_key()];
    let any_common_prefix = any_key().prop_map(|key| Some(key + "/"));
    let start_after = prop_oneof![2 => Just(None), 1 => any_key().prop_map(Some), 1 => any_common_prefix];
    (prefix, prop::sample::select(delimiters), start_after, 1..7_usize).prop_map(
        |(prefix, delimiter, start_after, max_keys)| ListRequest {
            prefix,
            delimiter: delimiter.map(str::to_owned),
            start_after,
            max_keys,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pages_together_are_what_the_naive_model_lists(
        keys in prop::collection::btree_set(any_key(), 0..60),
        requests in prop::collection::vec(any_request(), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let catalog = catalog_in(Arc::new(MemoryStore::new())).await;
            for key in &keys {
                put(&catalog, key, 1, 1).await;
            }
            for request in &requests {
                assert_eq!(all_pages(&catalog, request).await, naive(&keys, request), "{request:?}");
            }
        });
    }
}

#[tokio::test]
async fn listings_stay_within_their_bucket_and_page_as_s3_counts() {
    let catalog = super::catalog().await;
    for name in ["a", "b.c", "bb"] {
        let bucket = crate::Bucket::new(name, 1, "me");
        catalog.create_bucket(&bucket).await.unwrap();
        let version = catalog.next_version_id().await.unwrap();
        catalog.put_object((&bucket, "x"), &object(version, 1, 1), version.0, &PutCondition::None).await.unwrap();
    }
    for key in ["dir/1", "dir/2", "e"] {
        put(&catalog, key, 1, 1).await;
    }
    let mut request = ListRequest { delimiter: Some("/".into()), max_keys: 2, ..ListRequest::default() };
    let listing = catalog.list_objects("b", &request).await.unwrap();
    assert_eq!(items_of(&listing), [Ok("dir/".into()), Err("e".into())]);
    assert!(!listing.truncated, "a last page that is just full is the last");
    request.max_keys = 0;
    assert_eq!(catalog.list_objects("b", &request).await.unwrap(), Listing::default());
    let none = catalog.list_objects("none", &request).await;
    assert!(matches!(none, Err(CatalogError::NoSuchBucket)));
}

/// The first page, of all there is, behind `start_after`.
async fn behind(catalog: &Catalog, prefix: &str, delimiter: Option<&str>, start_after: &str) -> Items {
    let request = ListRequest {
        prefix: prefix.into(),
        delimiter: delimiter.map(str::to_owned),
        start_after: Some(start_after.into()),
        max_keys: 1_000,
    };
    items_of(&catalog.list_objects("b", &request).await.unwrap())
}

#[tokio::test]
async fn a_listing_goes_on_behind_an_entry_that_was_deleted_since() {
    let catalog = super::catalog().await;
    for key in ["a", "b/1", "c"] {
        put(&catalog, key, 1, 1).await;
    }
    catalog.delete_object("b", "a").await.unwrap();
    assert_eq!(behind(&catalog, "", Some("/"), "a").await, [Ok("b/".into()), Err("c".into())]);
    catalog.delete_object("b", "b/1").await.unwrap();
    assert_eq!(behind(&catalog, "", Some("/"), "b/").await, [Err("c".into())]);
}

#[tokio::test]
async fn only_behind_a_common_prefix_of_the_same_listing_what_begins_with_it_is_left_out() {
    let catalog = super::catalog().await;
    for key in ["d/", "d/1", "d/2/3", "d0"] {
        put(&catalog, key, 1, 1).await;
    }
    let key = |key: &str| Err(key.to_owned());
    let common = |prefix: &str| Ok(prefix.to_owned());
    assert_eq!(behind(&catalog, "", Some("/"), "d/").await, [key("d0")]);
    assert_eq!(behind(&catalog, "", Some("/"), "d").await, [common("d/"), key("d0")]);
    assert_eq!(behind(&catalog, "", Some("/"), "d/2").await, [common("d/"), key("d0")], "d/2 is no common prefix");
    assert_eq!(behind(&catalog, "", None, "d/").await, [key("d/1"), key("d/2/3"), key("d0")]);
    assert_eq!(behind(&catalog, "d/", Some("/"), "d/").await, [key("d/1"), common("d/2/")]);
}

/// A store that counts the entries it gives out.
struct Counting(MemoryStore, AtomicUsize);

impl Store for Counting {
    fn sequence(&self) -> Sequence {
        self.0.sequence()
    }

    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        self.0.get(key)
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.0.get_many(keys)
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        Box::pin(async move {
            let entries = self.0.scan(range, limit).await?;
            self.1.fetch_add(entries.len(), Ordering::Relaxed);
            Ok(entries)
        })
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        self.0.commit(batch)
    }
}

#[tokio::test]
async fn a_listing_jumps_over_what_lies_below_a_common_prefix() {
    let store = Arc::new(Counting(MemoryStore::new(), AtomicUsize::new(0)));
    let catalog = catalog_in(store.clone()).await;
    for i in 0..10_000_u64 {
        let key = format!("{}/{i:05}", i % 10);
        catalog
            .put_object((&super::bucket(), &key), &object(VersionId(i + 1), 1, 1), i + 1, &PutCondition::None)
            .await
            .unwrap();
    }
    store.1.store(0, Ordering::Relaxed);
    let request = ListRequest { delimiter: Some("/".into()), max_keys: 1_000, ..ListRequest::default() };
    let listing = catalog.list_objects("b", &request).await.unwrap();
    assert_eq!(listing.common_prefixes.len(), 10);
    assert!(store.1.load(Ordering::Relaxed) <= 200, "{} entries read", store.1.load(Ordering::Relaxed));
    let flat = ListRequest { max_keys: 1_000, ..ListRequest::default() };
    store.1.store(0, Ordering::Relaxed);
    assert_eq!(all_pages(&catalog, &flat).await.len(), 10_000);
    assert!(store.1.load(Ordering::Relaxed) <= 10_100);
}
