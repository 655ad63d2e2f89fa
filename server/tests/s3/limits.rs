//! Limits, clients that stall or vanish, failures of the object service, and shutdown.

use super::{Front, eventually};
use crate::client::{Call, read_reply};
use crate::faults::Fault;
use s3::S3Limits;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn slow_down_says_when_to_come_again() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    front.store.set(Fault::Cold(23));
    for call in [Call::new("GET", "/shelf/k"), Call::new("PUT", "/shelf/k").body(b"y")] {
        let reply = front.send(call).await;
        assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "SlowDown", "23"));
        assert_eq!(reply.header("content-type"), "application/xml");
    }
    assert_eq!(front.send(Call::new("HEAD", "/shelf/k")).await.status, 200, "a HEAD is never cold");
}

#[tokio::test]
async fn a_refused_upload_reads_its_answer_and_not_a_reset() {
    let front = Front::open().await;
    front.store.set(Fault::Cold(1));
    let reply = front.put("k", &vec![7; 6 << 20]).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "SlowDown"));
}

#[tokio::test]
async fn an_upload_cut_short_leaves_nothing() {
    let front = Front::open().await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    eventually("the sink opens", || front.store.sinks() == 1).await;
    drop(stream);
    eventually("the sink is dropped", || front.store.sinks() == 0).await;
    assert!(front.store.bytes("shelf", "k").await.is_none());
}

#[tokio::test]
async fn an_upload_that_stalls_is_given_up() {
    let front = Front::with(S3Limits { stall: Duration::from_millis(300), ..S3Limits::default() }).await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    let reply = read_reply(&mut stream).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "RequestTimeout"));
    assert_eq!(front.store.sinks(), 0);
}

#[tokio::test]
async fn a_download_cut_short_is_let_go_of() {
    let front = Front::open().await;
    front.put("k", b"xyz").await;
    front.store.set(Fault::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
    assert_eq!(front.store.streams(), 1);
    drop(stream);
    eventually("the stream is dropped", || front.store.streams() == 0).await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    let front = Front::with(S3Limits { stall: Duration::from_millis(300), ..S3Limits::default() }).await;
    front.put("k", &vec![7; 32 << 20]).await;
    let (head, _) = Call::new("GET", "/shelf/k").wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("it is being served", || front.store.streams() == 1).await;
    eventually("it is let go of", || front.store.streams() == 0).await;
    assert!(read_reply(&mut stream).await.body.len() < 32 << 20, "it did not get the whole");
}

#[tokio::test]
async fn a_failure_underway_never_looks_like_the_whole() {
    let front = Front::open().await;
    front.put("k", b"0123456789").await;
    front.store.set(Fault::Breaks);
    let reply = front.get("k").await;
    assert!(reply.body.len() < 10 && (reply.status == 0 || reply.header("content-length") == "10"), "{reply:?}");
}

#[tokio::test]
async fn too_many_requests_at_once_are_told_to_slow_down() {
    let front = Front::with(S3Limits { requests: 1, ..S3Limits::default() }).await;
    front.put("k", b"xyz").await;
    front.store.set(Fault::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("the first is being served", || front.store.streams() == 1).await;
    let reply = front.get("k").await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "SlowDown", "1"));
    drop(stream);
    eventually("the first is over", || front.store.streams() == 0).await;
    front.store.set(Fault::None);
    assert_eq!(front.get("k").await.status, 200);
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_takes_no_more() {
    let mut front = Front::open().await;
    let (head, body) = Call::new("PUT", "/shelf/k").body(&vec![1; 100_000]).wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    stream.write_all(&body[..50_000]).await.unwrap();
    eventually("the upload is under way", || front.store.sinks() == 1).await;
    front.stop.take().unwrap().send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(TcpStream::connect(front.address).await.is_err(), "nobody listens any more");
    stream.write_all(&body[50_000..]).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.status, 200);
    front.running.await.unwrap().unwrap();
    assert_eq!(front.store.bytes("shelf", "k").await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let mut front = Front::with(S3Limits { grace: Duration::from_millis(200), ..S3Limits::default() }).await;
    front.put("k", b"xyz").await;
    front.store.set(Fault::Hangs);
    let (head, _) = Call::new("GET", "/shelf/k").wire(front.address);
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    eventually("a download is under way", || front.store.streams() == 1).await;
    let asked = Instant::now();
    front.stop.take().unwrap().send(()).unwrap();
    front.running.await.unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert_eq!(front.store.streams(), 0);
}
