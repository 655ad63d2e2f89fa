//! The numbers that strategies and formulas are given: hardware times, and output over input.

use core::time::Duration;
use model::RackSpec;
use model::physics::ServerLoad;
use serde::{Deserialize, Serialize};

/// The costs of a class's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// T_sw: from one group to another, ready to read.
    pub switch: Duration,
    /// T_sk: before each run of bytes that lies together.
    pub seek: Duration,
    /// The rate at which a group is read, in payload bytes; above 0.
    pub read_bytes_per_s: u64,
    /// The rate at which it is written, in payload bytes; above 0.
    pub write_bytes_per_s: u64,
    /// Starts that a drive has on a day for work that nobody waits for; `u32::MAX` is without bound.
    pub starts_per_day: u32,
}

impl Terms {
    /// The paper's Table III: 10 s, 10 ms, 1 GB/s.
    pub const PAPER: Self = Self {
        switch: Duration::from_secs(10),
        seek: Duration::from_millis(10),
        read_bytes_per_s: 1_000_000_000,
        write_bytes_per_s: 1_000_000_000,
        starts_per_day: u32::MAX,
    };

    /// Those of a rack's profile: a switch rests one group and wakes another, each as long as its slowest drive is
    /// expected to take beside nothing else, and k drives move payload at once. Where writes are read back before they count, their rate is half. Starts are not bounded: that
    /// is a matter of policy.
    pub fn of(spec: &RackSpec, reads_back: bool) -> Self {
        let rate = spec.profile.bytes_per_s.saturating_mul(u64::from(spec.code.data)).max(1);
        assert!(spec.code.data > 0, "some drives hold payload");
        let drives = spec.group_drives as usize;
        Self {
            switch: spec.profile.rest_estimate(drives) + spec.profile.wake_estimate(drives, ServerLoad::Idle),
            seek: spec.profile.seek,
            read_bytes_per_s: rate,
            write_bytes_per_s: if reads_back { (rate / 2).max(1) } else { rate },
            starts_per_day: u32::MAX,
        }
    }
}

/// Bytes out over bytes in (the paper's alpha): the output that a byte of input becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Alpha {
    /// Bytes of output.
    pub output: u64,
    /// The bytes of input that become them; above 0.
    pub input: u64,
}

impl Alpha {
    /// As much out as in.
    pub const ONE: Self = Self { output: 1, input: 1 };

    /// The output of so many bytes of input, rounded down.
    pub fn output_of(self, input_bytes: u64) -> u64 {
        assert!(self.input > 0, "alpha is output over some input");
        let output = u128::from(input_bytes) * u128::from(self.output) / u128::from(self.input);
        u64::try_from(output).unwrap_or(u64::MAX)
    }

    /// The most input whose output fits into so many bytes: any amount, if nothing comes out.
    pub fn input_for(self, output_bytes: u64) -> u64 {
        if self.output == 0 {
            return u64::MAX;
        }
        let input = u128::from(output_bytes) * u128::from(self.input) / u128::from(self.output);
        assert!(input * u128::from(self.output) <= u128::from(output_bytes) * u128::from(self.input), "it fits");
        u64::try_from(input).unwrap_or(u64::MAX)
    }

    /// As a number, for formulas and reports.
    pub fn as_f64(self) -> f64 {
        self.output as f64 / self.input as f64
    }
}
