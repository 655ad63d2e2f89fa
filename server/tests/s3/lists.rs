//! Buckets, listings, and deleting what they name.

use super::Front;
use crate::client::{Call, Reply};

async fn with_keys(keys: &[&str]) -> Front {
    let front = Front::open().await;
    for key in keys {
        assert_eq!(front.put(key, b"x").await.status, 200);
    }
    front
}

fn list(query: &[(&str, &str)]) -> Call {
    let call = Call::new("GET", "/shelf").query("list-type", "2");
    query.iter().fold(call, |call, (name, value)| call.query(name, value))
}

/// Returns the entries of all pages of `size`, and the number of pages.
async fn pages(front: &Front, query: &[(&str, &str)], size: usize) -> (Vec<String>, usize) {
    let (mut entries, mut count, mut token) = (Vec::new(), 0, None::<String>);
    loop {
        let mut call = list(query).query("max-keys", &size.to_string());
        if let Some(token) = &token {
            call = call.query("continuation-token", token);
        }
        let reply = front.send(call).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut page = entries_of(&reply);
        assert_eq!(reply.all("KeyCount"), [page.len().to_string()]);
        page.sort();
        entries.append(&mut page);
        count += 1;
        token = reply.all("NextContinuationToken").pop();
        assert_eq!(reply.all("IsTruncated"), [token.is_some().to_string()]);
        if token.is_none() {
            return (entries, count);
        }
    }
}

fn entries_of(reply: &Reply) -> Vec<String> {
    let folded = reply.all("CommonPrefixes").join("");
    let folded = folded.split("<Prefix>").skip(1).map(|part| part.trim_end_matches("</Prefix>").to_owned());
    reply.all("Key").into_iter().chain(folded).collect()
}

#[tokio::test]
async fn pages_of_any_size_add_up_to_the_whole() {
    let front = with_keys(&["a", "b/1", "b/2", "b/c/3", "d", "e/1", "f"]).await;
    for size in 1..9 {
        let (all, count) = pages(&front, &[], size).await;
        assert_eq!(all, ["a", "b/1", "b/2", "b/c/3", "d", "e/1", "f"]);
        assert_eq!(count, 7_usize.div_ceil(size));
        assert_eq!(pages(&front, &[("delimiter", "/")], size).await.0, ["a", "b/", "d", "e/", "f"]);
        assert_eq!(pages(&front, &[("delimiter", "/"), ("prefix", "b/")], size).await.0, ["b/1", "b/2", "b/c/"]);
        assert_eq!(pages(&front, &[("start-after", "b/2")], size).await.0, ["b/c/3", "d", "e/1", "f"]);
    }
}

#[tokio::test]
async fn the_finer_points_of_listing() {
    let front = with_keys(&["a%20b", "c"]).await;
    let none = front.send(list(&[("max-keys", "0")])).await;
    assert_eq!((none.all("IsTruncated"), none.all("KeyCount")), (vec!["false".into()], vec!["0".into()]));
    let spelled = front.send(list(&[("encoding-type", "url"), ("fetch-owner", "true")])).await;
    assert_eq!(spelled.all("Key"), ["a%20b", "c"]);
    assert_eq!((spelled.all("ID").len(), spelled.all("EncodingType")), (2, vec!["url".to_owned()]));
    assert_eq!(front.send(list(&[])).await.all("Key"), ["a b", "c"]);
    assert_eq!(front.send(list(&[("max-keys", "-1")])).await.code(), "InvalidArgument");
    assert_eq!(front.send(list(&[("continuation-token", "x")])).await.code(), "InvalidArgument");
    assert_eq!(front.send(list(&[("encoding-type", "xml")])).await.code(), "InvalidArgument");
    let elder = front.send(Call::new("GET", "/shelf").query("max-keys", "1").query("delimiter", "/")).await;
    assert_eq!((elder.all("Key"), elder.all("NextMarker")), (vec!["a b".to_owned()], vec!["a b".to_owned()]));
    let rest = front.send(Call::new("GET", "/shelf").query("marker", "a b")).await;
    assert_eq!(rest.all("Key"), ["c"]);
}

