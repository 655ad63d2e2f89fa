//! The expected time of a group's wake and rest: that of its slowest drive (Pelican, section 5: the more drives in a
//! group, the more probable a straggler).
//!
//! A rack that has run has better estimates; it begins with these, and plans use them.

use super::servers::ServerLoad;
use crate::rack::{Distribution, DriveProfile};
use crate::random::Rng;
use core::time::Duration;

/// Enough for the mean of a group's slowest drive to be exact to about 1 %.
const GROUPS_DRAWN: u32 = 256;

impl DriveProfile {
    /// The expected time of a group of this number of drives from standby to ready, on a server with this load: spin-up
    /// and mount of its slowest member.
    pub fn wake_estimate(&self, drives: usize, load: ServerLoad) -> Duration {
        expected_slowest(drives, &[self.spin_up, *self.mount_under(load)])
    }

    /// The expected time of the group from ready to standby: unmount and spin-down of its slowest member.
    pub fn rest_estimate(&self, drives: usize) -> Duration {
        expected_slowest(drives, &[self.unmount, self.spin_down])
    }

    /// The time of a mount on a server with this load.
    pub fn mount_under(&self, load: ServerLoad) -> &Distribution {
        match load {
            ServerLoad::Idle => &self.mount,
            ServerLoad::Busy => &self.mount_busy,
        }
    }
}

/// The mean, over many groups, of the time that the slowest of this number of drives takes for these steps one after
/// another. Drawn from its own stream: the same on every machine.
fn expected_slowest(drives: usize, steps: &[Distribution]) -> Duration {
    let mut rng = Rng::for_thing(drives as u64, u64::from_le_bytes(*b"slowest "));
    let mut of_group = || {
        let of_drive = |rng: &mut Rng| steps.iter().map(|step| step.sample(rng)).sum::<Duration>();
        (0..drives).map(|_| of_drive(&mut rng)).max().unwrap_or_default()
    };
    let sum: Duration = (0..GROUPS_DRAWN).map(|_| of_group()).sum();
    let mean = sum / GROUPS_DRAWN;
    let longest: Duration = steps.iter().map(Distribution::longest).sum();
    assert!(mean <= longest, "an expected time of {mean:?} is longer than the longest, {longest:?}");
    mean
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rack::Stragglers;

    fn profile() -> DriveProfile {
        let (_, text) = crate::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        crate::text::parse(text, "pelican").unwrap().profile.clone()
    }

    #[test]
    fn a_group_takes_longer_than_a_drive_and_never_longer_than_the_slowest() {
        let profile = profile();
        let wake = |drives| profile.wake_estimate(drives, ServerLoad::Idle);
        let one = profile.spin_up.mean() + profile.mount.mean();
        assert!(wake(1).abs_diff(one) < one / 20, "{:?} beside {one:?}", wake(1));
        assert!(wake(1) < wake(6) && wake(6) < wake(24), "{:?} {:?} {:?}", wake(1), wake(6), wake(24));
        assert!(wake(24) <= profile.spin_up.longest() + profile.mount.longest());
        assert!(wake(24) < profile.wake_estimate(24, ServerLoad::Busy), "mounts are slower under load");
        assert_eq!(wake(24), wake(24), "the same on every machine");
    }

    #[test]
    fn stragglers_are_waited_for_by_large_groups() {
        let mut profile = profile();
        let before = [profile.wake_estimate(2, ServerLoad::Idle), profile.wake_estimate(24, ServerLoad::Idle)];
        let max = profile.spin_up.max + Duration::from_mins(1);
        profile.spin_up.stragglers = Some(Stragglers { permille: 20, max });
        let after = [profile.wake_estimate(2, ServerLoad::Idle), profile.wake_estimate(24, ServerLoad::Idle)];
        // One of 24 drives is a straggler in 1 - 0.98^24 = 38 % of all groups, one of 2 in 4 %; and half of 60 s each.
        let more = |of: usize| after[of].abs_diff(before[of]).as_secs_f64();
        assert!((0.5..2.5).contains(&more(0)) && (9.0..16.0).contains(&more(1)), "{} and {}", more(0), more(1));
    }
}
