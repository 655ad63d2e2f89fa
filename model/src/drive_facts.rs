//! The facts that a drive reports: its health, and the power changes that it makes by itself. The types have the form
//! in which these facts are requested, stored and reported.

use alloc::string::String;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The health of a disk, as far as the disk reports it; `None` for values that it does not report. The order of the
/// fields is that of records in the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smart {
    /// Bad sectors that were remapped: reallocated sectors, or the list of grown defects.
    pub reallocated_sectors: Option<u64>,
    /// Sectors that could not be read, and are reallocated or cleared when they are written.
    pub pending_sectors: Option<u64>,
    /// Sectors that the disk's own scan could not read, or reads that failed permanently.
    pub uncorrectable: Option<u64>,
    /// Errors on the cable.
    pub link_errors: Option<u64>,
    /// Starts of the platters in its life, from any cause.
    pub starts: Option<u64>,
    /// The starts that the disk is rated for.
    pub starts_rated: Option<u64>,
    /// Times that the heads were loaded.
    pub loads: Option<u64>,
    /// The loads that the disk is rated for.
    pub loads_rated: Option<u64>,
    /// Hours with power.
    pub power_on_h: Option<u64>,
    /// Degrees Celsius at the time of the report.
    pub temperature_c: Option<i16>,
    /// True if the disk expects to fail. ATA disks do not report it.
    pub predicts_failure: Option<bool>,
}

impl Smart {
    /// Sectors that were reallocated or wait to be; `None` if the disk reports neither.
    pub fn bad_sectors(&self) -> Option<u64> {
        let said = self.reallocated_sectors.is_some() || self.pending_sectors.is_some();
        let sum = self.reallocated_sectors.unwrap_or(0).saturating_add(self.pending_sectors.unwrap_or(0));
        said.then_some(sum)
    }
}

/// Power-up in standby (PUIS): the behaviour of the platters when the disk gets its power. Stored and reported by its
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerUpInStandby {
    /// Not supported: the disk starts with its power, or when its cable allows it.
    Unsupported,
    /// Supported but off: it starts with its power.
    Disabled,
    /// It waits. An access to the medium starts it.
    Enabled,
    /// It waits for SET FEATURES 07h. libata sends that by itself when it finds the disk, so under Linux the disk
    /// starts when the kernel probes it.
    EnabledUntilSpunUp,
}

impl PowerUpInStandby {
    const ALL: [Self; 4] = [Self::Unsupported, Self::Disabled, Self::Enabled, Self::EnabledUntilSpunUp];

    /// Its name, for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::Disabled => "disabled",
            Self::Enabled => "enabled",
            Self::EnabledUntilSpunUp => "enabled until spun up",
        }
    }
}

impl Serialize for PowerUpInStandby {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for PowerUpInStandby {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| D::Error::custom("no state of power-up"))
    }
}

/// The power changes that a disk, and the kernel for it, make by themselves; `None` for unknown values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerHabits {
    /// True if the kernel starts it by itself upon I/O while it is stopped (`allow_restart`).
    pub allow_restart: Option<bool>,
    /// The behaviour of the platters when the disk gets its power.
    pub power_up_in_standby: Option<PowerUpInStandby>,
    /// The level of Advanced Power Management, if that is on; below 128 it may stop its platters by itself.
    pub apm_level: Option<u8>,
    /// True if its own timers may stop its platters (Extended Power Conditions).
    pub epc_enabled: Option<bool>,
}

/// A wake of a drive that Larder did not ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnaskedWake {
    /// When it was found awake, in milliseconds of the Unix epoch.
    pub found_ms: u64,
    /// True if it woke by itself: nothing had been sent to it.
    pub by_itself: bool,
    /// The likely cause by the kernel's counters, for people.
    pub cause: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn power_up_in_standby_is_stored_by_its_name() {
        for one in PowerUpInStandby::ALL {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!(text.trim_matches('"'), one.name());
            assert_eq!(serde_json::from_str::<PowerUpInStandby>(&text).unwrap(), one);
        }
        assert!(serde_json::from_str::<PowerUpInStandby>("\"on\"").is_err());
    }

    #[test]
    fn bad_sectors_are_those_that_are_said() {
        assert_eq!(Smart::default().bad_sectors(), None);
        let said = Smart { reallocated_sectors: Some(3), ..Smart::default() };
        assert_eq!(said.bad_sectors(), Some(3));
        assert_eq!(Smart { pending_sectors: Some(u64::MAX), ..said }.bad_sectors(), Some(u64::MAX));
    }
}
