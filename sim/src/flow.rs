//! Bytes in motion: flows that share links by max-min fairness.
//!
//! A flow is one transfer: so many streams, one for each drive, all at the same rate since they move in step (fragment
//! by fragment of one stripe). On each link that it crosses it counts with a multiplicity: how many of its streams
//! cross there, in thousandths, since a read sends only its k data fragments' worth of k + r streams out by the
//! network. Rates are shared max-min fairly *per stream* (Pelican, section 5: "max-min fair sharing"), found by
//! progressive filling: all rates rise together until a link is full or a flow's drives give no more; what is held back
//! is frozen, the others rise on.
//!
//! Invariants:
//! - no link carries more than its capacity; no flow is faster than its drives;
//! - a flow below its drives' rate crosses a full link on which no flow is faster (property-tested against this
//!   definition);
//! - rates are whole bytes/s, bytes left are counted in billionths, so that nothing depends on a machine's floating
//!   point.

#[cfg(test)]
mod tests;

use model::Time;
use std::time::Duration;

/// Which link, counted from 0.
pub type LinkId = usize;

/// What a flow asks of the links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What one of its streams can do at most, in bytes/s: the rate of a drive.
    pub stream_bytes_per_s: u64,
    /// The links that it crosses, each once, with the number of its streams there, in thousandths.
    pub crosses: Vec<(LinkId, u64)>,
}

/// Rates of streams are shared in units of thousandths of a stream.
const MILLI: u64 = 1_000;

/// The max-min fair rate of a stream of each flow, in bytes/s, over links of these capacities, in bytes/s. A link that
/// carries nothing at all would hold its flows for ever, so capacities must be above 0; rates are at least 1.
pub fn fair_rates(capacities: &[u64], demands: &[Demand]) -> Vec<u64> {
    let mut filling = Filling::default();
    filling.fill(capacities, demands.iter());
    filling.rates
}

/// The working memory of progressive filling, kept between calls.
#[derive(Clone, Debug, Default)]
struct Filling {
    /// What is left of each link, in thousandths of bytes/s.
    left: Vec<u64>,
    /// The streams on each link that still rise, in thousandths.
    rising: Vec<u64>,
    /// Flows that still rise.
    open: Vec<usize>,
    rates: Vec<u64>,
}

impl Filling {
    fn fill<'a>(&mut self, capacities: &[u64], demands: impl Iterator<Item = &'a Demand> + Clone) {
        self.left.clear();
        self.left.extend(capacities.iter().map(|capacity| capacity.saturating_mul(MILLI)));
        self.rising.clear();
        self.rising.resize(capacities.len(), 0);
        self.rates.clear();
        for demand in demands.clone() {
            for (link, streams) in &demand.crosses {
                self.rising[*link] += streams;
            }
            self.rates.push(0);
        }
        self.open.clear();
        self.open.extend(0..self.rates.len());
        let demands: Vec<&Demand> = demands.collect();
        while !self.open.is_empty() {
            self.freeze_some(&demands);
        }
    }

    /// Freezes every flow whose drives give no more below the level of the tightest link, or else those of that link.
    fn freeze_some(&mut self, demands: &[&Demand]) {
        let levels = self.left.iter().zip(&self.rising).filter(|(_, rising)| **rising > 0);
        let level = levels.map(|(left, rising)| left / rising).min().unwrap_or(u64::MAX);
        let slow = self.open.iter().any(|flow| demands[*flow].stream_bytes_per_s <= level);
        let held = |filling: &Self, link: LinkId| {
            filling.rising[link] > 0 && filling.left[link] / filling.rising[link] == level
        };
        let tight: Vec<bool> = (0..self.left.len()).map(|link| held(self, link)).collect();
        let mut open = std::mem::take(&mut self.open);
        open.retain(|flow| {
            let demand = demands[*flow];
            let rate = if slow { demand.stream_bytes_per_s } else { level };
            let stays = if slow {
                demand.stream_bytes_per_s > level
            } else {
                !demand.crosses.iter().any(|(link, _)| tight[*link])
            };
            if !stays {
                self.rates[*flow] = rate.max(1);
                for (link, streams) in &demand.crosses {
                    self.rising[*link] -= streams;
                    self.left[*link] = self.left[*link].saturating_sub(streams.saturating_mul(rate));
                }
            }
            stays
        });
        self.open = open;
    }
}

/// One flow under way.
#[derive(Clone, Debug)]
struct Flow<T> {
    what: T,
    demand: Demand,
    /// Bytes that each stream has still to move, in billionths.
    left_nano: u128,
    rate: u64,
}

/// Flows under way over links of given capacities, each carrying a `T` that is given back at its end.
#[derive(Clone, Debug)]
pub struct Flows<T> {
    capacities: Vec<u64>,
    under_way: Vec<Flow<T>>,
    /// Up to when `left_nano` is counted.
    settled: Time,
    next_end: Time,
    filling: Filling,
}

/// Billionths in a byte: a rate in bytes/s is as many billionths of a byte in a nanosecond.
const NANO: u128 = 1_000_000_000;

impl<T> Flows<T> {
    /// No flows, over links of these capacities in bytes/s, each above 0.
    pub fn new(capacities: Vec<u64>) -> Self {
        assert!(
            capacities.iter().all(|capacity| *capacity > 0),
            "a link that carries nothing holds its flows for ever"
        );
        Self {
            capacities,
            under_way: Vec::new(),
            settled: Time::ZERO,
            next_end: Time::MAX,
            filling: Filling::default(),
        }
    }

    /// Begins a flow each of whose streams moves `stream_bytes`. The others slow down, if they must.
    pub fn begin(&mut self, now: Time, what: T, demand: Demand, stream_bytes: u64) {
        self.settle(now);
        let left_nano = u128::from(stream_bytes) * NANO;
        self.under_way.push(Flow { what, demand, left_nano, rate: 0 });
        self.share();
    }

    /// When the next flow ends, if none begins before; [`Time::MAX`] without flows.
    pub fn next_end(&self) -> Time {
        self.next_end
    }

    /// Takes a flow that has ended by `now`, the one that began first. The others speed up, if they can.
    pub fn take_ended(&mut self, now: Time) -> Option<T> {
        if now < self.next_end {
            return None;
        }
        self.settle(now);
        let ended = self.under_way.iter().position(|flow| flow.left_nano == 0)?;
        let flow = self.under_way.remove(ended);
        self.share();
        Some(flow.what)
    }

    /// How many flows are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Everything that moves, in the order in which it began, with the rate of one of its streams in bytes/s.
    pub fn iter(&self) -> impl Iterator<Item = (&T, u64)> {
        self.under_way.iter().map(|flow| (&flow.what, flow.rate))
    }

    fn settle(&mut self, now: Time) {
        let span_ns = now.since(self.settled).as_nanos();
        if span_ns > 0 {
            for flow in &mut self.under_way {
                flow.left_nano = flow.left_nano.saturating_sub(u128::from(flow.rate) * span_ns);
            }
            self.settled = now;
        }
    }

    fn share(&mut self) {
        self.filling.fill(&self.capacities, self.under_way.iter().map(|flow| &flow.demand));
        self.next_end = Time::MAX;
        for (flow, rate) in self.under_way.iter_mut().zip(&self.filling.rates) {
            flow.rate = *rate;
            let span_ns = u64::try_from(flow.left_nano.div_ceil(u128::from(*rate))).unwrap_or(u64::MAX);
            self.next_end = self.next_end.min(self.settled + Duration::from_nanos(span_ns));
        }
    }
}
