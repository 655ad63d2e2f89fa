//! Limits of the frontend: requests, connections, bytes and times.

use crate::places::Shares;
use std::time::Duration;

/// Limits of the frontend.
#[derive(Clone, Debug)]
pub struct S3Limits {
    /// Concurrent requests, including those whose response is still being sent; one more gets `SlowDown`.
    pub requests: usize,
    /// Of those, requests of one user.
    pub user_requests: usize,
    /// Of those, unsigned requests from one address.
    pub peer_requests: usize,
    /// Of those, unsigned requests from all addresses.
    pub unsigned_requests: usize,
    /// Concurrent requests that wait for the bytes of a cold object, beside `requests`; one more gets `SlowDown`. Each
    /// holds a connection, so the effective limit may be lower: see [`Self::waiting_max`].
    pub waiting: usize,
    /// Concurrent connections. One more closes the longest idle connection; if none is idle, it waits to be accepted.
    pub connections: usize,
    /// Of those, connections from one address. One more closes the longest idle connection of its address, or else is
    /// itself closed.
    pub peer_connections: usize,
    /// The longest head of a request, in bytes.
    pub head_bytes: usize,
    /// The minimum rate at which a client sends or takes bytes while the server waits for it, in bytes per second, on
    /// average over `stall`.
    pub min_bytes_per_s: u64,
    /// The largest object of one PUT, in bytes.
    pub put_bytes: u64,
    /// Time for a client to send a request's head or the next piece of its body, or to take the next piece of a
    /// response.
    pub stall: Duration,
    /// Time for requests in flight to end after shutdown was requested.
    pub grace: Duration,
}

/// Concurrent requests that wait for cold objects.
const WAITING: usize = 4096;

/// Connections of a typical client with many threads. With fewer, such clients would be cut off repeatedly where a low
/// limit of open files leaves few connections in all; there, idle connections make room for others.
const PEER_CONNECTIONS_MIN: usize = 32;

impl S3Limits {
    /// Limits with the default shares of `requests` and `connections`: three quarters of the requests for one user, a
    /// quarter for one address without a signature, half for all unsigned requests; half of the connections for one
    /// address, but at least 32 of them, or all if there are fewer.
    #[must_use]
    pub fn of(requests: usize, connections: usize) -> Self {
        let share = |whole: usize, quarters: usize| (whole * quarters).div_ceil(4).max(1);
        Self {
            requests,
            user_requests: share(requests, 3),
            peer_requests: share(requests, 1),
            unsigned_requests: share(requests, 2),
            waiting: WAITING,
            connections,
            peer_connections: share(connections, 2).max(connections.min(PEER_CONNECTIONS_MIN)),
            head_bytes: 64 << 10,
            min_bytes_per_s: 1 << 10,
            put_bytes: 5 << 30,
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(30),
        }
    }

    /// The shares of requests.
    pub(crate) fn request_shares(&self) -> Shares {
        let (user, peer) = (self.user_requests, self.peer_requests);
        Shares { all: self.requests, user, peer, unsigned: self.unsigned_requests }
    }

    /// The shares of requests that wait for cold objects, in the ratio of those of all requests.
    pub(crate) fn waiting_shares(&self) -> Shares {
        self.request_shares().scaled(self.waiting_max())
    }

    /// The maximum number of requests that wait for cold objects at once. However few connections there may be, this
    /// leaves some of them to other requests.
    pub fn waiting_max(&self) -> usize {
        self.waiting.min(beside(self.requests, self.connections))
    }

    /// The maximum number of those whose connections come from one address.
    pub(crate) fn peer_waiting_max(&self) -> usize {
        beside(self.requests, self.peer_connections)
    }
}

/// The part of `connections` that leaves `requests` of them, or half of them if that is less, to others.
fn beside(requests: usize, connections: usize) -> usize {
    connections.saturating_sub(requests).max(connections / 2).max(1)
}

impl Default for S3Limits {
    fn default() -> Self {
        Self::of(256, WAITING + 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_leave_connections_to_others() {
        let usual = S3Limits::default();
        assert_eq!((usual.waiting_max(), usual.waiting_shares().user, usual.peer_waiting_max()), (4096, 3072, 2304));
        let few = S3Limits::of(256, 300);
        assert_eq!((few.waiting_max(), few.peer_waiting_max()), (150, 75), "half of them");
        let more = S3Limits::of(256, 1024);
        assert_eq!((more.waiting_max(), more.peer_waiting_max()), (768, 256), "as many as there may be requests");
        assert_eq!(S3Limits { waiting: 9, ..usual }.waiting_max(), 9);
    }
}
