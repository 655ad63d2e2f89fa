//! Clients that take places, connections and memory and give nothing for it; and what others are answered meanwhile.

use super::{House, eventually};
use crate::client::{Call, Signed, read_reply};
use crate::fake::Mood;
use s3::Limits;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn few() -> Limits {
    Limits::of(8, 64)
}

/// A connection on which the head of `call` and the first bytes of its body were sent.
async fn begun(house: &House, call: Call) -> TcpStream {
    let (head, body) = call.wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..body.len().min(10)]).await.unwrap();
    stream
}

#[tokio::test]
async fn bodies_that_are_refused_take_no_place_however_slowly_they_come() {
    let house = House::with(few()).await;
    house.put("k", b"xyz").await;
    let body = vec![1; 100_000];
    let mut slow = Vec::new();
    for number in 0..30 {
        let put = Call::new("PUT", "/shelf/x").body(&body);
        let call = match number % 3 {
            0 => put.unsigned(),
            1 => put.user("ALICE", "not hers"),
            _ => put.user("NOBODY", "x"),
        };
        slow.push(begun(&house, call).await);
    }
    for _ in 0..20 {
        assert_eq!(house.get("k").await.status, 200);
    }
    assert_eq!(house.traffic.seen().refused_requests, 0);
    assert_eq!(house.store.sinks.load(Ordering::SeqCst), 0);
    for mut stream in slow {
        assert_eq!(read_reply(&mut stream).await.status, 403, "each is told, in the end");
    }
}

#[tokio::test]
async fn a_refused_body_is_read_on_only_so_far() {
    let house = House::open().await;
    let mut stream = begun(&house, Call::new("PUT", "/shelf/x").body(&vec![1; 64 << 20]).unsigned()).await;
    let piece = vec![1; 1 << 20];
    let mut sent = 0;
    while sent < 63 && stream.write_all(&piece).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 40, "{sent} MiB were taken of a stranger whose request is refused");
}

#[tokio::test]
async fn unsigned_requests_leave_places_for_users_and_a_user_for_others() {
    let house = House::with(few()).await;
    let public = Call::new("PUT", "/shelf/k").body(b"xyz").header("x-amz-acl", "public-read");
    assert_eq!(house.send(public).await.status, 200);
    house.store.set_mood(Mood::Hangs);
    let mut hanging = Vec::new();
    for _ in 0..4 {
        hanging.push(begun(&house, Call::new("GET", "/shelf/k").unsigned()).await);
    }
    eventually("two of one address are served", || house.store.streams.load(Ordering::SeqCst) == 2).await;
    eventually("two are not", || house.traffic.seen().refused_requests == 2).await;
    for _ in 0..8 {
        hanging.push(begun(&house, Call::new("GET", "/shelf/k")).await);
    }
    eventually("six of a user are served", || house.store.streams.load(Ordering::SeqCst) == 8).await;
    let seen = house.traffic.seen();
    assert_eq!((seen.requests, seen.unsigned_requests), (8, 2));
    drop(hanging);
    eventually("all is given back", || house.traffic.seen().requests == 0).await;
    house.store.set_mood(Mood::Well);
    assert_eq!(house.send(Call::new("GET", "/shelf/k").unsigned()).await.status, 200);
}

#[tokio::test]
async fn connections_that_idle_make_room_for_others() {
    let house = House::with(Limits { peer_connections: 8, ..Limits::of(8, 8) }).await;
    house.put("k", b"xyz").await;
    house.store.set_mood(Mood::Hangs);
    let mut busy = begun(&house, Call::new("GET", "/shelf/k")).await;
    eventually("one is being served", || house.store.streams.load(Ordering::SeqCst) == 1).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(house.address).await.unwrap());
    }
    house.store.set_mood(Mood::Well);
    assert_eq!(house.get("k").await.status, 200);
    let seen = house.traffic.seen();
    assert!(seen.connections <= 8 && seen.evicted_connections > 0, "{seen:?}");
    assert_eq!(house.store.streams.load(Ordering::SeqCst), 1, "who is served is not in the way");
    assert_ne!(busy.read(&mut [0; 4096]).await.unwrap(), 0);
    assert_eq!(idle[0].read(&mut [0; 10]).await.unwrap_or(0), 0, "the first was closed");
}

#[tokio::test]
async fn a_head_may_be_only_so_long() {
    let house = House::open().await;
    house.put("k", b"xyz").await;
    let padded = |bytes: usize| Call::new("GET", "/shelf/k").header("x-filler", &"y".repeat(bytes));
    assert_eq!(house.send(padded(40_000)).await.status, 200);
    assert_eq!(house.send(padded(70_000)).await.status, 431);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up() {
    let limits = Limits { stall: Duration::from_millis(400), min_bytes_per_s: 100_000, ..Limits::default() };
    let house = House::with(limits).await;
    let (head, body) =
        Call::new("PUT", "/shelf/k").signed(Signed::Unsigned).body(&vec![1; 100_000]).wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    for piece in body.chunks(100).take(100) {
        if stream.write_all(piece).await.is_err() || house.traffic.seen().slow_clients > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(house.traffic.seen().slow_clients, 1);
    assert_eq!(read_reply(&mut stream).await.code(), "RequestTimeout");
    assert_eq!(house.store.sinks.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_is_signed_for_another_service_is_refused_unread() {
    let house = House::open().await;
    let scope =
        "AWS4-HMAC-SHA256 Credential=ALICE/20260101/us-east-1/sts/aws4_request, SignedHeaders=host, Signature=0";
    let call = Call::new("POST", "/").unsigned().header("authorization", scope).body(&[0; 5000]);
    let (head, _) = call.wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(10), read_reply(&mut stream)).await.unwrap();
    assert_eq!(reply.code(), "AccessDenied");
}

#[tokio::test]
async fn no_room_for_good_is_told_apart_from_no_room_now() {
    let house = House::open().await;
    house.put("source", b"0123456789").await;
    let copy = || Call::new("PUT", "/shelf/copy").header("x-amz-copy-source", "/shelf/source");
    for (mood, status, code) in [(Mood::Full, 507, "InsufficientStorage"), (Mood::Small(5), 400, "EntityTooLarge")] {
        house.store.set_mood(mood);
        for call in [Call::new("PUT", "/shelf/k").body(b"0123456789"), copy()] {
            let reply = house.send(call).await;
            assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (status, code, ""));
        }
        assert_eq!(house.store.streams.load(Ordering::SeqCst), 0, "nothing is read for a copy that cannot be");
    }
    let house = House::with(Limits { put_bytes: 5, ..Limits::default() }).await;
    let reply = house.put("k", b"0123456789").await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "EntityTooLarge"));
    assert!(reply.text().contains("put_limit"), "{}", reply.text());
}
