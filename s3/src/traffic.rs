//! Shares of the frontend: connections by peer, requests by user and by peer, and counts of refusals.
//!
//! - A request counts from when its signature was verified until its response was sent. A signed request counts for its
//!   user, an unsigned one for its address; all unsigned requests together have a share as well. So neither one user
//!   nor unknown senders can take all permits.
//! - A request that waits for the bytes of a cold object releases its place meanwhile and has a waiting place; there
//!   are more of those, and they have shares as well. When its bytes are available it gets the next place that is free
//!   and within its shares, before any new request; the request that has wanted a place longest goes first.
//! - A connection without a request under way is idle. At the maximum number of connections, the one that has been idle
//!   longest makes room for the next; for a peer at its maximum, its own longest idle connection does.
//!
//! Memory: a few words for each connection and each request under way, whose numbers are bounded here.

use crate::latency::Latencies;
use crate::limits::S3Limits;
use crate::places::{Excess, Places, Requester, Shares, uncount};
use disk::clock;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Refused bodies that are drained at once, so that their senders read the response. Others are cut off.
const DRAINS: usize = 64;

/// The idle time after which a connection may be closed for another.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// The peer that an address belongs to; an IPv6 network of 64 bits is one peer, because one customer has it.
pub(crate) fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Connections and requests under way, and counts of refusals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficStats {
    /// Connections now.
    pub connections: usize,
    /// Of those, connections without a request under way.
    pub idle_connections: usize,
    /// Requests now.
    pub requests: usize,
    /// Of those, unsigned ones.
    pub unsigned_requests: usize,
    /// Requests that wait for cold objects now; they do not count as `requests`.
    pub waiting_requests: usize,
    /// Requests refused with `SlowDown` because there were too many.
    pub refused_requests: u64,
    /// Connections that were closed at once because their peer had too many.
    pub refused_connections: u64,
    /// Idle connections that made room for others.
    pub evicted_connections: u64,
    /// Clients that sent or took too little for too long.
    pub slow_clients: u64,
}

#[derive(Default)]
struct TrafficState {
    /// The counts as reported, except for those of connections and of requests under way.
    stats: TrafficStats,
    /// Requests under way that do not wait.
    active: Places,
    /// Requests that wait for cold objects, and the addresses they came from.
    waiting: Places,
    waiting_by_peer: HashMap<IpAddr, usize>,
    /// Those of them whose bytes are available and that wait for a place only.
    returning: VecDeque<Returning>,
    connections: BTreeMap<u64, ConnectionRecord>,
    by_peer: HashMap<IpAddr, usize>,
    next: u64,
    drains: usize,
}

struct Returning {
    requester: Requester,
    place: oneshot::Sender<()>,
}

struct ConnectionRecord {
    peer: IpAddr,
    /// The time since when no request is under way.
    idle_since: Option<Instant>,
    evicted: Arc<Notify>,
}

/// Connections and requests of one listener, within its limits.
pub struct Traffic {
    limits: S3Limits,
    state: Mutex<TrafficState>,
    /// A connection has ended or become idle.
    changed: Notify,
    latencies: Latencies,
}

/// The reason that a connection is not admitted yet.
enum NotYet {
    /// Its peer has its maximum of connections, and none of them is idle.
    OfPeer,
    /// All connections are busy.
    AtAll,
    /// No connection has been idle for long enough yet; one will have been after this time.
    Soon(Duration),
}

impl Traffic {
    /// A listener without connections.
    pub fn new(limits: &S3Limits) -> Arc<Self> {
        let (changed, latencies) = (Notify::new(), Latencies::default());
        Arc::new(Self { limits: limits.clone(), state: Mutex::default(), changed, latencies })
    }

    /// The limits.
    pub fn limits(&self) -> &S3Limits {
        &self.limits
    }

    /// Histograms of request durations.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The current counts.
    pub fn stats(&self) -> TrafficStats {
        let state = self.lock();
        TrafficStats {
            connections: state.connections.len(),
            idle_connections: state.connections.values().filter(|connection| connection.idle_since.is_some()).count(),
            requests: state.active.all(),
            unsigned_requests: state.active.unsigned(),
            waiting_requests: state.waiting.all(),
            ..state.stats
        }
    }

    /// Counts a client that was too slow and is cut off.
    pub(crate) fn too_slow(&self) {
        self.lock().stats.slow_clients += 1;
    }

