//! Versioning requests on a server with one version of each object, and other attributes of objects.

use super::Front;
use crate::client::Call;

const NO_VERSION: &str = "3HL4kqtJlcpXroDTDmJ.rmSpXd3dIbrH";

fn versions(query: &[(&str, &str)]) -> Call {
    query.iter().fold(Call::new("GET", "/shelf").query("versions", ""), |call, (name, value)| call.query(name, value))
}

#[tokio::test]
async fn the_one_version_is_null_and_no_other_is_there() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    let named = |method, id: &str| Call::new(method, "/shelf/k").query("versionId", id);
    for method in ["GET", "HEAD"] {
        let reply = front.send(named(method, "null")).await;
        assert_eq!((reply.status, reply.header("x-amz-version-id")), (200, "null"));
        assert_eq!(front.send(named(method, NO_VERSION)).await.status, 404);
    }
    assert_eq!(front.get("k").await.header("x-amz-version-id"), "", "nobody asked");
    for name in ["acl", "tagging"] {
        for (id, code) in [("null", ""), (NO_VERSION, "NoSuchVersion"), ("1", "InvalidArgument")] {
            assert_eq!(front.send(named("GET", id).query(name, "")).await.code(), code, "{name} of {id}");
        }
    }
    for name in ["acl", "tagging"] {
        let put = named("PUT", NO_VERSION).query(name, "").header("x-amz-acl", "private");
        let put = if name == "tagging" {
            named("PUT", NO_VERSION).query(name, "").body(b"<Tagging><TagSet/></Tagging>")
        } else {
            put
        };
        assert_eq!(front.send(put).await.code(), "NoSuchVersion", "{name}");
    }
    assert_eq!(front.send(named("GET", "1")).await.code(), "InvalidArgument");
    assert_eq!(front.send(named("GET", "")).await.code(), "InvalidArgument");
    assert_eq!(front.send(named("DELETE", "1")).await.code(), "InvalidArgument");
    assert_eq!(front.send(named("DELETE", NO_VERSION)).await.status, 204);
    assert_eq!(front.get("k").await.status, 200, "that was another version");
    let reply = front.send(named("DELETE", "null")).await;
    assert_eq!((reply.status, reply.header("x-amz-version-id")), (204, "null"));
    assert_eq!(front.get("k").await.code(), "NoSuchKey");
}

#[tokio::test]
async fn versions_are_listed_page_by_page() {
    let front = Front::open().await;
    for key in ["a", "b/1", "b/2", "c%20d", "e"] {
        front.put(key, b"x").await;
    }
    let whole = front.send(versions(&[])).await;
    assert_eq!(whole.all("Key"), ["a", "b/1", "b/2", "c d", "e"]);
    assert_eq!(
        (whole.all("VersionId"), whole.all("IsLatest")),
        (vec!["null".to_owned(); 5], vec!["true".to_owned(); 5])
    );
    assert_eq!(whole.all("ID"), vec!["alice"; 5]);
    let (mut keys, mut marker, mut version) = (Vec::new(), String::new(), None::<String>);
    loop {
        let mut call = versions(&[("max-keys", "2"), ("key-marker", &marker), ("encoding-type", "url")]);
        if let Some(version) = &version {
            call = call.query("version-id-marker", version);
        }
        let page = front.send(call).await;
        keys.extend(page.all("Key"));
        if page.all("IsTruncated") == ["false"] {
            break;
        }
        marker = page.all("NextKeyMarker").remove(0).replace("%20", " ");
        version = page.all("NextVersionIdMarker").pop();
        assert_eq!(version.as_deref(), Some("null"));
    }
    assert_eq!(keys, ["a", "b/1", "b/2", "c%20d", "e"]);
    let folded = front.send(versions(&[("delimiter", "/"), ("max-keys", "2")])).await;
    assert_eq!((folded.all("Key"), folded.all("NextKeyMarker")), (vec!["a".to_owned()], vec!["b/".to_owned()]));
    let rest = front.send(versions(&[("delimiter", "/"), ("key-marker", "b/")])).await;
    assert_eq!(rest.all("Key"), ["c d", "e"]);
    assert_eq!(front.send(versions(&[("prefix", "b/")])).await.all("Key"), ["b/1", "b/2"]);
    for wrong in [
        &[("version-id-marker", "null")][..],
        &[("key-marker", "a"), ("version-id-marker", "")],
        &[("key-marker", "a"), ("version-id-marker", "x")],
        &[("max-keys", "x")],
        &[("encoding-type", "x")],
    ] {
        assert_eq!(front.send(versions(wrong)).await.code(), "InvalidArgument", "{wrong:?}");
    }
}

