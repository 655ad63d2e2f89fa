//! The shelf: an immutable B+tree in one file, written from front to back and never changed.
//!
//! ```text
//!  +--------+------+------+------+-------+------+ - - +-------+------+--------+------+--------+
//!  | header | leaf | leaf | leaf | inner | leaf |     | inner | tail | footer | tail | footer |
//!  | 4 KiB  |      |      |      | node  |      |     | root  |      | 4 KiB  |      | 4 KiB  |
//!  +--------+------+------+------+-------+------+ - - +-------+------+--------+------+--------+
//! ```
//!
//! 1. Records come in key order ([`build`]). A leaf is a run of records, of 16 KiB or one record if that is larger.
//! 2. An inner node is written as soon as it is full, right after its last child; so building a shelf of any size takes
//!    a buffer and one node for each level.
//! 3. The tail has the masks, the files that this shelf supersedes (once it is whole, they are dead, wherever they
//!    are), and their parts that could no longer be read. The footer has the root, and marks the shelf as whole. Both
//!    exist twice, so one damaged page leaves one of each ([`edges`]).
//! 4. A shelf is written under another name, synced, read back ([`read`]) and only then gets its name. So a file with
//!    this name was whole once.
//!
//! Every record and every inner node has its checksum and the stamp of its file. So a shelf with wrong bytes anywhere
//! loses no record that is whole and in its place ([`salvage`]); it is rewritten as background work.

pub(crate) mod access;
pub(crate) mod build;
mod edges;
mod format;
pub(crate) mod read;
mod salvage;

pub(crate) use format::Trailers;