    fn lock(&self) -> MutexGuard<'_, TrafficState> {
        self.state.lock()
    }

    /// A permit for a request of `requester`, or the reason to refuse it.
    pub(crate) fn admit(self: &Arc<Self>, requester: Requester) -> Result<RequestPermit, &'static str> {
        let mut state = self.lock();
        if let Err(excess) = state.active.take(&requester, &self.limits.request_shares()) {
            state.stats.refused_requests += 1;
            return Err(match excess {
                Excess::All => "Too many requests at once.",
                Excess::OfRequester => "Too many requests of yours at once.",
                Excess::Unsigned => "Too many unsigned requests at once.",
            });
        }
        Ok(RequestPermit { traffic: Arc::clone(self), requester })
    }

    /// Lets the request of `permit`, which came from `address`, wait for a cold object; or the reason to refuse it.
    pub(crate) fn wait(
        self: &Arc<Self>,
        permit: RequestPermit,
        address: IpAddr,
    ) -> Result<WaitingPermit, &'static str> {
        let (peer, requester) = (peer_of(address), permit.requester.clone());
        let mut state = self.lock();
        let refusal = if state.waiting_by_peer.get(&peer).is_some_and(|most| *most >= self.limits.peer_waiting_max()) {
            Some("Too many requests from your address wait for cold objects.")
        } else {
            let taken = state.waiting.take(&requester, &self.limits.waiting_shares());
            taken.err().map(|excess| match excess {
                Excess::All => "Too many requests wait for cold objects.",
                Excess::OfRequester => "Too many requests of yours wait for cold objects.",
                Excess::Unsigned => "Too many unsigned requests wait for cold objects.",
            })
        };
        if let Some(refusal) = refusal {
            state.stats.refused_requests += 1;
            return Err(refusal);
        }
        *state.waiting_by_peer.entry(peer).or_default() += 1;
        drop(state);
        drop(permit);
        Ok(WaitingPermit { traffic: Arc::clone(self), requester, peer, place: None })
    }

    /// Releases the place of a request, to the first request that wants one back.
    fn leave_place(&self, requester: &Requester) {
        let mut state = self.lock();
        state.active.give_back(requester);
        state.let_return(&self.limits.request_shares());
    }

    /// A permit to drain a refused request's body, unless too many are being drained.
    pub(crate) fn drain(self: &Arc<Self>) -> Option<DrainPermit> {
        let mut state = self.lock();
        (state.drains < DRAINS).then(|| {
            state.drains += 1;
            DrainPermit(Arc::clone(self))
        })
    }

    /// Admits a connection from `address` as soon as there is room for it; `None` if its peer has too many.
    pub(crate) async fn connect(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let peer = peer_of(address);
        loop {
            let changed = self.changed.notified();
            match self.try_connect(peer) {
                Ok(connected) => return Some(connected),
                Err(NotYet::OfPeer) => {
                    self.lock().stats.refused_connections += 1;
                    return None;
                }
                Err(NotYet::AtAll) => changed.await,
                Err(NotYet::Soon(wait)) => tokio::time::sleep(wait).await,
            }
        }
    }

    fn try_connect(self: &Arc<Self>, peer: IpAddr) -> Result<ConnectionPermit, NotYet> {
        let mut state = self.lock();
        if state.by_peer.get(&peer).is_some_and(|connections| *connections >= self.limits.peer_connections) {
            state
                .evict(|connection| connection.peer == peer)
                .map_err(|soon| soon.map_or(NotYet::OfPeer, NotYet::Soon))?;
        }
        if state.connections.len() >= self.limits.connections {
            state.evict(|_| true).map_err(|soon| soon.map_or(NotYet::AtAll, NotYet::Soon))?;
        }
        state.next += 1;
        let number = state.next;
        let evicted = Arc::<Notify>::default();
        let connection = ConnectionRecord { peer, idle_since: Some(clock::monotonic()), evicted: Arc::clone(&evicted) };
        state.connections.insert(number, connection);
        *state.by_peer.entry(peer).or_default() += 1;
        assert!(state.connections.len() <= self.limits.connections, "connected within the limit");
        assert!(state.by_peer[&peer] <= self.limits.peer_connections, "a peer is connected within its limit");
        Ok(ConnectionPermit { traffic: Arc::clone(self), number, peer, evicted })
    }
}

impl TrafficState {
    /// Gives free places to waiting requests whose bytes are there, within the shares of users and addresses.
    fn let_return(&mut self, shares: &Shares) {
        let Self { active, returning, .. } = self;
        returning.retain_mut(|next| {
            if next.place.is_closed() {
                return false;
            }
            if active.all() >= shares.all || active.take(&next.requester, shares).is_err() {
                return true;
            }
            // A request that gives up from now on finds the place and releases it.
            let (given, _) = oneshot::channel();
            if std::mem::replace(&mut next.place, given).send(()).is_err() {
                active.give_back(&next.requester);
            }
            false
        });
    }