#[tokio::test]
async fn deletes_name_versions_and_conditions() {
    let front = Front::open().await;
    let etag = front.put("k", b"x").await.header("etag").to_owned();
    let delete = |etag: &str| Call::new("DELETE", "/shelf/k").header("if-match", etag);
    let reply = front.send(delete("\"other\"")).await;
    assert_eq!((reply.status, reply.code().as_str()), (412, "PreconditionFailed"));
    assert_eq!(front.get("k").await.status, 200);
    assert_eq!(front.send(delete(&etag)).await.status, 204);
    assert_eq!(front.send(delete("*")).await.code(), "NoSuchKey");
    assert_eq!(front.send(delete(&etag)).await.code(), "NoSuchKey");
    front.put("k", b"x").await;
    assert_eq!(front.send(delete("*")).await.status, 204);
    for key in ["a", "b", "c", "d", "e"] {
        front.put(key, b"x").await;
    }
    let object = |key: &str, rest: &str| format!("<Object><Key>{key}</Key>{rest}</Object>");
    let body = [
        object("a", "<VersionId>null</VersionId>"),
        object("b", &format!("<VersionId>{NO_VERSION}</VersionId>")),
        object("c", "<ETag>&quot;other&quot;</ETag>"),
        object("d", &format!("<ETag>{}</ETag>", etag.replace('"', "&quot;"))),
        object("none", "<ETag>*</ETag>"),
        object("e", "<Size>1</Size>"),
    ];
    let call = Call::new("POST", "/shelf").query("delete", "");
    let reply = front.send(call.body(format!("<Delete>{}</Delete>", body.concat()).as_bytes()).digested()).await;
    assert_eq!(reply.all("Deleted").len(), 3, "{}", reply.text());
    assert_eq!(reply.all("Code"), ["PreconditionFailed", "NoSuchKey", "InvalidArgument"]);
    assert_eq!(front.send(Call::new("GET", "/shelf")).await.all("Key"), ["b", "c", "e"]);
}

#[tokio::test]
async fn attributes_are_told_as_far_as_they_are_asked_for() {
    let front = Front::open().await;
    front.put("k", b"123456789").await;
    let ask =
        |names: &str| Call::new("GET", "/shelf/k").query("attributes", "").header("x-amz-object-attributes", names);
    let all = front.send(ask("ETag,Checksum,ObjectParts,StorageClass,ObjectSize")).await;
    assert_eq!(all.all("ETag"), ["25f9e794323b453885f5181f1b624d0b"], "without quotes: {}", all.text());
    assert_eq!((all.all("ObjectSize"), all.all("StorageClass")), (vec!["9".to_owned()], vec!["STANDARD".to_owned()]));
    assert_eq!(all.all("ChecksumCRC64NVME"), ["rosUhgp5mIg="]);
    assert_eq!(all.all("ChecksumType"), ["FULL_OBJECT"]);
    assert!(all.header("last-modified").ends_with("GMT") && all.header("etag").is_empty());
    let one = front.send(ask("ObjectSize")).await;
    assert_eq!((one.all("ObjectSize").len(), one.all("ETag").len()), (1, 0));
    for names in ["Nonsense", "ETag,", ""] {
        assert_eq!(front.send(ask(names)).await.code(), "InvalidArgument", "{names}");
    }
    assert_eq!(front.send(Call::new("GET", "/shelf/k").query("attributes", "")).await.code(), "InvalidArgument");
    let none = Call::new("GET", "/shelf/none").query("attributes", "").header("x-amz-object-attributes", "ETag");
    assert_eq!(front.send(none).await.code(), "NoSuchKey");
}
