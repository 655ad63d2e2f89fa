//! Scrubs beside clients: every blob once per period, within the budget of starts, and without harm to readers.

use super::*;
use engine::trace::TraceMessage;
use engine::{Action, ScrubPolicy, Transfer};
use model::Rng;
use std::collections::BTreeMap;

const DAY: Duration = Duration::from_hours(24);
const DAYS: u32 = 60;
const PERIOD_DAYS: u32 = 20;
const BLOBS: u64 = 150;

/// The results of a run of sixty days.
struct Seen {
    /// By blob, the days on which it was scrubbed from its beginning.
    scrubbed: BTreeMap<BlobId, Vec<u32>>,
    scrub_wakes: u64,
    starts: u64,
    /// The 99th percentile of the times from a client's request to its first byte.
    p99: Duration,
    repaired: u64,
}

/// Clients read random blobs for sixty days, this number per day.
fn run(period: Option<Duration>, reads_per_day: u32) -> Seen {
    let days: Rc<RefCell<BTreeMap<BlobId, Vec<u32>>>> = Rc::default();
    let repaired: Rc<RefCell<u64>> = Rc::default();
    let (noted, counted) = (Rc::clone(&days), Rc::clone(&repaired));
    let recorder: Recorder = Box::new(move |record: Record| match record.message {
        TraceMessage::Action(Action::Transfer { transfer: Transfer::Scrub { blob, from: 0, .. }, .. }) => {
            noted.borrow_mut().entry(blob).or_default().push(record.now.day());
        }
        TraceMessage::Action(Action::MoveStack { from, to, .. }) => *counted.borrow_mut() += u64::from(from == to),
        _ => {}
    });
    let spec = shipped("pelican-mini");
    let mut policy = policy(&spec);
    policy.scrub = ScrubPolicy { period, ..ScrubPolicy::default() };
    let layout = engine::layout::synthesise(&spec).unwrap();
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let setting = Setting { judge, recorder: Some(recorder), ..Setting::default() };
    let mut world = World::with(Rack::new(spec, layout, policy, 8), 8, setting);
    let blobs = with_blobs(&mut world, BLOBS, 2_000 * MB);
    for blob in blobs.iter().step_by(7) {
        let drive = world.blobs.drives_of(*blob)[1];
        world.blobs.corrupt(*blob, drive);
    }
    let (mut rng, mut waits) = (Rng::for_thing(8, 93), Vec::new());
    for _ in 0..DAYS * reads_per_day {
        let blob = blobs[rng.below(BLOBS) as usize];
        world.read(blob, 200 * MB).unwrap();
        world.run_for(DAY / reads_per_day);
        let ended = world.take_ended();
        let of_clients = ended.iter().filter(|ended| ended.outcome == Outcome::Read);
        waits.extend(of_clients.map(|ended| ended.first_byte.unwrap().since(ended.issued)));
    }
    assert_eq!(waits.len() as u32, DAYS * reads_per_day, "every read is answered");
    waits.sort_unstable();
    let stats = world.rack.stats();
    let repaired = *repaired.borrow();
    Seen {
        scrubbed: days.borrow().clone(),
        scrub_wakes: stats.scrub_wakes,
        starts: stats.drive_starts,
        p99: waits[waits.len() * 99 / 100],
        repaired,
    }
}

#[test]
fn every_blob_is_scrubbed_once_in_a_period_beside_clients_who_hardly_notice() {
    // Many reads, some with piggybacked scrubs; few reads, after which groups are woken for the remaining scrubs.
    for (reads_per_day, own_per_period) in [(200, 0), (4, 12), (1, 12)] {
        let without = run(None, reads_per_day);
        let with = run(Some(DAY * PERIOD_DAYS), reads_per_day);
        assert!(without.scrubbed.is_empty());
        assert_eq!(with.repaired, BLOBS.div_ceil(7), "what was bad is regenerated once");
        assert_eq!(with.scrubbed.len() as u64, BLOBS, "every blob");
        for (blob, days) in &with.scrubbed {
            // The first period begins with an empty rack, and the last day has not ended.
            let in_period = |period: u32| days.iter().filter(|day| **day / PERIOD_DAYS == period).count();
            assert!([1, 2].into_iter().all(|period| (1..=2).contains(&in_period(period))), "{blob}: {days:?}");
        }
        let periods = u64::from(DAYS / PERIOD_DAYS);
        println!(
            "{reads_per_day} reads a day: p99 {:?} with and {:?} without, {} own wakes, {} starts and {} without",
            with.p99, without.p99, with.scrub_wakes, with.starts, without.starts
        );
        assert!(with.scrub_wakes <= own_per_period * periods, "{} wakes of their own", with.scrub_wakes);
        assert!(with.p99 <= without.p99 * 3 / 2, "{:?} with scrubs, {:?} without", with.p99, without.p99);
    }
}
