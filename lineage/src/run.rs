//! Runs of a server, and generations of a file that is kept twice.

use core::fmt;

/// The highest bit of a run's number in stacks and staged files: set if they were written under an older catalog.
const ASIDE: u64 = 1 << 63;

/// A run of a server: a random number, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The run that wrote a stack or a staged file, as these name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStamp {
    /// The number of the run, below 2^63; 0 if it is not known.
    pub run: u64,
    /// Written **aside**: under a catalog that was known to be older. It is no sign against the newer catalog, which
    /// does not know it either.
    pub is_aside: bool,
}

impl RunStamp {
    /// A run with the random number `nonce`, under the newest catalog.
    pub fn of_nonce(nonce: u64) -> Self {
        Self { run: (nonce & !ASIDE).max(1), is_aside: false }
    }

    /// Decodes the form in a header or a footer.
    pub fn from_bits(bits: u64) -> Self {
        Self { run: bits & !ASIDE, is_aside: bits & ASIDE != 0 }
    }

    /// The form in a header or a footer.
    pub fn bits(self) -> u64 {
        assert!(self.run & ASIDE == 0, "a run's number leaves the highest bit free");
        self.run | if self.is_aside { ASIDE } else { 0 }
    }
}

/// The number of a batch of the catalog. Each committed batch gets a higher number than all before it; there may be
/// gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// The number of a version of a file that is kept in two slots. Each version has a higher one than the version before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation of the next version.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// True if a slot of this generation counts more than one of `other`; any counts more than none.
    pub fn is_after(self, other: Option<Self>) -> bool {
        other.is_none_or(|other| other < self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_same_after_a_header() {
        for bits in [0, 1, 7 | ASIDE, u64::MAX, !ASIDE] {
            assert_eq!(RunStamp::from_bits(bits).bits(), bits);
        }
        assert_eq!(RunStamp::of_nonce(0), RunStamp { run: 1, is_aside: false });
        assert_eq!(RunStamp::of_nonce(u64::MAX).bits(), !ASIDE);
    }

    #[test]
    fn the_slot_of_the_higher_generation_counts() {
        let first = Generation::default();
        assert!(first.is_after(None) && first.next().is_after(Some(first)));
        assert!(!first.is_after(Some(first)) && !first.is_after(Some(first.next())));
    }
}