    /// Closes the connection that has been idle longest, of those that `is_meant` selects.
    ///
    /// # Errors
    /// If none may be closed: the time until the first may be, or `None` if none is idle. A connection that is about to
    /// send a request must get the time for it, or many clients at once would close each other's connections forever.
    fn evict(&mut self, is_meant: impl Fn(&ConnectionRecord) -> bool) -> Result<(), Option<Duration>> {
        let meant = self.connections.iter().filter(|(_, connection)| is_meant(connection));
        let idle = meant.filter_map(|(number, connection)| Some((connection.idle_since?, *number)));
        let (since, number) = idle.min().ok_or(None)?;
        let too_early = IDLE_MIN.saturating_sub(since.elapsed());
        if !too_early.is_zero() {
            return Err(Some(too_early));
        }
        self.stats.evicted_connections += 1;
        let connection = self.leave(number).ok_or(None)?;
        connection.evicted.notify_one();
        Ok(())
    }

    /// Stops counting a connection.
    fn leave(&mut self, number: u64) -> Option<ConnectionRecord> {
        let connection = self.connections.remove(&number)?;
        uncount(&mut self.by_peer, &connection.peer);
        Some(connection)
    }
}

/// Permits a request to be served, and counts it until the permit is dropped.
pub(crate) struct RequestPermit {
    traffic: Arc<Traffic>,
    requester: Requester,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.traffic.leave_place(&self.requester);
    }
}

/// Permits a request to wait for a cold object, and counts it until the permit is dropped.
pub(crate) struct WaitingPermit {
    traffic: Arc<Traffic>,
    requester: Requester,
    peer: IpAddr,
    /// Resolves when the request has its place back.
    place: Option<oneshot::Receiver<()>>,
}

impl WaitingPermit {
    /// Waits for a place among the requests under way. The request counts as waiting until it has one.
    pub async fn resume(mut self) -> RequestPermit {
        let wanted = {
            let (place, wanted) = oneshot::channel();
            let mut state = self.traffic.lock();
            state.returning.push_back(Returning { requester: self.requester.clone(), place });
            state.let_return(&self.traffic.limits.request_shares());
            wanted
        };
        let given = self.place.insert(wanted).await;
        assert!(given.is_ok(), "whoever wants a place is not forgotten");
        self.place = None;
        RequestPermit { traffic: Arc::clone(&self.traffic), requester: self.requester.clone() }
    }
}

impl Drop for WaitingPermit {
    fn drop(&mut self) {
        let mut state = self.traffic.lock();
        state.waiting.give_back(&self.requester);
        uncount(&mut state.waiting_by_peer, &self.peer);
        drop(state);
        // The request is gone; it may have got a place a moment ago.
        if let Some(mut place) = self.place.take() {
            place.close();
            if place.try_recv().is_ok() {
                self.traffic.leave_place(&self.requester);
            }
        }
    }
}

/// Permits a refused body to be drained, and counts it until the permit is dropped.
pub(crate) struct DrainPermit(Arc<Traffic>);

impl Drop for DrainPermit {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        assert!((1..=DRAINS).contains(&state.drains), "a permit counts while it lives");
        state.drains -= 1;
    }
}

/// Permits a connection to be open, and counts it until the permit is dropped or the connection is evicted.
pub(crate) struct ConnectionPermit {
    traffic: Arc<Traffic>,
    number: u64,
    peer: IpAddr,
    evicted: Arc<Notify>,
}

impl ConnectionPermit {
    /// The address of the peer, as [`peer_of`] returns it.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Resolves when the connection must make room for another.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Marks the connection as busy until the mark is dropped.
    pub fn busy(self: &Arc<Self>) -> BusyConnection {
        self.set_idle(None);
        BusyConnection(Arc::clone(self))
    }

