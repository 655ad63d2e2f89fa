//! Places of replicas: one on each of three hosts, there on the OSD with the highest draw, as CRUSH's straws work.
//!
//! Invariant: when an OSD leaves, only its own replicas move, and they stay on its host.

use super::REPLICAS;
use model::Rng;

/// An OSD's number, from 0.
pub(super) type Osd = usize;

/// The OSDs of each host, and the draws.
#[derive(Clone, Debug)]
pub(super) struct Map {
    hosts: Vec<Vec<Osd>>,
    seed: u64,
}

impl Map {
    /// The map of these OSDs by host.
    pub fn new(hosts: Vec<Vec<Osd>>, seed: u64) -> Self {
        assert!(hosts.len() >= REPLICAS && hosts.iter().all(|osds| !osds.is_empty()), "each replica has a host");
        Self { hosts, seed }
    }

    fn straw(&self, group: usize, kind: u64, item: usize) -> u64 {
        Rng::for_thing(self.seed ^ kind, (group as u64) << 20 | item as u64).next_u64()
    }

    /// The OSDs of a group's replicas, the primary first.
    pub fn replicas(&self, group: usize) -> [Osd; REPLICAS] {
        let mut hosts: Vec<usize> = (0..self.hosts.len()).collect();
        hosts.sort_unstable_by_key(|host| self.straw(group, 1, *host));
        std::array::from_fn(|position| self.of_host(group, hosts[position], None).expect("a host has OSDs"))
    }

    /// The OSD of `host` for a group, chosen among all except `without`.
    pub fn of_host(&self, group: usize, host: usize, without: Option<Osd>) -> Option<Osd> {
        let osds = self.hosts[host].iter().copied().filter(|osd| Some(*osd) != without);
        osds.max_by_key(|osd| self.straw(group, 2, *osd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_spread_evenly_and_only_what_an_osd_held_moves() {
        let hosts: Vec<Vec<Osd>> = (0..3).map(|host| (host * 8..host * 8 + 8).collect()).collect();
        let map = Map::new(hosts, 5);
        let mut held = [0; 24];
        for group in 0..24_000 {
            let replicas = map.replicas(group);
            assert_eq!(replicas.map(|osd| osd / 8).iter().sum::<usize>(), 3, "one on each of hosts 0, 1 and 2");
            for osd in replicas {
                held[osd] += 1;
                let other = map.of_host(group, osd / 8, Some(7));
                assert!(other.is_some_and(|other| other != 7 && (osd == 7 || other == osd)));
            }
        }
        assert!(held.iter().all(|count| (2_750..3_250).contains(count)), "{held:?}");
    }
}
