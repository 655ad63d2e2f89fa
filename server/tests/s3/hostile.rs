//! Clients that hold slots, connections and memory and make no progress; and the answers that other clients get
//! meanwhile.

use super::{Front, eventually};
use crate::client::{Call, Signed, read_reply};
use crate::faults::Fault;
use s3::S3Limits;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn few() -> S3Limits {
    S3Limits::of(8, 64)
}

/// A connection on which the head of `call` and the first bytes of its body were sent.
async fn begun(front: &Front, call: Call) -> TcpStream {
    let (head, body) = call.wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..body.len().min(10)]).await.unwrap();
    stream
}

#[tokio::test]
async fn bodies_that_are_refused_take_no_place_however_slowly_they_come() {
    let front = Front::with(few()).await;
    front.put("k", b"xyz").await;
    let body = vec![1; 100_000];
    let mut slow = Vec::new();
    for number in 0..30 {
        let put = Call::new("PUT", "/shelf/x").body(&body);
        let call = match number % 3 {
            0 => put.unsigned(),
            1 => put.user("ALICE", "not hers"),
            _ => put.user("NOBODY", "x"),
        };
        slow.push(begun(&front, call).await);
    }
    for _ in 0..20 {
        assert_eq!(front.get("k").await.status, 200);
    }
    assert_eq!(front.traffic.stats().refused_requests, 0);
    assert_eq!(front.store.sinks(), 0);
    for mut stream in slow {
        assert_eq!(read_reply(&mut stream).await.status, 403, "each is answered in the end");
    }
}

#[tokio::test]
async fn a_refused_body_is_read_on_only_so_far() {
    let front = Front::open().await;
    let mut stream = begun(&front, Call::new("PUT", "/shelf/x").body(&vec![1; 64 << 20]).unsigned()).await;
    let piece = vec![1; 1 << 20];
    let mut sent = 0;
    while sent < 63 && stream.write_all(&piece).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 40, "{sent} MiB were taken of a stranger whose request is refused");
}

#[tokio::test]
async fn gets_that_wait_for_cold_objects_leave_the_places_of_others_alone() {
    let front = Front::with(S3Limits { waiting: 20, ..few() }).await;
    let public = Call::new("PUT", "/shelf/cold").body(b"xyz").header("x-amz-acl", "public-read");
    assert_eq!(front.send(public).await.status, 200);
    front.put("hot", b"warm").await;
    front.store.set(Fault::Awaited);
    let mut waiting = Vec::new();
    for _ in 0..15 {
        waiting.push(begun(&front, Call::new("GET", "/shelf/cold")).await);
    }
    eventually("three quarters of twenty are one user's", || front.traffic.stats().waiting_requests == 15).await;
    let refused = front.get("cold").await;
    assert_eq!((refused.status, refused.code().as_str(), refused.header("retry-after")), (503, "SlowDown", "15"));
    for _ in 0..5 {
        waiting.push(begun(&front, Call::new("GET", "/shelf/cold").unsigned()).await);
    }
    eventually("strangers wait beside it", || front.traffic.stats().waiting_requests == 20).await;
    assert_eq!(front.send(Call::new("GET", "/shelf/cold").unsigned()).await.code(), "SlowDown");
    assert_eq!(front.traffic.stats().requests, 0, "nobody who waits has a place of those eight");
    for _ in 0..20 {
        assert_eq!(front.get("hot").await.body, b"warm");
        assert_eq!(front.send(Call::new("PUT", "/shelf/new").body(b"n")).await.status, 200);
    }
    front.store.set(Fault::None);
    for stream in &mut waiting {
        assert_eq!(read_reply(stream).await.body, b"xyz", "more than there are places, and all are served in turn");
    }
    eventually("all is given back", || front.traffic.stats().waiting_requests == 0).await;
}

#[tokio::test]
async fn a_copy_of_a_cold_object_waits_beside_requests_as_well() {
    let front = Front::with(few()).await;
    front.put("cold", b"xyz").await;
    front.store.set(Fault::Awaited);
    let copy = Call::new("PUT", "/shelf/copy").header("x-amz-copy-source", "/shelf/cold");
    let mut copying = begun(&front, copy).await;
    eventually("it waits", || front.traffic.stats().waiting_requests == 1).await;
    assert_eq!(front.traffic.stats().requests, 0);
    front.store.set(Fault::None);
    assert_eq!(read_reply(&mut copying).await.status, 200);
    assert_eq!(front.get("copy").await.body, b"xyz");
}

#[tokio::test]
async fn a_client_that_hangs_up_waits_no_more() {
    let front = Front::with(few()).await;
    front.put("cold", b"xyz").await;
    front.store.set(Fault::Awaited);
    let waiting = begun(&front, Call::new("GET", "/shelf/cold")).await;
    eventually("it waits", || front.traffic.stats().waiting_requests == 1).await;
    drop(waiting);
    eventually("it is gone", || front.traffic.stats().waiting_requests == 0).await;
}

