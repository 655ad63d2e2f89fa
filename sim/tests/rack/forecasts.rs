//! Forecasts of clients' reads compared with the outcome, on Pelican's rack with its network at several loads.

use super::*;
use model::Rng;
use sim::Network;
use std::collections::BTreeMap;

/// The forecasts of the reads of one run, compared with the outcome.
#[derive(Default)]
struct Scores {
    reads: u32,
    within: u32,
    expected_s: f64,
    waited_s: f64,
    off_s: f64,
}

impl Scores {
    fn add(&mut self, said: engine::Forecast, waited: Duration) {
        self.reads += 1;
        self.within += u32::from((said.min..=said.max).contains(&waited));
        self.expected_s += said.expected.as_secs_f64();
        self.waited_s += waited.as_secs_f64();
        self.off_s += waited.abs_diff(said.expected).as_secs_f64();
    }
}

/// Poisson reads of 1 GB at this rate for `span` after an hour; one of them in 4 is forecast.
fn scores(reads_per_s: f64, span: Duration, seed: u64) -> Scores {
    let experiment = Experiment::pelican(shipped("pelican"));
    let (spec, policy) = (experiment.rack, experiment.policy);
    let layout = engine::layout::synthesise(&spec).unwrap();
    let setting = Setting { network: Some(Network::PELICAN), ..Setting::default() };
    let rack = Rack::new(spec, layout.clone(), policy, seed);
    let mut world = World::with(rack, seed, setting);
    let mut rng = Rng::new(seed);
    let drives_of = |group: usize| layout.groups[group].drives[..18].to_vec();
    let mut next = world.now();
    let from = next + 60 * MINUTE;
    let mut said = BTreeMap::new();
    let mut scores = Scores::default();
    while next < from + span {
        world.run_until(next);
        let group = rng.below(layout.groups.len() as u64) as usize;
        let is_asked = next >= from && rng.below(4) == 0;
        let forecast = is_asked.then(|| world.rack.forecast(GroupId(group as u32), world.now()));
        let op = world.read_at(BlobId::numbered(group as u64 + 1), GroupId(group as u32), drives_of(group), 1_000 * MB);
        said.extend(forecast.map(|forecast| (op, forecast)));
        let uniform = (rng.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
        next += Duration::from_secs_f64(-uniform.ln() / reads_per_s);
        for ended in world.take_ended() {
            if let (Some(forecast), Some(first_byte)) = (said.remove(&ended.op), ended.first_byte) {
                scores.add(forecast, first_byte.since(ended.issued));
            }
        }
    }
    scores
}

#[test]
fn waits_are_as_expected_at_every_load() {
    for (reads_per_s, hours) in [(0.0625, 48), (1.0, 6), (2.0, 4), (6.0, 1)] {
        let scores = scores(reads_per_s, Duration::from_hours(hours), 1);
        let (reads, within) = (f64::from(scores.reads), f64::from(scores.within));
        let [expected_s, waited_s, off_s] = [scores.expected_s, scores.waited_s, scores.off_s].map(|sum| sum / reads);
        println!(
            "{reads_per_s} reads/s: {reads} reads, {:.1} % within the range; {expected_s:.1} s expected, \
             {waited_s:.1} s waited, off by {off_s:.1} s",
            within / reads * 100.0,
        );
        assert!(reads > 1_000.0, "{reads} reads at {reads_per_s} reads/s say little");
        assert!(within >= 0.9 * reads, "{within} of {reads} waits lie within their forecast at {reads_per_s} reads/s");
        assert!((0.8..1.2).contains(&(expected_s / waited_s)), "{expected_s} s expected, {waited_s} s waited");
        assert!(off_s < 0.2 * waited_s, "off by {off_s} s of {waited_s} s at {reads_per_s} reads/s");
    }
}
