//! Keys with characters that XML cannot hold, in every document that names keys; each read by a strict parser.

use super::Front;
use crate::client::Call;
use crate::strict::{all, texts};

/// Keys as paths spell them, and as they read in a document of XML 1.0.
const KEYS: [(&str, &str); 7] = [
    ("a%00b", "a\u{fffd}b"),
    ("a%01b", "a\u{fffd}b"),
    ("cr%0Dend", "cr\rend"),
    ("crlf%0D%0Aend", "crlf\r\nend"),
    ("tab%09end", "tab\tend"),
    ("plain%20%26%3C%3E", "plain &<>"),
    ("x%EF%BF%BF", "x\u{fffd}"),
];

async fn with_odd_keys() -> Front {
    let front = Front::open().await;
    for (key, _) in KEYS {
        assert_eq!(front.put(key, b"x").await.status, 200, "{key}");
    }
    front
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

#[tokio::test]
async fn listings_parse_whatever_keys_are_called() {
    let front = with_odd_keys().await;
    let expected = sorted(KEYS.iter().map(|(_, text)| (*text).to_owned()).collect());
    for query in [("list-type", "2"), ("max-keys", "1000"), ("versions", "")] {
        let reply = front.send(Call::new("GET", "/shelf").query(query.0, query.1)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(sorted(all(&reply.body, "Key")), expected, "{query:?}");
    }
    let folded = Call::new("GET", "/shelf").query("list-type", "2").query("delimiter", "\r").query("prefix", "cr");
    let reply = front.send(folded).await;
    let prefixes = all(&reply.body, "Prefix");
    assert!(prefixes.contains(&"cr\r".to_owned()) && prefixes.contains(&"crlf\r".to_owned()), "{prefixes:?}");
    assert_eq!(all(&reply.body, "Delimiter"), ["\r"]);
    let echoed = Call::new("GET", "/shelf").query("prefix", "\u{1}\r").query("marker", "\u{0}");
    assert_eq!(all(&front.send(echoed).await.body, "Prefix"), ["\u{fffd}\r"]);
}

#[tokio::test]
async fn every_key_is_told_apart_when_spelled_as_a_url() {
    let front = with_odd_keys().await;
    let call = Call::new("GET", "/shelf").query("list-type", "2").query("encoding-type", "url");
    let keys = all(&front.send(call).await.body, "Key");
    assert_eq!(sorted(keys), sorted(KEYS.iter().map(|(path, _)| (*path).to_owned()).collect()));
}

#[tokio::test]
async fn pages_go_on_from_what_a_parser_reads() {
    let front = with_odd_keys().await;
    for size in ["1", "2", "3"] {
        for form in ["", "versions"] {
            let (mut seen, mut marker) = (0, String::new());
            for _ in 0..10 {
                let mut call = Call::new("GET", "/shelf").query("max-keys", size);
                let name = if form.is_empty() { "marker" } else { "key-marker" };
                if !form.is_empty() {
                    call = call.query(form, "");
                }
                if !marker.is_empty() {
                    call = call.query(name, &marker);
                }
                let reply = front.send(call).await;
                let keys = all(&reply.body, "Key");
                seen += keys.len();
                let as_url = all(&reply.body, "EncodingType") == ["url"];
                if all(&reply.body, "IsTruncated") == ["false"] {
                    break;
                }
                let last = keys.last().cloned().unwrap_or_default();
                let decoded = percent_encoding::percent_decode_str(&last).decode_utf8_lossy().into_owned();
                marker = if as_url { decoded } else { last };
            }
            assert_eq!(seen, KEYS.len(), "pages of {size}, {form}");
        }
    }
}

#[tokio::test]
async fn uploads_and_parts_parse() {
    let front = Front::open().await;
    for (key, _) in KEYS {
        let begun = front.send(Call::new("POST", &format!("/shelf/{key}")).query("uploads", "")).await;
        let text = texts(&begun.body);
        let id = text.iter().find(|(name, _)| name == "UploadId").map(|(_, id)| id.clone()).unwrap();
        let parts = front.send(Call::new("GET", &format!("/shelf/{key}")).query("uploadId", &id)).await;
        assert_eq!((parts.status, all(&parts.body, "UploadId")), (200, vec![id]));
    }
    let listed = front.send(Call::new("GET", "/shelf").query("uploads", "")).await;
    assert_eq!(all(&listed.body, "Key").len(), KEYS.len());
    let page = front.send(Call::new("GET", "/shelf").query("uploads", "").query("max-uploads", "1")).await;
    assert_eq!(all(&page.body, "NextKeyMarker"), ["a%00b"]);
    assert_eq!(all(&page.body, "EncodingType"), ["url"]);
}

#[tokio::test]
async fn deletions_copies_and_errors_parse() {
    let front = with_odd_keys().await;
    let body = "<Delete><Object><Key>cr&#13;end</Key></Object><Object><Key>crlf&#13;&#10;end</Key>\
                <VersionId>x&#13;</VersionId></Object></Delete>";
    let reply = front.send(Call::new("POST", "/shelf").query("delete", "").body(body.as_bytes()).digested()).await;
    assert_eq!(sorted(all(&reply.body, "Key")), ["cr\rend", "crlf\r\nend"]);
    assert_eq!(front.get("cr%0Dend").await.status, 404);

    let copy = Call::new("PUT", "/shelf/copy%0D").header("x-amz-copy-source", "/shelf/tab%09end");
    let reply = front.send(copy).await;
    assert_eq!((reply.status, texts(&reply.body).is_empty()), (200, false));

    for key in ["gone%01", "gone%00%0D", "gone%EF%BF%BE&x"] {
        let reply = front.get(key).await;
        assert_eq!((reply.status, all(&reply.body, "Code")), (404, vec!["NoSuchKey".to_owned()]), "{key}");
    }
    assert_eq!(all(&front.get("gone%0Dagain").await.body, "Resource"), ["/shelf/gone\ragain"]);
    let parameter = front.send(Call::new("GET", "/shelf").query("x-amz-object-\u{1}\r", "")).await;
    assert_eq!((parameter.status, all(&parameter.body, "Code")), (400, vec!["InvalidArgument".to_owned()]));
}

#[tokio::test]
async fn bypassing_governance_that_there_is_none_of_changes_nothing() {
    let front = Front::open().await;
    for key in ["a", "b"] {
        front.put(key, b"x").await;
    }
    let bypass = |call: Call| call.header("x-amz-bypass-governance-retention", "true");
    assert_eq!(front.send(bypass(Call::new("DELETE", "/shelf/a"))).await.status, 204);
    let body = b"<Delete><Object><Key>b</Key></Object></Delete>";
    let reply = front.send(bypass(Call::new("POST", "/shelf").query("delete", "").body(body).digested())).await;
    assert_eq!((reply.status, all(&reply.body, "Key")), (200, vec!["b".to_owned()]));
    assert_eq!(front.get("a").await.status, 404);
    assert_eq!(front.get("b").await.status, 404);
    assert_eq!(front.send(bypass(Call::new("PUT", "/shelf/c").body(b"x"))).await.code(), "InvalidArgument");
}
