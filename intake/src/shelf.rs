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
//! 2. An inner node is written as soon as it is full, right behind its last child; so building one takes a buffer and
//!    one node for each level, however large the shelf.
//! 3. The tail has the masks, the files that this shelf supersedes (once it is whole, they are dead, wherever they
//!    lie), and what they had that nobody could read any more. The footer has the root, and says that the shelf is
//!    whole. Both stand twice, so that one page that is damaged leaves one of each ([`edges`]).
//! 4. A shelf is written under another name, synced, read back ([`read`]) and only then named. So what has its name was
//!    whole once.
//!
//! Every record and every inner node has its checksum, and says which file it belongs to. So a shelf with wrong bytes
//! in it, wherever they are, loses no record that is whole and in its place ([`salvage`]); it is written anew as
//! background work.

pub(crate) mod access;
pub(crate) mod build;
mod edges;
mod format;
pub(crate) mod read;
mod salvage;

pub(crate) use format::Trailers;
