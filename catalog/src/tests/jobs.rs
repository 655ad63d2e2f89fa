//! Jobs: records, the hidden bucket, publishing, removing what was read.

use super::{blob, catalog, from_workshop, object, put, sound};
use crate::{
    Bucket, Catalog, CatalogError, Displaced, HIDDEN_BUCKET, Job, JobCheckpoint, JobInput, JobObject, JobState,
    ListRequest, Place, Publication, Version, VersionId,
};
use model::BlobId;

fn job(state: JobState) -> Job {
    let (request, report, reason) = ("{}".to_owned(), String::new(), String::new());
    Job { job: 0, state, created_ms: 5, ended_ms: None, request, report, reason }
}

/// A blob with objects of these sizes, made by a job: `1/out/0`, `1/out/1`, ...
async fn made(catalog: &Catalog, sizes: &[u64]) -> (BlobId, Vec<JobObject>) {
    catalog.make_hidden_bucket(1).await.unwrap();
    let id = catalog.next_blob_id(7).await.unwrap();
    let (mut members, mut offset) = (Vec::new(), 0);
    for (i, bytes) in sizes.iter().enumerate() {
        let version = catalog.next_version_id().await.unwrap();
        members.push(JobObject { key: format!("1/out/{i}"), object: object(version, *bytes, 7), offset });
        offset += bytes;
    }
    let blob = blob(id, 2, offset + 100, sizes.len());
    catalog.begin_blob(&blob).await.unwrap();
    catalog.commit_job_blob(&blob, &members).await.unwrap();
    (id, members)
}

async fn hidden(catalog: &Catalog) -> usize {
    let request = ListRequest { max_keys: 100, ..ListRequest::default() };
    catalog.list_objects(HIDDEN_BUCKET, &request).await.unwrap().objects.len()
}

/// The bucket to publish to.
async fn target(catalog: &Catalog) -> Bucket {
    catalog.bucket("b").await.unwrap()
}

fn input(version: VersionId, key: &str) -> JobInput {
    JobInput { version, bucket: "b".into(), key: key.into() }
}

fn to(from: &str, to: &str) -> Publication {
    Publication { from: from.into(), to: to.into() }
}

#[tokio::test]
async fn jobs_are_numbered_and_change_only_from_what_was_seen() {
    let catalog = catalog().await;
    let first = catalog.create_job(&job(JobState::Running)).await.unwrap();
    let second = catalog.create_job(&job(JobState::Running)).await.unwrap();
    assert_eq!((first.job, second.job), (1, 2));
    let paused = Job { state: JobState::Paused, ..first.clone() };
    catalog.change_job(&first, &paused).await.unwrap();
    let late = Job { state: JobState::Publishing, ..first.clone() };
    assert!(matches!(catalog.change_job(&first, &late).await, Err(CatalogError::PreconditionFailed)));
    assert_eq!(catalog.job(1).await.unwrap(), Some(paused));
    catalog.add_job_inputs(1, "b", &[(VersionId(4), "k".into())]).await.unwrap();
    sound(&catalog).await;
    catalog.forget_job(1).await.unwrap();
    assert_eq!(catalog.jobs().await.unwrap(), [second]);
    assert!(catalog.job_inputs(1, 9).await.unwrap().is_empty());
    assert!(matches!(
        catalog.add_job_inputs(1, "b", &[(VersionId(4), "k".into())]).await,
        Err(CatalogError::PreconditionFailed)
    ));
    sound(&catalog).await;
}

#[tokio::test]
async fn what_a_job_made_is_hidden_until_it_is_published_and_no_bytes_move() {
    let catalog = catalog().await;
    let (id, members) = made(&catalog, &[10, 0, 20]).await;
    assert_eq!(hidden(&catalog).await, 3);
    assert_eq!(sound(&catalog).await.stored_bytes, 30);
    let all = [to("1/out/0", "p/0"), to("1/out/1", "p/1"), to("1/out/2", "p/2"), to("1/out/9", "p/9")];
    catalog.publish(&target(&catalog).await, &all).await.unwrap();
    catalog.publish(&target(&catalog).await, &all[3..]).await.unwrap();
    assert_eq!(hidden(&catalog).await, 0);
    let (object, place) = catalog.get_object("b", "p/2").await.unwrap();
    assert_eq!((object, place), (members[2].object.clone(), Place::Stored { blob: id, offset: 10 }));
    sound(&catalog).await;
    assert!(matches!(catalog.delete_object("b", "p/2").await.unwrap(), Displaced::Dead { bytes: 20, .. }));
    sound(&catalog).await;
}

