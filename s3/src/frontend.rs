//! The state that all requests of a listener share.

use crate::host::HostDomain;
use crate::keys::AccessKeys;
use crate::parallel_md5::Md5Workers;
use crate::store::ObjectStore;
use crate::traffic::Traffic;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent completions of uploads. Each holds the records of up to 10,000 parts, a few MiB; others wait.
const CONCURRENT_COMPLETIONS: usize = 4;

/// The S3 frontend of one store.
pub struct Frontend {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) keys: Arc<dyn AccessKeys>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) domain: Option<HostDomain>,
    pub(crate) md5: Md5Workers,
    /// One permit for each concurrent completion.
    pub(crate) completions: Semaphore,
}

impl Frontend {
    /// A frontend of `store` that accepts requests signed by `keys`, within the limits of `traffic`. Subdomains of
    /// `domain` are buckets.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        keys: Arc<dyn AccessKeys>,
        traffic: Arc<Traffic>,
        domain: Option<HostDomain>,
    ) -> Self {
        let completions = Semaphore::new(CONCURRENT_COMPLETIONS);
        Self { store, keys, traffic, domain, md5: Md5Workers::new(), completions }
    }
}
