//! The links of a rack: each server's PCIe root, and its network.
//!
//! A drive's server comes from `model::physics::Servers`. Every stream of a transfer crosses its drive's links. A
//! read's payload leaves through the networks of its drives' servers, in proportion to their streams. Writes come in
//! through the other direction of the network, which nothing else uses, and are not limited there.
//!
//! Invariants: multiplicities are in thousandths of a stream, so a read's k of k + r streams divide without floats.

use crate::flow::{Demand, LinkId};
use model::physics::{RackLinks, Servers};
use model::{DriveId, RackSpec};
use serde::{Deserialize, Serialize};

/// The network of a rack's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes/s of one network card; `None` is unlimited.
    pub bytes_per_s: Option<u64>,
    /// True if all servers share one card (Pelican's prototype), false if each has its own.
    pub shared: bool,
}

impl Network {
    /// No limit.
    pub const UNBOUNDED: Self = Self { bytes_per_s: None, shared: false };
    /// 20 Gb/s for each server (Pelican, section 5).
    pub const PELICAN: Self = Self { bytes_per_s: Some(2_500_000_000), shared: false };
    /// The one card of Pelican's prototype, which peaked at 8.5 Gb/s.
    pub const PROTOTYPE: Self = Self { bytes_per_s: Some(1_062_500_000), shared: true };
}

/// The links of a rack.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// The capacity of each link, in bytes/s.
    pub capacities: Vec<u64>,
    /// The links of the rack's description, which come first in `capacities`, and those that each drive crosses.
    described: RackLinks,
    /// The number of servers.
    servers: usize,
    /// The link through which each server sends; empty if the network is unlimited.
    network_of: Vec<LinkId>,
}

impl Links {
    /// The links of `spec` under `network`.
    pub fn new(spec: &RackSpec, network: Network) -> Self {
        let described = RackLinks::new(spec);
        let mut capacities = described.bytes_per_s().to_vec();
        let servers = Servers::new(spec).count();
        let mut network_of = Vec::new();
        if let Some(bytes_per_s) = network.bytes_per_s {
            let cards = if network.shared { 1 } else { servers };
            network_of.extend((0..servers).map(|server| capacities.len() + server.min(cards - 1)));
            capacities.extend(std::iter::repeat_n(bytes_per_s, cards));
        }
        Self { capacities, described, servers, network_of }
    }

    /// The demand of a transfer with one stream for each of `drives`, of at most `stream_bytes_per_s` each. In a read,
    /// the payload of `sent` streams leaves through the network.
    pub fn demand(&self, drives: impl IntoIterator<Item = DriveId>, stream_bytes_per_s: u64, sent: u64) -> Demand {
        let mut count = 0;
        let mut demand = Demand { stream_bytes_per_s, crosses: Vec::with_capacity(4) };
        for drive in drives {
            count += 1;
            for link in self.described.of(drive) {
                demand.add(*link, 1_000);
            }
        }
        if sent > 0 && !self.network_of.is_empty() {
            self.send(&mut demand, sent, count);
        }
        demand
    }

    /// Divides the payload among the networks, in proportion to the streams on each server's own link.
    fn send(&self, demand: &mut Demand, sent: u64, count: u64) {
        assert!(sent <= count, "{sent} streams are sent, and {count} read");
        if self.described.bytes_per_s().is_empty() {
            return demand.add(self.network_of[0], sent * 1_000);
        }
        for at in 0..demand.crosses.len() {
            let (link, streams) = demand.crosses[at];
            if link < self.servers {
                demand.add(self.network_of[link], (sent * streams).div_ceil(count));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pelican() -> RackSpec {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        model::text::parse(text, "pelican").unwrap()
    }

    #[test]
    fn a_read_in_one_half_crosses_one_root_whole_and_sends_its_data_by_one_network() {
        let spec = pelican();
        let links = Links::new(&spec, Network::PELICAN);
        assert_eq!(links.capacities, [8_000_000_000, 8_000_000_000, 2_500_000_000, 2_500_000_000]);
        let servers = Servers::new(&spec);
        let mut right: Vec<DriveId> = spec.drives.iter().map(|d| d.id).filter(|d| servers.of(*d) == 1).collect();
        right.truncate(18);
        assert_eq!(links.demand(right.clone(), 1, 15).crosses, [(1, 18_000), (3, 15_000)]);
        assert_eq!(links.demand(right, 1, 0).crosses, [(1, 18_000)]);
    }

    #[test]
    fn stacks_on_both_halves_share_out_what_is_sent() {
        let spec = pelican();
        let links = Links::new(&spec, Network::PELICAN);
        let of = |server| spec.drives.iter().filter(move |d| usize::from(d.slot[0] >= 3) == server).map(|d| d.id);
        let all: Vec<DriveId> = of(0).take(6).chain(of(1).take(12)).collect();
        let first = 6;
        let crosses = links.demand(all.clone(), 1, 15).crosses;
        assert!(crosses.contains(&(0, first * 1_000)));
        assert!(crosses.contains(&(2, (15_000 * first).div_ceil(18))));
        let shared = Links::new(&spec, Network::PROTOTYPE).demand(all, 1, 15).crosses;
        assert_eq!(shared.iter().filter(|(link, _)| *link >= 2).collect::<Vec<_>>(), [&(2, 15_000)]);
    }
}