#[tokio::test]
async fn what_is_published_is_not_in_quarantine_under_its_old_name() {
    let catalog = catalog().await;
    let (id, members) = made(&catalog, &[10]).await;
    let (version, place) = (members[0].object.version, Place::Stored { blob: id, offset: 0 });
    let (bucket, key) = (HIDDEN_BUCKET.to_owned(), "1/out/0".to_owned());
    let found = Version { version, bucket, key, bytes: 10, staged_ms: 7, place };
    assert!(catalog.mark_unreadable(&found, 8, "it lies in too few stacks").await.unwrap());
    catalog.publish(&target(&catalog).await, &[to("1/out/0", "p/0")]).await.unwrap();
    assert_eq!(catalog.unreadable_of(version).await.unwrap(), None);
    sound(&catalog).await;
}

#[tokio::test]
async fn publishing_takes_no_objects_place_and_needs_its_bucket() {
    let catalog = catalog().await;
    made(&catalog, &[10, 20]).await;
    put(&catalog, "p/1", 3, 1).await;
    let both = [to("1/out/0", "p/0"), to("1/out/1", "p/1")];
    assert!(matches!(catalog.publish(&target(&catalog).await, &both).await, Err(CatalogError::PreconditionFailed)));
    assert_eq!(catalog.first_taken("b", &both).await.unwrap().as_deref(), Some("p/1"));
    let none = Bucket::new("none", 0, "");
    assert!(matches!(catalog.publish(&none, &both).await, Err(CatalogError::NoSuchBucket)));
    let before = Bucket { created_ms: target(&catalog).await.created_ms + 1, ..target(&catalog).await };
    assert!(matches!(catalog.publish(&before, &both).await, Err(CatalogError::NoSuchBucket)), "another of that name");
    assert_eq!((hidden(&catalog).await, catalog.head_object("b", "p/1").await.unwrap().bytes), (2, 3));
    catalog.delete_object("b", "p/1").await.unwrap();
    assert_eq!(catalog.first_taken("b", &both).await.unwrap(), None);
    catalog.publish(&target(&catalog).await, &both).await.unwrap();
    sound(&catalog).await;
}

#[tokio::test]
async fn what_was_evacuated_to_the_workshop_is_published_as_well() {
    let catalog = catalog().await;
    let (id, members) = made(&catalog, &[10, 20]).await;
    let slot = catalog.next_slot().await.unwrap();
    catalog.restage((HIDDEN_BUCKET, "1/out/1"), members[1].object.version, id, slot).await.unwrap().unwrap();
    sound(&catalog).await;
    catalog.publish(&target(&catalog).await, &[to("1/out/1", "p/1")]).await.unwrap();
    assert_eq!(catalog.get_object("b", "p/1").await.unwrap().1, Place::Staged { slot });
    sound(&catalog).await;
}

#[tokio::test]
async fn a_blob_is_made_once_and_from_new_objects() {
    let catalog = catalog().await;
    let (id, members) = made(&catalog, &[10]).await;
    let again = blob(id, 2, 110, 1);
    assert!(matches!(catalog.commit_job_blob(&again, &members).await, Err(CatalogError::NoIntent(_))));
    let other = blob(catalog.next_blob_id(7).await.unwrap(), 2, 110, 1);
    catalog.begin_blob(&other).await.unwrap();
    assert!(matches!(catalog.commit_job_blob(&other, &members).await, Err(CatalogError::PreconditionFailed)));
    sound(&catalog).await;
}

#[tokio::test]
async fn input_is_removed_by_version_and_only_where_it_is_that_still() {
    let catalog = catalog().await;
    let number = catalog.create_job(&job(JobState::Removing)).await.unwrap().job;
    let (first, slot) = put(&catalog, "in/0", 5, 1).await;
    let (second, _) = put(&catalog, "in/1", 6, 1).await;
    let (one, two) = (input(first, "in/0"), input(second, "in/1"));
    catalog.add_job_inputs(number, "b", &[(first, "in/0".into()), (second, "in/1".into())]).await.unwrap();
    put(&catalog, "in/1", 7, 2).await;
    assert_eq!(catalog.job_inputs(number, 9).await.unwrap(), [one.clone(), two.clone()]);
    let displaced = catalog.remove_job_input(number, &one).await.unwrap();
    assert_eq!(displaced, from_workshop("in/0", first, slot, 5));
    assert_eq!(catalog.remove_job_input(number, &two).await.unwrap(), Displaced::Nothing);
    assert!(catalog.job_inputs(number, 9).await.unwrap().is_empty());
    assert!(matches!(catalog.head_object("b", "in/0").await, Err(CatalogError::NoSuchKey)));
    assert_eq!(catalog.head_object("b", "in/1").await.unwrap().bytes, 7);
    sound(&catalog).await;
}

#[tokio::test]
async fn a_checkpoint_is_a_record_like_any_other_to_the_audit() {
    let catalog = catalog().await;
    let made = catalog.create_job(&job(JobState::Running)).await.unwrap();
    let checkpoint = JobCheckpoint { serial: 1, state: "{}".into() };
    catalog.save_checkpoint(made.job, &checkpoint, &[(VersionId(4), "k".into())]).await.unwrap();
    sound(&catalog).await;
    assert_eq!(catalog.checkpoint(made.job).await.unwrap(), Some(checkpoint));
}
