//! Flows over shared links: their shares, and that no link carries more than it can.
#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

/// The max-min fair rate of a stream of each flow, in bytes/s, over links of these capacities, in bytes/s. Capacities
/// are above 0, since a link that carries nothing would hold its flows for ever; rates are at least 1.
fn fair_rates(capacities: &[u64], demands: &[Demand]) -> Vec<u64> {
    let mut filling = Filling::new(capacities.len());
    let links: Vec<LinkId> = (0..capacities.len()).collect();
    filling.fill(capacities, &links, demands.len(), |flow| &demands[flow]);
    filling.rates
}

/// The definition, link by link and flow by flow: within capacity, and no flow can be raised without lowering one that
/// is no faster. Rates are whole bytes/s, so a link counts as full when its streams cannot all have one more.
fn is_max_min(capacities: &[u64], demands: &[Demand], rates: &[u64]) -> Result<(), String> {
    let on = |link: LinkId| {
        let rates = demands.iter().zip(rates);
        rates.filter_map(move |(demand, rate)| Some((demand.crosses.iter().find(|(l, _)| *l == link)?.1, *rate)))
    };
    for (link, capacity) in capacities.iter().enumerate() {
        let used: u128 = on(link).map(|(streams, rate)| u128::from(streams) * u128::from(rate)).sum();
        if used > u128::from(*capacity) * u128::from(MILLI) {
            return Err(format!("link {link} carries {used} of {capacity}"));
        }
    }
    for (flow, (demand, rate)) in demands.iter().zip(rates).enumerate() {
        let held = |link: LinkId| {
            let used: u128 = on(link).map(|(streams, rate)| u128::from(streams) * u128::from(rate)).sum();
            let more: u128 = on(link).map(|(streams, _)| u128::from(streams)).sum();
            let full = used + more > u128::from(capacities[link]) * u128::from(MILLI);
            full && on(link).all(|(_, other)| other <= *rate + 1)
        };
        let at_drives = *rate == demand.stream_bytes_per_s;
        if *rate > demand.stream_bytes_per_s || !(at_drives || demand.crosses.iter().any(|(link, _)| held(*link))) {
            return Err(format!("flow {flow} at {rate} is not held back by anything"));
        }
    }
    Ok(())
}

fn demand(links: usize) -> impl Strategy<Value = Demand> {
    let crosses = proptest::collection::btree_map(0..links, 1_000_u64..20_000, 0..=links);
    (1_000_000_u64..200_000_000, crosses)
        .prop_map(|(stream_bytes_per_s, crosses)| Demand { stream_bytes_per_s, crosses: crosses.into_iter().collect() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_link_is_over_capacity_and_no_flow_can_be_raised_without_lowering_a_smaller_one(
        capacities in proptest::collection::vec(100_000_000_u64..10_000_000_000, 4),
        demands in proptest::collection::vec(demand(4), 1..=48),
    ) {
        let rates = fair_rates(&capacities, &demands);
        prop_assert_eq!(is_max_min(&capacities, &demands, &rates), Ok(()));
    }

    #[test]
    fn what_begins_ends_once_and_no_earlier_than_its_drives_allow(
        flows in proptest::collection::vec((demand(3), 1_u64..2_000_000_000, 0_u64..20), 1..30),
    ) {
        let mut under_way = Flows::new(vec![800_000_000; 3]);
        let mut now = Time::ZERO;
        let mut ended = vec![0; flows.len()];
        let mut earliest = vec![Time::ZERO; flows.len()];
        for (index, (demand, bytes, pause_s)) in flows.iter().enumerate() {
            let until = now + Duration::from_secs(*pause_s);
            while under_way.next_end() <= until {
                now = under_way.next_end();
                let flow: usize = under_way.take_ended(now).unwrap();
                ended[flow] += 1;
                prop_assert!(now >= earliest[flow]);
            }
            now = until;
            earliest[index] = now + model::transfer_time(*bytes, demand.stream_bytes_per_s);
            under_way.begin(now, index, demand.clone(), *bytes);
        }
        while !under_way.is_empty() {
            now = under_way.next_end();
            let flow = under_way.take_ended(now).unwrap();
            ended[flow] += 1;
            prop_assert!(now >= earliest[flow]);
        }
        prop_assert!(ended.iter().all(|times| *times == 1));
    }
}

fn pelican_read() -> Demand {
    Demand { stream_bytes_per_s: 105_000_000, crosses: vec![(0, 18_000), (1, 15_000)] }
}

#[test]
fn twenty_four_reads_of_one_server_are_held_back_by_its_pcie_root() {
    // 64 Gb/s at the root, an unbounded network: 53.3 Gb/s of payload a server, 106 Gb/s in all (Pelican, figure 5).
    let rates = fair_rates(&[8_000_000_000, u64::MAX / MILLI], &vec![pelican_read(); 24]);
    let payload_bits: u64 = rates.iter().map(|rate| rate * 15 * 8).sum();
    assert_eq!(payload_bits / 100_000_000, 533, "{payload_bits}");
}

#[test]
fn a_flow_that_ends_leaves_its_share_to_the_others() {
    let mut flows = Flows::new(vec![1_500_000_000, 1_500_000_000]);
    let demand = Demand { stream_bytes_per_s: 1_000_000_000, crosses: vec![(0, 1_000)] };
    flows.begin(Time::ZERO, 'a', demand.clone(), 750_000_000);
    flows.begin(Time::ZERO, 'b', demand, 1_750_000_000);
    assert_eq!(flows.next_end(), Time::from_secs(1), "each has half of the link");
    assert_eq!(flows.take_ended(Time::from_secs(1)), Some('a'));
    assert_eq!(flows.take_ended(Time::from_secs(1)), None);
    assert_eq!(flows.next_end(), Time::from_secs(2), "and then as much as its drives give");
}
