//! Limits of the front: requests, connections, bytes and times.

use std::time::Duration;

/// Limits of the front.
#[derive(Clone, Debug)]
pub struct S3Limits {
    /// Requests at once, including those whose response is still being sent; one more gets `SlowDown`.
    pub requests: usize,
    /// Of those, requests of one user.
    pub user_requests: usize,
    /// Of those, unsigned requests from one address.
    pub peer_requests: usize,
    /// Of those, unsigned requests from all addresses.
    pub unsigned_requests: usize,
    /// Connections at once. For one more the longest idle one is closed; if none is idle, it waits to be accepted.
    pub connections: usize,
    /// Of those, connections from one address. For one more its longest idle one is closed, or else the new one.
    pub peer_connections: usize,
    /// The longest head of a request, in bytes.
    pub head_bytes: usize,
    /// The least that a client must send or take while it is waited for, in bytes per second, on average over `stall`.
    pub min_bytes_per_s: u64,
    /// The largest object of one PUT, in bytes.
    pub put_bytes: u64,
    /// Time for a client to send a request's head, or the next piece of its body, or to take the next piece of
    /// an answer.
    pub stall: Duration,
    /// Time for requests in flight after shutdown was requested.
    pub grace: Duration,
}

/// Connections of a typical client with many threads. With fewer, it would be cut off again and again where a low limit
/// of open files leaves few connections in all; there, idle ones make room for others.
const PEER_CONNECTIONS_MIN: usize = 32;

impl S3Limits {
    /// Limits with the default shares of `requests` and `connections`: three quarters of the
    /// requests for one user, a quarter for one address without a signature, half for all of those; half of the
    /// connections for one address, but no fewer than 32 as long as there are so many.
    #[must_use]
    pub fn of(requests: usize, connections: usize) -> Self {
        let share = |whole: usize, quarters: usize| (whole * quarters).div_ceil(4).max(1);
        Self {
            requests,
            user_requests: share(requests, 3),
            peer_requests: share(requests, 1),
            unsigned_requests: share(requests, 2),
            connections,
            peer_connections: share(connections, 2).max(connections.min(PEER_CONNECTIONS_MIN)),
            head_bytes: 64 << 10,
            min_bytes_per_s: 1 << 10,
            put_bytes: 5 << 30,
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(30),
        }
    }
}

impl Default for S3Limits {
    fn default() -> Self {
        Self::of(256, 1024)
    }
}