#[tokio::test]
async fn unsigned_requests_leave_places_for_users_and_a_user_for_others() {
    let front = Front::with(few()).await;
    let public = Call::new("PUT", "/shelf/k").body(b"xyz").header("x-amz-acl", "public-read");
    assert_eq!(front.send(public).await.status, 200);
    front.store.set(Fault::Hangs);
    let mut hanging = Vec::new();
    for _ in 0..4 {
        hanging.push(begun(&front, Call::new("GET", "/shelf/k").unsigned()).await);
    }
    eventually("two of one address are served", || front.store.streams() == 2).await;
    eventually("two are not", || front.traffic.stats().refused_requests == 2).await;
    for _ in 0..8 {
        hanging.push(begun(&front, Call::new("GET", "/shelf/k")).await);
    }
    eventually("six of a user are served", || front.store.streams() == 8).await;
    let seen = front.traffic.stats();
    assert_eq!((seen.requests, seen.unsigned_requests), (8, 2));
    drop(hanging);
    eventually("all is given back", || front.traffic.stats().requests == 0).await;
    front.store.set(Fault::None);
    assert_eq!(front.send(Call::new("GET", "/shelf/k").unsigned()).await.status, 200);
}

#[tokio::test]
async fn connections_that_idle_make_room_for_others() {
    let front = Front::with(S3Limits { peer_connections: 8, ..S3Limits::of(8, 8) }).await;
    front.put("k", b"xyz").await;
    front.store.set(Fault::Hangs);
    let mut busy = begun(&front, Call::new("GET", "/shelf/k")).await;
    eventually("one is being served", || front.store.streams() == 1).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(front.address).await.unwrap());
    }
    front.store.set(Fault::None);
    assert_eq!(front.get("k").await.status, 200);
    let seen = front.traffic.stats();
    assert!(seen.connections <= 8 && seen.evicted_connections > 0, "{seen:?}");
    assert_eq!(front.store.streams(), 1, "who is served is not in the way");
    assert_ne!(busy.read(&mut [0; 4096]).await.unwrap(), 0);
    assert_eq!(idle[0].read(&mut [0; 10]).await.unwrap_or(0), 0, "the first was closed");
}

#[tokio::test]
async fn a_head_may_be_only_so_long() {
    let front = Front::open().await;
    front.put("k", b"xyz").await;
    let padded = |bytes: usize| Call::new("GET", "/shelf/k").header("x-filler", &"y".repeat(bytes));
    assert_eq!(front.send(padded(40_000)).await.status, 200);
    assert_eq!(front.send(padded(70_000)).await.status, 431);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up() {
    let limits = S3Limits { stall: Duration::from_millis(400), min_bytes_per_s: 100_000, ..S3Limits::default() };
    let front = Front::with(limits).await;
    let (head, body) =
        Call::new("PUT", "/shelf/k").signed(Signed::Unsigned).body(&vec![1; 100_000]).wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    for piece in body.chunks(100).take(100) {
        if stream.write_all(piece).await.is_err() || front.traffic.stats().slow_clients > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(front.traffic.stats().slow_clients, 1);
    assert_eq!(read_reply(&mut stream).await.code(), "RequestTimeout");
    assert_eq!(front.store.sinks(), 0);
}

#[tokio::test]
async fn what_is_signed_for_another_service_is_refused_unread() {
    let front = Front::open().await;
    let scope =
        "AWS4-HMAC-SHA256 Credential=ALICE/20260101/us-east-1/sts/aws4_request, SignedHeaders=host, Signature=0";
    let call = Call::new("POST", "/").unsigned().header("authorization", scope).body(&[0; 5000]);
    let (head, _) = call.wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(10), read_reply(&mut stream)).await.unwrap();
    assert_eq!(reply.code(), "AccessDenied");
}

#[tokio::test]
async fn no_room_for_good_is_told_apart_from_no_room_now() {
    let front = Front::open().await;
    front.put("source", b"0123456789").await;
    let copy = || Call::new("PUT", "/shelf/copy").header("x-amz-copy-source", "/shelf/source");
    for (fault, most_bytes, status, code) in
        [(Fault::Full, 0, 507, "InsufficientStorage"), (Fault::None, 5, 400, "EntityTooLarge")]
    {
        front.store.set(fault);
        front.counters.object_bytes_max.store(most_bytes, Ordering::Relaxed);
        for call in [Call::new("PUT", "/shelf/k").body(b"0123456789"), copy()] {
            let reply = front.send(call).await;
            assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (status, code, ""));
        }
        assert_eq!(front.store.streams(), 0, "nothing is read for a copy that cannot be");
    }
    let front = Front::with(S3Limits { put_bytes: 5, ..S3Limits::default() }).await;
    let reply = front.put("k", b"0123456789").await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "EntityTooLarge"));
    assert!(reply.text().contains("put_limit"), "{}", reply.text());
}
