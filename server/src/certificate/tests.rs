//! Files that change under a watch, in virtual time. The keys were made for these tests and are used nowhere else.
#![allow(clippy::unwrap_used)]

use super::*;
use std::fs::Permissions;
use tokio::signal::unix::{SignalKind, signal};

const CERTIFICATE_A: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBLjCB4aADAgECAhRa0Y8Eh/aKlN/hBlFHiVaG2Pm8qjAFBgMrZXAwDDEKMAgG\n\
    A1UEAwwBYTAgFw0yNjExMjQwNDIyMDRaGA8yMTI2MTAzMTA0MjIwNFowDDEKMAgG\n\
    A1UEAwwBYTAqMAUGAytlcAMhAMQfQNx5K2/RDJTssN+HLCbDQAzp/Eis2Lbnw8PX\n\
    teBno1MwUTAdBgNVHQ4EFgQUruntgrfMOsz11+qUK2m9E5lmvl4wHwYDVR0jBBgw\n\
    FoAUruntgrfMOsz11+qUK2m9E5lmvl4wDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD\n\
    QQCMi7PQc7w2LefNVV9uDwvIh7cv/44GGzRNknlFgT3HdxdkFDhEfKY8/SFg/gAK\n\
    kXIkIidXKTowj3n0DexA3EIE\n\
    -----END CERTIFICATE-----\n";
const KEY_A: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIHtWNEqBXx747+JkpSqXtCyNbAgqPjdcYg9cxSL590lR\n\
    -----END PRIVATE KEY-----\n";
const CERTIFICATE_B: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBLjCB4aADAgECAhQSYNmzT4+qRTk8Nfuij83emyIw+DAFBgMrZXAwDDEKMAgG\n\
    A1UEAwwBYjAgFw0yNjExMjQwNDIyMDRaGA8yMTI2MTAzMTA0MjIwNFowDDEKMAgG\n\
    A1UEAwwBYjAqMAUGAytlcAMhALN6lAo8DQGfglRkca7rW0x5qJgUalROiO/NQ5Yj\n\
    WOrso1MwUTAdBgNVHQ4EFgQUgmLRUHQf6ZGSr5tmkFwjbGX9T1UwHwYDVR0jBBgw\n\
    FoAUgmLRUHQf6ZGSr5tmkFwjbGX9T1UwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD\n\
    QQCywsLRQY+xDoAdb/VyTihE/+1osKJKaPhpc5y9vEsBEmzp87NSuOkPeNi3yiuI\n\
    6S7dwvZx0np4trPRuKMp7UEJ\n\
    -----END CERTIFICATE-----\n";
const KEY_B: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIDJALQgmcYlK1borMEiH9EzdGPLEXrsXhAg60yBvjB7Z\n\
    -----END PRIVATE KEY-----\n";

struct Files(tempfile::TempDir);

impl Files {
    fn put(&self, certificate: &str, key: &str) {
        std::fs::write(self.0.path().join("c.pem"), certificate).unwrap();
        std::fs::write(self.0.path().join("k.pem"), key).unwrap();
        self.mode(0o640);
    }

    /// Sets the permissions of the key.
    fn mode(&self, mode: u32) {
        std::fs::set_permissions(self.0.path().join("k.pem"), Permissions::from_mode(mode)).unwrap();
    }

    fn open(&self) -> Result<Option<Arc<Certificate>>, ServerError> {
        let config = TlsConfig { certificate: Some("c.pem".into()), key: Some("k.pem".into()) };
        Certificate::open(&config, self.0.path())
    }
}

fn files() -> Files {
    let files = Files(tempfile::tempdir().unwrap());
    files.put(CERTIFICATE_A, KEY_A);
    files
}

#[test]
fn a_start_needs_files_that_fit_and_none_are_needed_without_tls() {
    let files = files();
    assert!(files.open().unwrap().is_some());
    files.put(CERTIFICATE_A, KEY_B);
    let message = files.open().err().unwrap().to_string();
    assert!(message.contains("c.pem with the key") && message.contains("take [tls] out"), "{message}");
    assert!(Certificate::open(&TlsConfig::default(), files.0.path()).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_within_a_minute_and_a_broken_one_is_not_taken() {
    let files = files();
    let certificate = files.open().unwrap().unwrap();
    let watching = tokio::spawn(watch(Some(Arc::clone(&certificate)), signal(SignalKind::hangup()).unwrap()));
    let passed = async || tokio::time::sleep(LOOK_INTERVAL + Duration::from_secs(1)).await;
    passed().await;
    assert_eq!((certificate.status().reloads, certificate.status().problem), (0, None), "nothing changed");
    files.put(CERTIFICATE_B, KEY_A);
    passed().await;
    let status = certificate.status();
    assert!(status.problem.is_some_and(|problem| problem.contains("must be that of the first certificate")));
    assert_eq!(status.reloads, 0);
    files.put(CERTIFICATE_B, KEY_B);
    passed().await;
    assert_eq!((certificate.status().reloads, certificate.status().problem), (1, None));
    files.put("", KEY_B);
    passed().await;
    assert!(certificate.status().problem.is_some_and(|problem| problem.contains("there is none in it")));
    files.put(CERTIFICATE_B, KEY_B);
    passed().await;
    assert_eq!(certificate.status().problem, None, "the files of before are good again");
    watching.abort();
}

#[test]
fn a_key_that_every_user_can_read_is_refused_and_one_for_a_group_is_not() {
    let files = Files(tempfile::tempdir().unwrap());
    files.put(CERTIFICATE_A, KEY_A);
    let served = files.open().unwrap().unwrap();
    files.mode(0o644);
    let why = files.open().err().unwrap().to_string();
    assert!(why.contains("can be read by every user") && why.contains("chmod o= "), "{why}");
    served.look();
    assert!(served.status().problem.is_some_and(|problem| problem.contains("every user")));
    files.mode(0o640);
    served.look();
    assert_eq!(served.status().problem, None);
}
