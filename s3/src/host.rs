//! Virtual-hosted style: `bucket.domain` as the host, and only the key in the path.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The domain whose subdomains are buckets. Requests to any other host are path style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDomain(String);

impl HostDomain {
    /// `name` in lower case; `None` if it is an IP address, or no domain of letters, digits, hyphens and dots.
    pub fn new(name: &str) -> Option<Self> {
        let sound = |label: &str| {
            let bytes = label.as_bytes();
            let ends = [bytes.first(), bytes.last()];
            (1..=63).contains(&bytes.len())
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
                && !ends.contains(&Some(&b'-'))
        };
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        (!is_address && name.split('.').all(sound)).then(|| Self(name.to_ascii_lowercase()))
    }

    /// The bucket that `host` names, with or without a port; `None` if `host` is not a subdomain.
    pub fn bucket(&self, host: &str) -> Option<String> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.to_ascii_lowercase();
        let bucket = name.strip_suffix(&self.0)?.strip_suffix('.')?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    }
}

impl S3Host for HostDomain {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_subdomains_are_buckets() {
        let domain = HostDomain::new("S3.localhost").unwrap();
        for (host, bucket) in [
            ("attic.s3.localhost", Some("attic")),
            ("attic.s3.localhost:9000", Some("attic")),
            ("Attic.S3.Localhost:9000", Some("attic")),
            ("my.attic.s3.localhost", Some("my.attic")),
            ("s3.localhost:9000", None),
            (".s3.localhost", None),
            ("attics3.localhost", None),
            ("localhost:9000", None),
            ("127.0.0.1:9000", None),
            ("[::1]:9000", None),
            ("", None),
        ] {
            assert_eq!(domain.bucket(host).as_deref(), bucket, "{host}");
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for name in ["", "a..b", "-a.b", "a_b", "a b", "127.0.0.1", ".a", "a."] {
            assert_eq!(HostDomain::new(name), None, "{name}");
        }
    }
}
