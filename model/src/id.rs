//! Ids. Each kind is a plain number in its own type, so that no two kinds can be mixed up.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index into a table with one row per id.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A drive of a rack, counted from 0 in the order of the description.
    DriveId(u32), "d"
);
id!(
    /// A drive of the pool of small records, counted from 0 in the order of the description.
    PoolDriveId(u32), "p"
);
id!(
    /// A group: drives that may all spin at once, and that hold blobs together (Pelican, section 3).
    GroupId(u32), "g"
);
id!(
    /// A class: groups that collide fully, so only one of them may be active at a time (Pelican, section 3).
    ClassId(u32), "c"
);
id!(
    /// A resource of the rack, such as `power` or `cooling`, counted in the order of the description.
    ResourceId(u32), "r"
);
id!(
    /// A domain of one resource (or of one kind of failure domain), counted from 0 within it.
    DomainId(u32), "dom"
);
id!(
    /// An operation given to a rack. Unique while the process lives; the world assigns it.
    OpId(u64), "op"
);
id!(
    /// The number of an attempt at an operation or a drive command. Events of older attempts are late, and are ignored.
    Attempt(u32), "try"
);

/// An immutable run of bytes kept as k + r stripe stacks in one group.
///
/// The number comes from a counter, the nonce is random. A catalog restored from a backup assigns the same numbers
/// again; the nonce distinguishes the new blobs from the old ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobId {
    /// Unique in one catalog for ever, and ascending. No blob has number 0.
    pub number: u64,
    /// Random for each blob; 0 if no medium can hold an older blob with the same number (the simulator).
    pub nonce: u64,
}

impl BlobId {
    /// The smallest id, which no blob has.
    pub const NONE: Self = Self { number: 0, nonce: 0 };

    /// The blob of that number and nonce.
    pub const fn new(number: u64, nonce: u64) -> Self {
        Self { number, nonce }
    }

    /// The blob of that number in a world that assigns each number once.
    pub const fn numbered(number: u64) -> Self {
        Self { number, nonce: 0 }
    }

    /// The smallest id above all with this number.
    #[must_use]
    pub const fn next_number(self) -> Self {
        Self { number: self.number + 1, nonce: 0 }
    }
}

impl fmt::Display for BlobId {
    /// `b12-00c0ffee00c0ffee`, or `b12` without a nonce.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.number)?;
        if self.nonce == 0 { Ok(()) } else { write!(f, "-{:016x}", self.nonce) }
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