    fn set_idle(&self, idle_since: Option<Instant>) {
        if let Some(connection) = self.traffic.lock().connections.get_mut(&self.number) {
            connection.idle_since = idle_since;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.traffic.lock().leave(self.number);
        self.traffic.changed.notify_waiters();
    }
}

/// Marks a connection as busy while it lives.
pub(crate) struct BusyConnection(Arc<ConnectionPermit>);

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.0.set_idle(Some(clock::monotonic()));
        self.0.traffic.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn limits() -> S3Limits {
        let limits = S3Limits { requests: 8, connections: 4, ..S3Limits::default() };
        S3Limits { user_requests: 6, peer_requests: 2, unsigned_requests: 4, peer_connections: 2, ..limits }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn user(name: &str) -> Requester {
        Requester::User(name.to_owned())
    }

    #[test]
    fn neither_one_user_nor_strangers_take_all_places() {
        let traffic = Traffic::new(&limits());
        let take = |requester: Requester, times: usize| -> Vec<RequestPermit> {
            (0..times).map_while(|_| traffic.admit(requester.clone()).ok()).collect()
        };
        let alice = take(user("alice"), 9);
        assert_eq!(alice.len(), 6);
        let strangers: Vec<Vec<RequestPermit>> = (0..4).map(|last| take(Requester::Peer(address(last)), 9)).collect();
        assert_eq!(strangers.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 0, 0], "there are eight places");
        drop(alice);
        let more: Vec<Vec<RequestPermit>> = (1..4).map(|last| take(Requester::Peer(address(last)), 9)).collect();
        assert_eq!(more.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 0], "four of them are for strangers");
        assert_eq!(take(user("bob"), 9).len(), 4);
        let seen = traffic.stats();
        assert_eq!((seen.requests, seen.unsigned_requests, seen.refused_requests > 0), (4, 4, true));
        drop((strangers, more));
        assert_eq!(traffic.stats().requests, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_waited_goes_on_before_new_requests_and_within_its_share() {
        let traffic = Traffic::new(&S3Limits { waiting: 8, ..limits() });
        let admit = |name: &str| traffic.admit(user(name));
        let wait = |name: &str, last| traffic.wait(admit(name).ok().unwrap(), address(last)).ok().unwrap();
        let (alice, bob) = (wait("alice", 1), wait("bob", 2));
        assert_eq!((traffic.stats().requests, traffic.stats().waiting_requests), (0, 2));
        assert!(traffic.wait(admit("carol").ok().unwrap(), address(3)).is_err(), "connections are for others as well");
        assert_eq!(traffic.stats().requests, 0);
        let mut hers: Vec<_> = (0..6).map(|_| admit("alice").ok().unwrap()).collect();
        let others: Vec<_> = ["carol", "dora"].map(|name| admit(name).ok().unwrap()).into();
        let (mut alice, mut bob) = (Box::pin(alice.resume()), Box::pin(bob.resume()));
        assert!(futures::poll!(alice.as_mut()).is_pending() && futures::poll!(bob.as_mut()).is_pending());
        drop(others);
        assert!(futures::poll!(alice.as_mut()).is_pending(), "she has her share");
        let bobs = bob.await;
        assert_eq!(traffic.stats().requests, 7);
        let erin = admit("erin").ok().unwrap();
        drop(hers.pop());
        assert!(admit("alice").is_err(), "the place is of who waited for it");
        drop(alice.await);
        drop((hers, bobs, erin));
        assert_eq!((traffic.stats().requests, traffic.stats().waiting_requests), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_while_it_waits_leaves_nothing_behind() {
        let traffic = Traffic::new(&S3Limits { requests: 1, waiting: 8, ..limits() });
        let wait = || traffic.wait(traffic.admit(user("alice")).ok().unwrap(), address(1)).ok().unwrap();
        drop(wait());
        let mut given = Box::pin(wait().resume());
        let other = traffic.admit(user("bob")).ok().unwrap();
        assert!(futures::poll!(given.as_mut()).is_pending());
        drop(other);
        assert_eq!(traffic.stats().requests, 1, "it has its place back, and does not know");
        drop(given);
        let seen = traffic.stats();
        assert_eq!((seen.requests, seen.waiting_requests), (0, 0));
        let mut queued = Box::pin(wait().resume());
        let other = traffic.admit(user("bob")).ok().unwrap();
        assert!(futures::poll!(queued.as_mut()).is_pending());
        drop(queued);
        drop(other);
        assert_eq!(traffic.stats().requests, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_makes_room_and_a_busy_one_never() {
        let traffic = Traffic::new(&limits());
        let mut connected = Vec::new();
        for last in 0..4 {
            connected.push(Arc::new(traffic.connect(address(last)).await.unwrap()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let busy = connected[0].busy();
        let fifth = traffic.connect(address(9)).await.unwrap();
        connected[1].evicted().await;
        assert_eq!((traffic.stats().connections, traffic.stats().evicted_connections), (4, 1));
        let all_busy = (connected[2].busy(), connected[3].busy(), Arc::new(fifth).busy());
        let waits = tokio::time::timeout(Duration::from_secs(9), traffic.connect(address(8))).await;
        assert!(waits.is_err(), "nobody is idle");
        drop(busy);
        traffic.connect(address(8)).await.unwrap();
        connected[0].evicted().await;
        drop(all_busy);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_makes_room_for_itself() {
        let traffic = Traffic::new(&limits());
        let first = Arc::new(traffic.connect(address(1)).await.unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = Arc::new(traffic.connect(address(1)).await.unwrap());
        let _third = traffic.connect(address(1)).await.unwrap();
        first.evicted().await;
        assert_eq!(traffic.stats().connections, 2);
        let _busy = (second.busy(), traffic.connect(address(1)).await.map(|third| Arc::new(third).busy()).unwrap());
        assert!(traffic.connect(address(1)).await.is_none());
        assert_eq!(traffic.stats().refused_connections, 1);
        assert!(traffic.connect(address(2)).await.is_some());
    }

    #[test]
    fn a_network_of_64_bits_is_one_peer() {
        let of = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
