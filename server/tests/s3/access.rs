//! Access control: owners, ACLs, object ownership, and all other users.

use super::Front;
use crate::client::Call;

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

fn call(method: &'static str, path: &str) -> Call {
    Call::new(method, path)
}

fn acl(path: &str) -> Call {
    call("PUT", path).query("acl", "")
}

async fn with_object() -> Front {
    let front = Front::open().await;
    front.put("k", b"x").await;
    front
}

#[tokio::test]
async fn what_nobody_opened_is_for_its_owner_alone() {
    let front = with_object().await;
    for (method, path, query) in [
        ("GET", "/shelf/k", None),
        ("HEAD", "/shelf/k", None),
        ("GET", "/shelf/none", None),
        ("PUT", "/shelf/k", None),
        ("DELETE", "/shelf/k", None),
        ("GET", "/shelf", None),
        ("HEAD", "/shelf", None),
        ("DELETE", "/shelf", None),
        ("GET", "/shelf", Some("versions")),
        ("GET", "/shelf", Some("location")),
        ("GET", "/shelf", Some("acl")),
        ("GET", "/shelf", Some("policy")),
        ("PUT", "/shelf/k", Some("acl")),
        ("GET", "/shelf/k", Some("acl")),
        ("GET", "/shelf/k", Some("tagging")),
        ("DELETE", "/shelf/k", Some("tagging")),
        ("PUT", "/shelf", Some("tagging")),
    ] {
        for by in [Call::bobs, Call::unsigned] {
            let asked = call(method, path);
            let reply = front.send(by(if let Some(name) = query { asked.query(name, "") } else { asked })).await;
            assert_eq!(reply.status, 403, "{method} {path} {query:?}");
            assert!(method == "HEAD" && reply.body.is_empty() || reply.code() == "AccessDenied", "{}", reply.text());
        }
    }
    assert_eq!(front.send(call("GET", "/").unsigned()).await.code(), "AccessDenied");
    assert_eq!(front.send(call("PUT", "/mine").unsigned()).await.code(), "AccessDenied");
    assert_eq!(front.get("k").await.body, b"x");
}

#[tokio::test]
async fn a_public_object_is_read_by_everybody_and_written_by_nobody_else() {
    let front = with_object().await;
    assert_eq!(front.send(acl("/shelf/k").header("x-amz-acl", "public-read")).await.status, 200);
    let put = call("PUT", "/shelf/new").body(b"new").header("x-amz-acl", "public-read");
    assert_eq!(front.send(put).await.status, 200);
    for by in [Call::bobs, Call::unsigned] {
        for key in ["k", "new"] {
            let path = format!("/shelf/{key}");
            assert_eq!(front.send(by(call("GET", &path))).await.status, 200);
            assert_eq!(front.send(by(call("HEAD", &path)).header("range", "bytes=0-0")).await.status, 206);
            assert_eq!(front.send(by(call("PUT", &path).body(b"y"))).await.code(), "AccessDenied");
            assert_eq!(front.send(by(call("DELETE", &path))).await.code(), "AccessDenied");
            assert_eq!(front.send(by(call("GET", &path).query("acl", ""))).await.code(), "AccessDenied");
        }
        assert_eq!(front.send(by(call("GET", "/shelf/none"))).await.code(), "AccessDenied", "there may be one");
        assert_eq!(front.send(by(call("GET", "/shelf"))).await.code(), "AccessDenied");
    }
    let replaced = call("GET", "/shelf/k").unsigned().query("response-content-type", "text/html");
    assert_eq!(front.send(replaced).await.code(), "InvalidRequest", "only who signs replaces headers");
    assert_eq!(front.send(acl("/shelf/k").header("x-amz-acl", "private")).await.status, 200);
    assert_eq!(front.send(call("GET", "/shelf/k").unsigned()).await.code(), "AccessDenied");
    front.put("new", b"again").await;
    let reply = front.send(call("GET", "/shelf/new").unsigned()).await;
    assert_eq!(reply.code(), "AccessDenied", "a new version is private unless it says otherwise");
}

