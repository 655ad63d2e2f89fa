//! Tags of objects and buckets.

use super::Front;
use crate::client::{Call, Reply};

fn tagging(tags: &[(&str, &str)]) -> String {
    let tags: Vec<String> =
        tags.iter().map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>")).collect();
    format!("<Tagging><TagSet>{}</TagSet></Tagging>", tags.concat())
}

fn put(path: &str, tags: &[(&str, &str)]) -> Call {
    Call::new("PUT", path).query("tagging", "").body(tagging(tags).as_bytes())
}

async fn tags(front: &Front, path: &str) -> Reply {
    front.send(Call::new("GET", path).query("tagging", "")).await
}

#[tokio::test]
async fn an_object_has_the_tags_it_was_given_last_and_stays_the_version_it_was() {
    let front = Front::open().await;
    let call = Call::new("PUT", "/shelf/k").body(b"x").header("x-amz-tagging", "colour=blue&empty=&a%20b=%C3%BC");
    assert_eq!(front.send(call).await.status, 200);
    let before = front.get("k").await;
    assert_eq!(before.header("x-amz-tagging-count"), "3");
    let reply = tags(&front, "/shelf/k").await;
    assert_eq!((reply.all("Key"), reply.all("Value").len()), (vec!["colour".into(), "empty".into(), "a b".into()], 3));
    assert_eq!(front.send(put("/shelf/k", &[("colour", "red")])).await.status, 200);
    let reply = tags(&front, "/shelf/k").await;
    assert_eq!((reply.all("Key"), reply.all("Value")), (vec!["colour".to_owned()], vec!["red".to_owned()]));
    let after = front.send(Call::new("HEAD", "/shelf/k")).await;
    assert_eq!(after.header("x-amz-tagging-count"), "1");
    assert_eq!(after.header("last-modified"), before.header("last-modified"));
    assert_eq!(front.send(Call::new("DELETE", "/shelf/k").query("tagging", "")).await.status, 204);
    let reply = tags(&front, "/shelf/k").await;
    assert_eq!((reply.status, reply.all("Tag")), (200, vec![]));
    assert_eq!(front.get("k").await.header("x-amz-tagging-count"), "");
    front.send(put("/shelf/k", &[("colour", "red")])).await;
    front.put("k", b"y").await;
    assert_eq!(tags(&front, "/shelf/k").await.all("Tag").len(), 0, "a new version has its own tags");
    for call in [put("/shelf/none", &[]), Call::new("GET", "/shelf/none").query("tagging", "")] {
        assert_eq!(front.send(call).await.code(), "NoSuchKey");
    }
}

#[tokio::test]
async fn a_bucket_has_tags_or_says_that_it_has_none() {
    let front = Front::open().await;
    assert_eq!(tags(&front, "/shelf").await.code(), "NoSuchTagSet");
    let many: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    let many: Vec<_> = many.iter().map(|key| (key.as_str(), "v")).collect();
    assert_eq!(front.send(put("/shelf", &many)).await.status, 204);
    assert_eq!(tags(&front, "/shelf").await.all("Key").len(), 50);
    let more = [many.as_slice(), &[("one more", "")]].concat();
    assert_eq!(front.send(put("/shelf", &more)).await.code(), "BadRequest");
    assert_eq!(front.send(Call::new("DELETE", "/shelf").query("tagging", "")).await.status, 204);
    assert_eq!(tags(&front, "/shelf").await.code(), "NoSuchTagSet");
    assert_eq!(front.send(Call::new("HEAD", "/shelf")).await.status, 200, "only its tags are gone");
}

#[tokio::test]
async fn tags_beyond_the_limits_are_refused_and_change_nothing() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    front.send(put("/shelf/k", &[("kept", "1")])).await;
    let eleven: Vec<String> = (0..11).map(|i| i.to_string()).collect();
    let eleven: Vec<_> = eleven.iter().map(|key| (key.as_str(), "")).collect();
    let long = "x".repeat(257);
    for (wrong, code) in [
        (eleven.as_slice(), "BadRequest"),
        (&[(&long[..129], "")], "InvalidTag"),
        (&[("a", long.as_str())], "InvalidTag"),
        (&[("a", "1"), ("a", "2")], "InvalidTag"),
        (&[("aws:a", "1")], "InvalidTag"),
        (&[("a", "!")], "InvalidTag"),
        (&[("", "1")], "InvalidTag"),
    ] {
        assert_eq!(front.send(put("/shelf/k", wrong)).await.code(), code, "{wrong:?}");
    }
    let raw = |body: &str| Call::new("PUT", "/shelf/k").query("tagging", "").body(body.as_bytes());
    for body in ["", "<Tagging/>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", "nonsense"] {
        assert_eq!(front.send(raw(body)).await.code(), "MalformedXML", "{body}");
    }
    for (header, code) in [
        ("a=1&a=2", "InvalidArgument"),
        ("a=%FF", "InvalidArgument"),
        ("a=%3Cb%3E", "InvalidTag"),
        ("1&2&3&4&5&6&7&8&9&10&11", "BadRequest"),
    ] {
        let call = Call::new("PUT", "/shelf/k").body(b"y").header("x-amz-tagging", header);
        assert_eq!(front.send(call).await.code(), code, "{header}");
    }
    assert_eq!(tags(&front, "/shelf/k").await.all("Key"), ["kept"]);
    assert_eq!(front.get("k").await.body, b"x");
}