#[tokio::test]
async fn many_keys_are_deleted_at_once() {
    let front = with_keys(&["a", "b", "c"]).await;
    let body = "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>a</Key></Object>\
                <Object><Key>none</Key></Object><Object><Key>b</Key><VersionId>1</VersionId></Object></Delete>";
    let call = Call::new("POST", "/shelf").query("delete", "").body(body.as_bytes());
    let refused = front.send(call.clone().header("x-amz-checksum-crc32", "AAAAAA==")).await;
    assert_eq!((refused.code().as_str(), front.get("a").await.status), ("BadDigest", 200));
    assert_eq!(front.send(call.clone()).await.code(), "InvalidRequest", "it has no digest");
    let reply = front.send(call.clone().digested()).await;
    let deleted = reply.all("Deleted");
    assert_eq!(deleted, ["<Key>a</Key>", "<Key>none</Key>"]);
    assert_eq!(reply.code(), "InvalidArgument", "a version of b that cannot be");
    assert_eq!(front.send(list(&[])).await.all("Key"), ["b", "c"]);
    assert_eq!(front.send(call.body(b"<Delete><Obj").digested()).await.code(), "MalformedXML");
}

#[tokio::test]
async fn buckets_come_and_go_and_belong_to_somebody() {
    let front = Front::open().await;
    let bob = |method, path| Call::new(method, path).user("BOB", "bobs secret");
    let reply = front.send(Call::new("PUT", "/shelf")).await;
    assert_eq!(reply.status, 200, "as in us-east-1");
    assert_eq!(front.send(bob("PUT", "/shelf")).await.code(), "BucketAlreadyExists");
    assert_eq!(front.send(bob("PUT", "/bobs")).await.status, 200);
    assert_eq!(front.send(Call::new("GET", "/")).await.all("Name"), ["shelf"]);
    assert_eq!(front.send(bob("GET", "/")).await.all("Name"), ["bobs"]);
    front.put("k", b"x").await;
    for (method, path) in
        [("GET", "/shelf/k"), ("PUT", "/shelf/k"), ("DELETE", "/shelf/k"), ("GET", "/shelf"), ("DELETE", "/shelf")]
    {
        assert_eq!(front.send(bob(method, path)).await.code(), "AccessDenied", "{method} {path}");
    }
    let owner = |owner| Call::new("GET", "/shelf/k").header("x-amz-expected-bucket-owner", owner);
    assert_eq!(front.send(owner("alice")).await.status, 200);
    assert_eq!(front.send(owner("bob")).await.code(), "AccessDenied");
    assert_eq!(front.send(Call::new("DELETE", "/shelf")).await.code(), "BucketNotEmpty");
    front.send(Call::new("DELETE", "/shelf/k")).await;
    assert_eq!(front.send(Call::new("DELETE", "/shelf")).await.status, 204);
    assert_eq!(front.send(Call::new("HEAD", "/shelf")).await.status, 404);
}

#[tokio::test]
async fn buckets_are_named_and_placed_as_on_aws() {
    let front = Front::open().await;
    for name in ["ab", "Upper", "under_score", "192.168.1.1", "-dash", "xn--a"] {
        let reply = front.send(Call::new("PUT", &format!("/{name}"))).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "InvalidBucketName"), "{name}");
    }
    let place = |place: &str| {
        let body = format!(
            "<CreateBucketConfiguration><LocationConstraint>{place}</LocationConstraint></CreateBucketConfiguration>"
        );
        Call::new("PUT", "/placed").body(body.as_bytes())
    };
    assert_eq!(front.send(place("eu-west-1")).await.code(), "IllegalLocationConstraintException");
    assert_eq!(front.send(place("us-east-1")).await.code(), "InvalidLocationConstraint");
    assert_eq!(front.send(place("")).await.status, 200);
    assert_eq!(front.send(Call::new("HEAD", "/placed")).await.header("x-amz-bucket-region"), "us-east-1");
    let reply = front.send(Call::new("GET", "/placed").query("location", "")).await;
    assert!(reply.status == 200 && reply.text().contains("LocationConstraint"), "{}", reply.text());
}
