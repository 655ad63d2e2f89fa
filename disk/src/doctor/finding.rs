//! Something that wakes disks or keeps them awake.

/// Something that wakes disks or keeps them awake, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The program or mechanism, by its usual name.
    pub cause: &'static str,
    /// The place where it was found: a process, a unit, a file, an attribute.
    pub place: String,
    /// Its effect on disks.
    pub found: String,
    /// The remedy.
    pub mend: String,
}

impl Finding {
    /// A finding.
    pub fn new(
        cause: &'static str,
        place: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { cause, place: place.into(), found: found.into(), mend: mend.into() }
    }
}
