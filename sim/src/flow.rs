//! Bytes in motion: flows share links by max-min fairness.
//!
//! A flow is one transfer: one stream for each drive, all at the same rate, since they move in step, fragment by
//! fragment of one stripe. On each link that it crosses, a flow counts with a multiplicity, the number of its streams
//! there. This is in thousandths, since a read of k + r streams sends only k data fragments' worth over the network.
//! Rates are shared max-min fairly *per stream* (Pelican, section 5: "max-min fair sharing"), by progressive filling:
//! all rates rise together until a link is full or a flow's drives are at their limit; the flows held back are frozen,
//! the others continue to rise.
//!
//! Invariants:
//! - no link carries more than its capacity (asserted); no flow is faster than its drives;
//! - a flow ends when the last of its bytes has moved, and not before (asserted);
//! - a flow below its drives' rate crosses a full link on which no flow is faster (property-tested against this
//!   definition);
//! - rates are whole bytes/s and remaining bytes are counted in billionths, so nothing depends on a machine's floating
//!   point;
//! - the start or end of a flow costs work only for flows that are connected to it by shared links, directly or through
//!   others: no other flow changes its rate.

#[cfg(test)]
mod tests;

use crate::places::Places;
use model::Time;
use std::time::Duration;

/// The number of a link, from 0.
pub(crate) type LinkId = usize;

/// The demand of a flow on the links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The highest rate of one of its streams, in bytes/s, which is the rate of a drive.
    pub stream_bytes_per_s: u64,
    /// The links that it crosses, each once, with the number of its streams on each, in thousandths.
    pub crosses: Vec<(LinkId, u64)>,
}

impl Demand {
    /// Adds `streams` thousandths of a stream on `link`.
    pub fn add(&mut self, link: LinkId, streams: u64) {
        match self.crosses.iter_mut().find(|(known, _)| *known == link) {
            Some((_, counted)) => *counted += streams,
            None => self.crosses.push((link, streams)),
        }
    }
}

/// The unit of stream counts is a thousandth of a stream.
const MILLI: u64 = 1_000;

/// The working memory of progressive filling, reused between calls.
#[derive(Clone, Debug)]
struct Filling {
    /// The capacity left on each link, in thousandths of bytes/s.
    left: Vec<u64>,
    /// The streams on each link that are still rising, in thousandths.
    rising: Vec<u64>,
    /// The rate that the streams on each link would reach if it were the tightest.
    levels: Vec<u64>,
    /// Flows that are still rising.
    open: Vec<usize>,
    rates: Vec<u64>,
}

impl Filling {
    fn new(links: usize) -> Self {
        let zeros = vec![0; links];
        Self { left: zeros.clone(), rising: zeros.clone(), levels: zeros, open: Vec::new(), rates: Vec::new() }
    }

    /// Finds the rates of this number of flows, which cross only these links.
    fn fill<'a>(
        &mut self,
        capacities: &[u64],
        links: &[LinkId],
        flows: usize,
        demand_of: impl Fn(usize) -> &'a Demand,
    ) {
        for link in links {
            self.left[*link] = capacities[*link].saturating_mul(MILLI);
            self.rising[*link] = 0;
        }
        for flow in 0..flows {
            for (link, streams) in &demand_of(flow).crosses {
                self.rising[*link] += streams;
            }
        }
        self.rates.clear();
        self.rates.resize(flows, 0);
        self.open.clear();
        self.open.extend(0..flows);
        while !self.open.is_empty() {
            self.freeze_some(links, &demand_of);
        }
    }

    /// Freezes every flow whose drives are no faster than the level of the tightest link; without any, the flows of
    /// that link.
    fn freeze_some<'a>(&mut self, links: &[LinkId], demand_of: &impl Fn(usize) -> &'a Demand) {
        let mut level = u64::MAX;
        for link in links {
            self.levels[*link] = self.left[*link].checked_div(self.rising[*link]).unwrap_or(u64::MAX);
            level = level.min(self.levels[*link]);
        }
        let before = self.open.len();
        let slow = self.open.iter().any(|flow| demand_of(*flow).stream_bytes_per_s <= level);
        let mut open = std::mem::take(&mut self.open);
        open.retain(|flow| {
            let demand = demand_of(*flow);
            let rate = if slow { demand.stream_bytes_per_s } else { level };
            let stays = if slow {
                demand.stream_bytes_per_s > level
            } else {
                !demand.crosses.iter().any(|(link, _)| self.levels[*link] == level)
            };
            if !stays {
                self.rates[*flow] = rate.max(1);
                for (link, streams) in &demand.crosses {
                    let carried = streams.saturating_mul(rate);
                    assert!(carried <= self.left[*link], "link {link} carries more than its capacity");
                    self.rising[*link] -= streams;
                    self.left[*link] -= carried;
                }
            }
            stays
        });
        assert!(open.len() < before, "the tightest link holds no flow");
        self.open = open;
    }
}

