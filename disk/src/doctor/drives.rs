//! The power habits of disks: their timers, and platters that wait for a start.

use super::finding::Finding;
use crate::discover::{APM_LEVEL_STAYS, Tree, habits_of};
use model::{PowerHabits, PowerUpInStandby};

/// The findings in the reports of disks when the kernel found them.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    tree.names("sys/block").into_iter().flat_map(|disk| of_disk(&disk, habits_of(tree, &disk))).collect()
}

fn of_disk(disk: &str, habits: PowerHabits) -> Vec<Finding> {
    let finding = |cause, found: String, mend: String| Finding::new(cause, format!("/dev/{disk}"), found, mend);
    let apm = habits.apm_level.filter(|level| *level < APM_LEVEL_STAYS).map(|level| {
        let found =
            format!("at level {level} the disk may stop its platters by itself, and the next access starts them again");
        finding("advanced power management", found, format!("`hdparm -B 254 /dev/{disk}`, in a udev rule to keep it"))
    });
    let epc = (habits.epc_enabled == Some(true)).then(|| {
        let found = "the disk may stop its platters, and start them for checks, by timers of its own".to_owned();
        let mend = format!(
            "switch them off with its maker's tool, or `openSeaChest_PowerControl -d /dev/{disk} --EPCfeature disable`"
        );
        finding("extended power conditions", found, mend)
    });
    let puis = habits.power_up_in_standby.and_then(|puis| {
        let found = match puis {
            PowerUpInStandby::Unsupported | PowerUpInStandby::Disabled => return None,
            PowerUpInStandby::Enabled | PowerUpInStandby::EnabledUntilSpunUp => {
                "its platters wait for a start command, and the kernel starts them when it finds the disk: all such \
                 disks at once when the machine starts, regardless of the rack's limits"
            }
        };
        let mend = "make sure that the power supply can carry that; `larder serve` stops what it has not started";
        Some(finding("power-up in standby", found.to_owned(), mend.to_owned()))
    });
    [apm, epc, puis].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_named_for_each_timer_of_its_own_and_for_platters_that_wait() {
        let causes = |habits| of_disk("sda", habits).into_iter().map(|finding| finding.cause).collect::<Vec<_>>();
        let quiet = PowerHabits {
            allow_restart: Some(true),
            power_up_in_standby: Some(PowerUpInStandby::Disabled),
            apm_level: Some(128),
            epc_enabled: Some(false),
        };
        assert!(causes(quiet).is_empty() && causes(PowerHabits::default()).is_empty());
        assert_eq!(causes(PowerHabits { apm_level: Some(127), ..quiet }), ["advanced power management"]);
        assert_eq!(causes(PowerHabits { epc_enabled: Some(true), ..quiet }), ["extended power conditions"]);
        let waits = PowerHabits { power_up_in_standby: Some(PowerUpInStandby::EnabledUntilSpunUp), ..quiet };
        assert_eq!(causes(waits), ["power-up in standby"]);
    }
}
