//! A trace through the simulator.

use super::trace::{Answers, Case, ReadMoments, Trace};
use crate::world::{Counted, Setting, World};
use engine::check::TraceCheck;
use engine::layout::LayoutError;
use engine::{Outcome, Rack};
use model::{BlobId, OpId, Time};
use std::collections::BTreeMap;

/// Answers `trace` with the simulator, under `seed`.
///
/// # Errors
/// [`LayoutError`] if the rack has no layout.
pub fn simulate(case: &Case, trace: &Trace, seed: u64) -> Result<Answers, LayoutError> {
    let layout = engine::layout::synthesise(&case.rack)?;
    let policy = case.policy();
    let judge = Some(TraceCheck::new(&case.rack, &layout, &policy));
    let rack = Rack::new(case.rack.clone(), layout, policy, seed);
    let setting = Setting { network: Some(case.network), judge, first_boot: true, ..Setting::default() };
    let world = World::with(rack, seed, setting);
    let reads = vec![ReadMoments::default(); trace.reads.len()];
    Ok(Simulated { world, reads, open: BTreeMap::new() }.play(trace))
}

/// A run in progress.
struct Simulated {
    world: World,
    reads: Vec<ReadMoments>,
    /// The index in the trace of each unfinished read.
    open: BTreeMap<OpId, usize>,
}

impl Simulated {
    fn play(mut self, trace: &Trace) -> Answers {
        let mut before = None;
        for (index, read) in trace.reads.iter().enumerate() {
            if read.at >= trace.from && before.is_none() {
                before = Some(self.begin(trace.from));
            }
            self.world.run_until(read.at);
            let op = self.world.read_at(BlobId::numbered(read.blob), read.group, read.drives.clone(), read.bytes);
            self.open.insert(op, index);
            self.collect();
        }
        match trace.until {
            Some(until) => self.world.run_until(until),
            None => {
                while self.world.open_ops() > 0 {
                    assert!(self.world.step(), "every read is answered");
                }
            }
        }
        self.collect();
        self.end(before.unwrap_or_default(), trace.from)
    }

    /// Begins the measurement.
    fn begin(&mut self, from: Time) -> Counted {
        self.world.run_until(from);
        self.world.meter().restart(from);
        self.world.counted()
    }

    fn collect(&mut self) {
        for ended in self.world.take_ended() {
            let Some(index) = self.open.remove(&ended.op) else { continue };
            self.reads[index] = ReadMoments {
                picked: ended.picked,
                first_byte: ended.first_byte,
                ended: Some(ended.at),
                refused: matches!(ended.outcome, Outcome::Failed(_) | Outcome::Cancelled),
            };
        }
    }

    fn end(mut self, before: Counted, from: Time) -> Answers {
        let to = self.world.now();
        let span_ms = to.since(from).as_secs_f64() * 1e3;
        let mean_mw = self.world.meter().mean_mw(to) as f64;
        Answers {
            reads: self.reads,
            spin_ups: self.world.counted().spin_ups - before.spin_ups,
            energy_mj: (mean_mw * span_ms / 1e3) as u64,
            to,
        }
    }
}