/// A flow in progress.
#[derive(Clone, Debug)]
struct Flow<T> {
    what: T,
    demand: Demand,
    /// The number of flows that began earlier.
    number: u64,
    rate: u64,
    /// The time since which it has had this rate.
    since: Time,
    /// Bytes that each stream still had to move at that time, in billionths.
    left_nano: u128,
}

impl<T> Flow<T> {
    /// Bytes that each stream still has to move at `now`, in billionths.
    fn left_nano(&self, now: Time) -> u128 {
        self.left_nano.saturating_sub(u128::from(self.rate) * u128::from(now.nanos_since(self.since)))
    }

    /// Sets the rate from now on; returns the time at which the flow ends at that rate.
    fn set_rate(&mut self, now: Time, rate: u64) -> Time {
        assert!(rate > 0, "a flow that does not move never ends");
        assert!(now >= self.since, "time runs forward");
        self.left_nano = self.left_nano(now);
        (self.rate, self.since) = (rate, now);
        let span_ns = u64::try_from(self.left_nano.div_ceil(u128::from(rate))).unwrap_or(u64::MAX);
        now + Duration::from_nanos(span_ns)
    }
}

/// Flows in progress over links of given capacities; each carries a `T`, which is returned at its end.
#[derive(Clone, Debug)]
pub(crate) struct Flows<T> {
    capacities: Vec<u64>,
    under_way: Places<Flow<T>>,
    /// The places of the flows on each link.
    on_link: Vec<Vec<u32>>,
    /// The time when the flow in each place ends; [`Time::MAX`] for an empty place.
    ends: Vec<Time>,
    next_end: Time,
    begun: u64,
    affected: Affected,
    filling: Filling,
}

/// The links and flows that a change of one flow affects.
#[derive(Clone, Debug, Default)]
struct Affected {
    links: Vec<LinkId>,
    flows: Vec<u32>,
    /// True for each link, and for each place of a flow, that is among the affected ones.
    link_known: Vec<bool>,
    flow_known: Vec<bool>,
}

impl Affected {
    fn clear(&mut self) {
        self.links.drain(..).for_each(|link| self.link_known[link] = false);
        self.flows.drain(..).for_each(|flow| self.flow_known[flow as usize] = false);
    }

    fn add_links(&mut self, demand: &Demand) {
        for (link, _) in &demand.crosses {
            if !std::mem::replace(&mut self.link_known[*link], true) {
                self.links.push(*link);
            }
        }
    }

    fn add_flow(&mut self, flow: u32) -> bool {
        let fresh = !std::mem::replace(&mut self.flow_known[flow as usize], true);
        if fresh {
            self.flows.push(flow);
        }
        fresh
    }
}

/// Billionths in a byte: a rate in bytes/s is the same number of billionths of a byte per nanosecond.
const NANO: u128 = 1_000_000_000;

