//! The numbers that strategies and formulas work with: hardware times, output over input, and the memory that a format
//! takes.
//!
//! Alpha and expansion are two numbers. Alpha determines the bytes written: bytes of output over bytes of input, both
//! as they are stored. Expansion determines the bytes buffered: decoded bytes over stored ones. Their product fills the
//! buffer, and so determines the number of switches.

use super::processor::Processor;
use core::time::Duration;
use model::RackSpec;
use model::physics::ServerLoad;
use serde::{Deserialize, Serialize};

/// The costs of a class's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// T_sw: time to switch from one group to another, which is then ready to read.
    pub switch: Duration,
    /// T_sk: seek time, spent before each contiguous run of bytes.
    pub seek: Duration,
    /// Seeks for reading a contiguous run of bytes.
    pub read_seeks: u32,
    /// Seeks for writing a contiguous run of bytes and reading it back.
    pub write_seeks: u32,
    /// Read rate of a group, in payload bytes; above 0.
    pub read_bytes_per_s: u64,
    /// Write rate of a group, in payload bytes; above 0.
    pub write_bytes_per_s: u64,
    /// Drive starts per day that background work may use; `u32::MAX` is without bound.
    pub starts_per_day: u32,
    /// The ratio of the memory that output takes to its stored size.
    pub expansion: Expansion,
    /// The rates at which records are decoded, split and encoded.
    pub processor: Processor,
}

impl Terms {
    /// The paper's Table III: 10 s, 10 ms, 1 GB/s.
    pub const PAPER: Self = Self {
        switch: Duration::from_secs(10),
        seek: Duration::from_millis(10),
        read_seeks: 1,
        write_seeks: 1,
        read_bytes_per_s: 1_000_000_000,
        write_bytes_per_s: 1_000_000_000,
        starts_per_day: u32::MAX,
        expansion: Expansion::ONE,
        processor: Processor::UNBOUNDED,
    };

    /// The terms of a rack's profile. A switch rests one group and wakes another; each takes as long as its slowest
    /// drive is expected to take on an idle server. k drives move payload at once. Where writes are read back before
    /// they count, their rate is half. Starts have no bound here: that is a matter of policy. Records take as much
    /// memory as they take on the drives, and no processor time; each piece takes one seek.
    pub fn of(spec: &RackSpec, reads_back: bool) -> Self {
        let rate = spec.profile.bytes_per_s.saturating_mul(u64::from(spec.code.data)).max(1);
        assert!(spec.code.data > 0, "some drives hold payload");
        let drives = spec.group_drives as usize;
        Self {
            switch: spec.profile.rest_estimate(drives) + spec.profile.wake_estimate(drives, ServerLoad::Idle),
            seek: spec.profile.seek,
            read_seeks: 1,
            write_seeks: 1,
            read_bytes_per_s: rate,
            write_bytes_per_s: if reads_back { (rate / 2).max(1) } else { rate },
            starts_per_day: u32::MAX,
            expansion: Expansion::ONE,
            processor: Processor::UNBOUNDED,
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
    /// One byte of output per byte of input.
    pub const ONE: Self = Self { output: 1, input: 1 };

    /// The output of this number of bytes of input, rounded down.
    pub fn output_of(self, input_bytes: u64) -> u64 {
        assert!(self.input > 0, "alpha is output over some input");
        let output = u128::from(input_bytes) * u128::from(self.output) / u128::from(self.input);
        u64::try_from(output).unwrap_or(u64::MAX)
    }

    /// The most input whose output fits into this number of bytes; `u64::MAX` if there is no output.
    pub fn input_for(self, output_bytes: u64) -> u64 {
        if self.output == 0 {
            return u64::MAX;
        }
        let input = u128::from(output_bytes) * u128::from(self.input) / u128::from(self.output);
        assert!(input * u128::from(self.output) <= u128::from(output_bytes) * u128::from(self.input), "it fits");
        u64::try_from(input).unwrap_or(u64::MAX)
    }

    /// The ratio of buffered bytes to bytes of input, for output with this expansion.
    #[must_use]
    pub fn in_memory(self, expansion: Expansion) -> Self {
        assert!(self.input > 0 && expansion.stored > 0, "both are over some bytes");
        let mut output = u128::from(self.output) * u128::from(expansion.buffered);
        let mut input = u128::from(self.input) * u128::from(expansion.stored);
        while u64::try_from(output.max(input)).is_err() {
            (output, input) = (output >> 1, (input >> 1).max(1));
        }
        Self { output: output as u64, input: input as u64 }
    }

    /// Alpha as a number, for formulas and reports.
    pub fn as_f64(self) -> f64 {
        self.output as f64 / self.input as f64
    }
}

/// Decoded bytes in the buffer over the bytes of the same records as they are stored: a property of their format.
/// Offloaded bytes are written as they are buffered; only output is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expansion {
    /// Bytes in the buffer; above 0.
    pub buffered: u64,
    /// Their number of bytes as they are stored; above 0.
    pub stored: u64,
}

impl Expansion {
    /// As many bytes in the buffer as on the drives.
    pub const ONE: Self = Self { buffered: 1, stored: 1 };

    /// The stored size of this number of buffered bytes, rounded up: some bytes are written for any that are buffered.
    pub fn stored_of(self, buffered_bytes: u64) -> u64 {
        assert!(self.buffered > 0 && self.stored > 0, "records take some bytes, in memory and on drives");
        let stored = (u128::from(buffered_bytes) * u128::from(self.stored)).div_ceil(u128::from(self.buffered));
        u64::try_from(stored).unwrap_or(u64::MAX)
    }

    /// Expansion as a number, for reports.
    pub fn as_f64(self) -> f64 {
        self.buffered as f64 / self.stored as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_the_buffer_is_the_product_of_what_is_written_and_what_a_format_takes() {
        let (alpha, expansion) = (Alpha { output: 1, input: 4 }, Expansion { buffered: 3, stored: 1 });
        let buffered = alpha.in_memory(expansion);
        assert_eq!((buffered.output_of(400), expansion.stored_of(buffered.output_of(400))), (300, 100));
        assert_eq!(Alpha::ONE.in_memory(Expansion::ONE), Alpha::ONE);
        assert_eq!(
            (expansion.stored_of(0), expansion.stored_of(1)),
            (0, 1),
            "something is written of whatever there is"
        );
    }

    #[test]
    fn the_product_of_long_numbers_keeps_its_worth() {
        let alpha = Alpha { output: u64::MAX / 3, input: u64::MAX / 2 };
        let product = alpha.in_memory(Expansion { buffered: u64::MAX / 5, stored: u64::MAX / 7 });
        assert!((product.as_f64() - 2.0 / 3.0 * 7.0 / 5.0).abs() < 1e-9, "{product:?}");
    }
}