#[tokio::test]
async fn a_public_bucket_is_listed_by_everybody_and_opens_no_object() {
    let front = with_object().await;
    assert_eq!(front.send(acl("/shelf").header("x-amz-acl", "public-read")).await.status, 200);
    for by in [Call::bobs, Call::unsigned] {
        for call in [
            call("GET", "/shelf"),
            call("GET", "/shelf").query("list-type", "2"),
            call("GET", "/shelf").query("versions", ""),
        ] {
            assert_eq!(front.send(by(call)).await.all("Key"), ["k"]);
        }
        assert_eq!(front.send(by(call("HEAD", "/shelf"))).await.status, 200);
        assert_eq!(front.send(by(call("GET", "/shelf/k"))).await.code(), "AccessDenied");
        assert_eq!(front.send(by(call("GET", "/shelf/none"))).await.code(), "NoSuchKey", "the listing shows as much");
        assert_eq!(front.send(by(call("PUT", "/shelf/k").body(b"y"))).await.code(), "AccessDenied");
        assert_eq!(front.send(by(call("DELETE", "/shelf"))).await.code(), "AccessDenied");
        let delete = call("POST", "/shelf").query("delete", "").body(b"<Delete><Object><Key>k</Key></Object></Delete>");
        assert_eq!(front.send(by(delete)).await.code(), "AccessDenied");
    }
    assert_eq!(front.send(call("GET", "/nowhere").unsigned()).await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn acls_are_told_and_can_be_spelled_out() {
    let front = with_object().await;
    for path in ["/shelf", "/shelf/k"] {
        let get_acl = || call("GET", path).query("acl", "");
        let private = front.send(get_acl()).await;
        assert_eq!(
            (private.all("Permission"), private.all("ID")),
            (vec!["FULL_CONTROL".to_owned()], vec!["alice".to_owned(); 2])
        );
        assert!(private.text().contains("xsi:type=\"CanonicalUser\""), "{}", private.text());
        front.send(acl(path).header("x-amz-acl", "public-read")).await;
        let public = front.send(get_acl()).await;
        assert_eq!((public.all("Permission").len(), public.all("URI")), (2, vec![ALL_USERS.to_owned()]));
        assert_eq!(front.send(acl(path).body(&private.body)).await.status, 200);
        assert_eq!(front.send(get_acl()).await.body, private.body);
        assert_eq!(front.send(acl(path).body(&public.body)).await.status, 200);
        assert_eq!(front.send(get_acl()).await.body, public.body);

        let stranger = private.text().replace("<ID>alice</ID></Grantee>", "<ID>bob</ID></Grantee>");
        let writable = public.text().replace("READ", "WRITE");
        let others = private.text().replace("alice", "bob");
        for (body, code) in [
            (stranger.as_str(), "InvalidArgument"),
            (&writable, "InvalidArgument"),
            (&others, "AccessDenied"),
            ("<AccessControlPolicy/>", "InvalidArgument"),
            ("<Tagging/>", "MalformedXML"),
        ] {
            assert_eq!(front.send(acl(path).body(body.as_bytes())).await.code(), code, "{body}");
        }
        for (name, code) in [
            ("public-read-write", "InvalidArgument"),
            ("authenticated-read", "InvalidArgument"),
            ("never-heard-of", "InvalidArgument"),
        ] {
            assert_eq!(front.send(acl(path).header("x-amz-acl", name)).await.code(), code);
        }
        assert_eq!(front.send(acl(path)).await.code(), "MissingSecurityHeader");
        let both = acl(path).header("x-amz-acl", "private").body(&private.body);
        assert_eq!(front.send(both).await.code(), "UnexpectedContent");
        assert_eq!(front.send(get_acl()).await.body, public.body, "nothing of this changed anything");
    }
    assert_eq!(front.send(acl("/shelf/none").header("x-amz-acl", "private")).await.code(), "NoSuchKey");
    assert_eq!(front.send(acl("/none").header("x-amz-acl", "private")).await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn where_ownership_is_enforced_acls_neither_count_nor_can_be_set() {
    let front = with_object().await;
    let controls = |method| call(method, "/shelf").query("ownershipControls", "");
    let rule = |name: &str| {
        let rule = format!("<Rule><ObjectOwnership>{name}</ObjectOwnership></Rule>");
        controls("PUT").body(format!("<OwnershipControls>{rule}</OwnershipControls>").as_bytes())
    };
    assert_eq!(front.send(controls("GET")).await.code(), "OwnershipControlsNotFoundError");
    front.send(acl("/shelf/k").header("x-amz-acl", "public-read")).await;
    front.send(acl("/shelf").header("x-amz-acl", "public-read")).await;
    assert_eq!(front.send(rule("BucketOwnerEnforced")).await.code(), "InvalidBucketAclWithObjectOwnership");
    front.send(acl("/shelf").header("x-amz-acl", "private")).await;
    assert_eq!(front.send(rule("BucketOwnerEnforced")).await.status, 200);
    assert_eq!(front.send(controls("GET")).await.all("ObjectOwnership"), ["BucketOwnerEnforced"]);
    assert_eq!(front.send(call("GET", "/shelf/k").unsigned()).await.code(), "AccessDenied");
    for name in ["private", "public-read", "public-read-write"] {
        let put = call("PUT", "/shelf/new").body(b"x").header("x-amz-acl", name);
        for call in [put, acl("/shelf").header("x-amz-acl", name), acl("/shelf/k").header("x-amz-acl", name)] {
            assert_eq!(front.send(call).await.code(), "AccessControlListNotSupported", "{name}");
        }
    }
    let full = call("PUT", "/shelf/new").body(b"x").header("x-amz-acl", "bucket-owner-full-control");
    assert_eq!(front.send(full).await.status, 200);
    assert_eq!(front.send(rule("Nonsense")).await.code(), "MalformedXML");
    assert_eq!(front.send(controls("DELETE")).await.status, 204);
    assert_eq!(front.send(call("GET", "/shelf/k").unsigned()).await.status, 200, "it counts again");
}

#[tokio::test]
async fn a_bucket_is_made_with_its_acl_and_made_again_with_another() {
    let front = Front::open().await;
    let make = |acl: &str| call("PUT", "/open").header("x-amz-acl", acl);
    assert_eq!(front.send(make("public-read")).await.status, 200);
    assert_eq!(front.send(call("GET", "/open").unsigned()).await.status, 200);
    assert_eq!(front.send(call("PUT", "/open")).await.status, 200);
    assert_eq!(front.send(call("GET", "/open").unsigned()).await.code(), "AccessDenied", "as AWS resets it");
    let enforced = make("public-read").header("x-amz-object-ownership", "BucketOwnerEnforced");
    assert_eq!(front.send(enforced).await.code(), "InvalidBucketAclWithObjectOwnership");
    assert_eq!(front.send(make("public-read-write")).await.code(), "InvalidArgument");
    assert_eq!(front.send(make("nonsense")).await.code(), "InvalidArgument");
    let nonsense = call("PUT", "/open").header("x-amz-object-ownership", "Nonsense");
    assert_eq!(front.send(nonsense).await.code(), "InvalidArgument");
}