impl<T> Flows<T> {
    /// No flows, over links of these capacities in bytes/s, each above 0.
    pub fn new(capacities: Vec<u64>) -> Self {
        assert!(
            capacities.iter().all(|capacity| *capacity > 0),
            "a link that carries nothing holds its flows for ever"
        );
        let links = capacities.len();
        Self {
            capacities,
            under_way: Places::default(),
            on_link: vec![Vec::new(); links],
            ends: Vec::new(),
            next_end: Time::MAX,
            begun: 0,
            affected: Affected { link_known: vec![false; links], ..Affected::default() },
            filling: Filling::new(links),
        }
    }

    /// Begins a flow whose streams each move `stream_bytes`; returns its rate in bytes/s. The other flows slow down if
    /// necessary.
    pub fn begin(&mut self, now: Time, what: T, demand: Demand, stream_bytes: u64) -> u64 {
        assert!(stream_bytes > 0 && demand.stream_bytes_per_s > 0, "a flow moves bytes, and drives that move some");
        let (number, left_nano) = (self.begun, u128::from(stream_bytes) * NANO);
        self.begun += 1;
        let place = self.under_way.put(Flow { what, demand, number, rate: 0, since: now, left_nano });
        if self.ends.len() == place as usize {
            self.ends.push(Time::MAX);
            self.affected.flow_known.push(false);
        }
        let demand = &self.under_way.get(place).demand;
        for (link, _) in &demand.crosses {
            self.on_link[*link].push(place);
        }
        self.affected.add_links(demand);
        self.affected.add_flow(place);
        self.share(now);
        self.under_way.get(place).rate
    }

    /// The time at which the next flow ends, if none begins before; [`Time::MAX`] without flows.
    pub fn next_end(&self) -> Time {
        self.next_end
    }

    /// Takes the flow that ends next, if it ends by `now`; of several at the same time, the one that began first. The
    /// other flows speed up if possible.
    pub fn take_ended(&mut self, now: Time) -> Option<T> {
        if now < self.next_end || self.is_empty() {
            return None;
        }
        let ending = (0..self.ends.len()).filter(|place| self.ends[*place] == self.next_end);
        let place = ending.map(|place| place as u32).min_by_key(|place| self.under_way.get(*place).number)?;
        let flow = self.under_way.take(place);
        assert!(flow.left_nano(now) == 0, "a flow ends with bytes left");
        self.ends[place as usize] = Time::MAX;
        for (link, _) in &flow.demand.crosses {
            self.on_link[*link].retain(|other| *other != place);
        }
        self.affected.add_links(&flow.demand);
        self.share(now);
        Some(flow.what)
    }

    /// True if there are no flows.
    fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Shares the affected links again among all flows on them.
    fn share(&mut self, now: Time) {
        self.reach();
        let Self { affected, filling, under_way, .. } = self;
        let demand_of = |flow: usize| &under_way.get(affected.flows[flow]).demand;
        filling.fill(&self.capacities, &affected.links, affected.flows.len(), demand_of);
        for (place, rate) in affected.flows.iter().zip(&filling.rates) {
            let flow = under_way.get_mut(*place);
            if flow.rate != *rate {
                self.ends[*place as usize] = flow.set_rate(now, *rate);
            }
        }
        self.next_end = self.ends.iter().copied().min().unwrap_or(Time::MAX);
        assert!(self.next_end >= now, "a flow ended at {}, and nobody took it by {now}", self.next_end);
        affected.clear();
    }

    /// Adds all flows that share a link with an affected one, and their links.
    fn reach(&mut self) {
        let mut next = 0;
        while let Some(link) = self.affected.links.get(next) {
            next += 1;
            for place in &self.on_link[*link] {
                if self.affected.add_flow(*place) {
                    self.affected.add_links(&self.under_way.get(*place).demand);
                }
            }
        }
    }
}
