//! The expected times of a group's wake, rest and transfer. The drives' profile gives the first values, and
//! measurements correct them.
//!
//! Wakes and transfers are estimated separately by the load of the rack: mounts are slower while payload moves
//! ([`model::physics::Servers`]), and transfers share the servers' links. The rack is busy for a class while another
//! class has work; the share of that time in which payload really moves is learned with the rest.
//!
//! Invariants: an estimate is a moving mean of the last measurements, never above the longest of them and the profile's
//! value; nothing here is persisted.

use crate::setup::Setup;
use core::time::Duration;
use model::physics::ServerLoad;

/// A measurement has the weight of one part in this number in its estimate.
const WINDOW: u32 = 16;
/// Bounds of a transfer's time in thousandths of the drives' own time. A time outside them says nothing about the next
/// transfer (a drive hung, or the bytes were in a cache), so it is clamped.
const TRANSFER_PERMILLE: core::ops::RangeInclusive<u64> = 100..=100_000;

/// The expected time for a class to switch from one group to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchEstimate {
    /// From standby to ready: the slowest of the group's drives, and the power it waits for.
    pub wake: Duration,
    /// From ready to standby.
    pub rest: Duration,
}

impl SwitchEstimate {
    /// The sum: the group that is up rests, and the other one wakes.
    pub fn total(self) -> Duration {
        self.wake + self.rest
    }
}

/// Expected times, by load.
#[derive(Clone, Debug)]
pub(crate) struct Estimates {
    wake: [Duration; 2],
    rest: Duration,
    /// The time of a transfer over that of the drives alone, in thousandths.
    transfer_permille: [u64; 2],
}

impl Estimates {
    /// The estimates of the profile.
    pub fn new(setup: &Setup) -> Self {
        let drives = setup.spec.group_drives as usize;
        let wake = |load| setup.spec.profile.wake_estimate(drives, load);
        Self {
            wake: [wake(ServerLoad::Idle), wake(ServerLoad::Busy)],
            rest: setup.spec.profile.rest_estimate(drives),
            transfer_permille: [1_000; 2],
        }
    }

    /// A group took `span` to wake.
    pub fn woke(&mut self, load: ServerLoad, span: Duration) {
        let wake = &mut self.wake[load as usize];
        *wake = moved(*wake, span);
    }

    /// A group took `span` to go to sleep.
    pub fn rested(&mut self, span: Duration) {
        self.rest = moved(self.rest, span);
    }

    /// A transfer that takes the drives alone `alone` took `span`.
    pub fn transferred(&mut self, load: ServerLoad, alone: Duration, span: Duration) {
        let permille = u64::try_from(span.as_nanos() * 1_000 / alone.as_nanos().max(1)).unwrap_or(u64::MAX);
        let permille = permille.clamp(*TRANSFER_PERMILLE.start(), *TRANSFER_PERMILLE.end());
        let mean = &mut self.transfer_permille[load as usize];
        let window = u64::from(WINDOW);
        *mean = (*mean * (window - 1) + permille) / window;
        assert!(TRANSFER_PERMILLE.contains(mean), "a mean lies between what it is the mean of");
    }

    /// The expected time of a switch.
    pub fn switch(&self, load: ServerLoad) -> SwitchEstimate {
        SwitchEstimate { wake: self.wake[load as usize], rest: self.rest }
    }

    /// The expected time of a transfer that takes the drives alone `alone`.
    pub fn transfer(&self, load: ServerLoad, alone: Duration) -> Duration {
        Duration::from_nanos_u128(alone.as_nanos() * u128::from(self.transfer_permille[load as usize]) / 1_000)
    }
}

/// The moving mean after one more measurement.
fn moved(mean: Duration, measured: Duration) -> Duration {
    let next = (mean * (WINDOW - 1) + measured) / WINDOW;
    assert!(next <= mean.max(measured), "a mean lies between what it is the mean of");
    next
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::quiet_policy;

    #[test]
    fn measurements_correct_the_profile() {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let spec = model::text::parse(text, "pelican").unwrap();
        let layout = crate::layout::synthesise(&spec).unwrap();
        let mut estimates = Estimates::new(&Setup::new(spec, layout, quiet_policy()));
        let [idle, busy] = [ServerLoad::Idle, ServerLoad::Busy];
        assert!(estimates.switch(idle).wake < estimates.switch(busy).wake, "the profile has mounts under load");
        let before = estimates.switch(idle);
        for _ in 0..100 {
            estimates.woke(busy, Duration::from_secs(40));
            estimates.transferred(busy, Duration::from_secs(1), Duration::from_secs(3));
        }
        assert_eq!(estimates.switch(idle), before, "one load says nothing of the other");
        assert!(estimates.switch(busy).wake.abs_diff(Duration::from_secs(40)) < Duration::from_millis(500));
        let ten = Duration::from_secs(10);
        assert_eq!(estimates.transfer(idle, ten), ten);
        assert!(estimates.transfer(busy, ten).abs_diff(ten * 3) < Duration::from_secs(1));
    }
}
