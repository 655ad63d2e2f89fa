//! Limits, clients that stall or vanish, failures below, and the end of service.

use super::{House, eventually};
use crate::client::{Call, read_reply};
use crate::fake::Mood;
use s3::Limits;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn slow_down_says_when_to_come_again() {
    let house = House::open().await;
    house.put("k", b"x").await;
    house.store.set_mood(Mood::Cold(23));
    for call in [Call::new("GET", "/shelf/k"), Call::new("PUT", "/shelf/k").body(b"y")] {
        let reply = house.send(call).await;
        assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "SlowDown", "23"));
        assert_eq!(reply.header("content-type"), "application/xml");
    }
    assert_eq!(house.send(Call::new("HEAD", "/shelf/k")).await.status, 200, "a HEAD is never cold");
}

#[tokio::test]
async fn a_refused_upload_reads_its_answer_and_not_a_reset() {
    let house = House::open().await;
    house.store.set_mood(Mood::Cold(1));
    let reply = house.put("k", &vec![7; 6 << 20]).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "SlowDown"));
}

#[tokio::test]
async fn an_upload_cut_short_leaves_nothing() {
    let house = House::open().await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    eventually("the sink opens", || house.store.sinks.load(Ordering::SeqCst) == 1).await;
    drop(stream);
    eventually("the sink is dropped", || house.store.sinks.load(Ordering::SeqCst) == 0).await;
    assert!(house.store.bytes("shelf", "k").is_none());
}

#[tokio::test]
async fn an_upload_that_stalls_is_given_up() {
    let house = House::with(Limits { stall: Duration::from_millis(300), ..Limits::default() }).await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    let reply = read_reply(&mut stream).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "RequestTimeout"));
    assert_eq!(house.store.sinks.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_download_cut_short_is_let_go_of() {
    let house = House::open().await;
    house.put("k", b"xyz").await;
    house.store.set_mood(Mood::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
    assert_eq!(house.store.streams.load(Ordering::SeqCst), 1);
    drop(stream);
    eventually("the stream is dropped", || house.store.streams.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    let house = House::with(Limits { stall: Duration::from_millis(300), ..Limits::default() }).await;
    house.put("k", &vec![7; 32 << 20]).await;
    let (head, _) = Call::new("GET", "/shelf/k").wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("it is being served", || house.store.streams.load(Ordering::SeqCst) == 1).await;
    eventually("it is let go of", || house.store.streams.load(Ordering::SeqCst) == 0).await;
    assert!(read_reply(&mut stream).await.body.len() < 32 << 20, "it did not get the whole");
}

#[tokio::test]
async fn a_failure_underway_never_looks_like_the_whole() {
    let house = House::open().await;
    house.put("k", b"0123456789").await;
    house.store.set_mood(Mood::Breaks);
    let reply = house.get("k").await;
    assert!(reply.body.len() < 10 && (reply.status == 0 || reply.header("content-length") == "10"), "{reply:?}");
}

#[tokio::test]
async fn too_many_requests_at_once_are_told_to_slow_down() {
    let house = House::with(Limits { requests: 1, ..Limits::default() }).await;
    house.put("k", b"xyz").await;
    house.store.set_mood(Mood::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("the first is being served", || house.store.streams.load(Ordering::SeqCst) == 1).await;
    let reply = house.get("k").await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "SlowDown", "1"));
    drop(stream);
    eventually("the first is over", || house.store.streams.load(Ordering::SeqCst) == 0).await;
    house.store.set_mood(Mood::Well);
    assert_eq!(house.get("k").await.status, 200);
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_takes_no_more() {
    let mut house = House::open().await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    eventually("the upload is under way", || house.store.sinks.load(Ordering::SeqCst) == 1).await;
    house.stop.take().unwrap().send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(TcpStream::connect(house.address).await.is_err(), "nobody listens any more");
    stream.write_all(&body[50_000..]).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.status, 200);
    house.running.await.unwrap().unwrap();
    assert_eq!(house.store.bytes("shelf", "k").unwrap().len(), 100_000);
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let mut house = House::with(Limits { grace: Duration::from_millis(200), ..Limits::default() }).await;
    house.put("k", b"xyz").await;
    house.store.set_mood(Mood::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(house.address);
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("a download is under way", || house.store.streams.load(Ordering::SeqCst) == 1).await;
    let asked = Instant::now();
    house.stop.take().unwrap().send(()).unwrap();
    house.running.await.unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert_eq!(house.store.streams.load(Ordering::SeqCst), 0);
}
