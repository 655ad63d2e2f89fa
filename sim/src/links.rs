//! The links of a rack: each server's PCIe root, and its network.
//!
//! A server is a domain of the description's first resource that is counted in bytes/s (Pelican: the root of a PCIe
//! hierarchy); without such a resource there is one server. Every stream of a transfer crosses the links of its own
//! drive. A read's payload leaves by the networks of the servers that its drives hang on, in proportion to their
//! streams. Writes come in by the other direction of the network, which nothing else uses, and are not held back there.
//!
//! Invariants: multiplicities are in thousandths of a stream, so that a read's k of k + r streams divide without
//! floats.

use crate::flow::{Demand, LinkId};
use model::{DomainLimit, DriveId, RackSpec};
use serde::{Deserialize, Serialize};

/// What a rack's servers can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes/s of one network card; `None` never holds anything back.
    pub bytes_per_s: Option<u64>,
    /// Whether all servers share one card (Pelican's prototype) or have one each.
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

/// The links of a rack. See the head of this file.
#[derive(Clone, Debug)]
pub struct Links {
    capacities: Vec<u64>,
    /// For each drive, the links of resources that it crosses.
    of_drive: Vec<Vec<LinkId>>,
    /// The server of each drive.
    server_of: Vec<usize>,
    servers: usize,
    /// The link by which each server sends; empty if the network is unbounded.
    network_of: Vec<LinkId>,
    stream_bytes_per_s: u64,
}

impl Links {
    /// The links of `spec` under `network`.
    pub fn new(spec: &RackSpec, network: Network) -> Self {
        let mut capacities = Vec::new();
        let mut of_drive = vec![Vec::new(); spec.drives.len()];
        let mut server_of = vec![0; spec.drives.len()];
        let mut servers = 1;
        for (resource, described) in spec.resources_by_id() {
            let DomainLimit::BytesPerS(bytes_per_s) = described.limit else { continue };
            let first = capacities.len();
            let domains = spec.domain_count(resource);
            capacities.extend(std::iter::repeat_n(bytes_per_s, domains));
            for drive in &spec.drives {
                let domain = spec.domain_of(drive.id, resource).index();
                of_drive[drive.id.index()].push(first + domain);
                if first == 0 {
                    server_of[drive.id.index()] = domain;
                    servers = domains;
                }
            }
        }
        let mut network_of = Vec::new();
        if let Some(bytes_per_s) = network.bytes_per_s {
            let cards = if network.shared { 1 } else { servers };
            network_of.extend((0..servers).map(|server| capacities.len() + server.min(cards - 1)));
            capacities.extend(std::iter::repeat_n(bytes_per_s, cards));
        }
        let stream_bytes_per_s = spec.profile.bytes_per_s;
        Self { capacities, of_drive, server_of, servers, network_of, stream_bytes_per_s }
    }

    /// The capacity of each link, in bytes/s.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The server that `drive` hangs on.
    pub fn server_of(&self, drive: DriveId) -> usize {
        self.server_of[drive.index()]
    }

    /// What a transfer with one stream for each of `drives` asks of the links. For a read, `sent` streams' worth of
    /// payload leaves by the network.
    pub fn demand(&self, drives: &[DriveId], sent: u64) -> Demand {
        let mut crosses: Vec<(LinkId, u64)> = Vec::with_capacity(4);
        let mut add = |link: LinkId, streams: u64| match crosses.iter_mut().find(|(known, _)| *known == link) {
            Some((_, counted)) => *counted += streams,
            None => crosses.push((link, streams)),
        };
        for drive in drives {
            for link in &self.of_drive[drive.index()] {
                add(*link, 1_000);
            }
        }
        if sent > 0 && !self.network_of.is_empty() {
            let mut counts = vec![0_u64; self.servers];
            for drive in drives {
                counts[self.server_of(*drive)] += 1;
            }
            for (server, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
                add(self.network_of[server], (sent * 1_000 * count).div_ceil(drives.len() as u64));
            }
        }
        Demand { stream_bytes_per_s: self.stream_bytes_per_s, crosses }
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
        assert_eq!(links.capacities(), [8_000_000_000, 8_000_000_000, 2_500_000_000, 2_500_000_000]);
        let mut right: Vec<DriveId> = spec.drives.iter().map(|d| d.id).filter(|d| links.server_of(*d) == 1).collect();
        right.truncate(18);
        assert_eq!(links.demand(&right, 15).crosses, [(1, 18_000), (3, 15_000)]);
        assert_eq!(links.demand(&right, 0).crosses, [(1, 18_000)]);
    }

    #[test]
    fn stacks_on_both_halves_share_out_what_is_sent() {
        let spec = pelican();
        let links = Links::new(&spec, Network::PELICAN);
        let of = |server| spec.drives.iter().filter(move |d| usize::from(d.slot[0] >= 3) == server).map(|d| d.id);
        let all: Vec<DriveId> = of(0).take(6).chain(of(1).take(12)).collect();
        let first = 6;
        let crosses = links.demand(&all, 15).crosses;
        assert!(crosses.contains(&(0, first * 1_000)));
        assert!(crosses.contains(&(2, (15_000 * first).div_ceil(18))));
        let shared = Links::new(&spec, Network::PROTOTYPE).demand(&all, 15).crosses;
        assert_eq!(shared.iter().filter(|(link, _)| *link >= 2).collect::<Vec<_>>(), [&(2, 15_000)]);
    }
}
