//! The contents of a disk, recognised by the magic numbers at its beginning and its end.
//!
//! Pure: bytes in, names out. The places are those of each format's documentation. A disk whose beginning and end are
//! zero and that has no magic number holds nothing known; any other disk without a magic number holds data of an
//! unknown format, and does not count as empty.

use crate::label;

/// The number of bytes that are examined at the beginning of a disk: up to the end of the first ZFS label.
pub const HEAD_BYTES: usize = 256 << 10;
/// The number of bytes at its end: two ZFS labels, aligned, and everything that other formats write there.
pub const TAIL_BYTES: usize = 1 << 20;

/// The role of something on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A partition table.
    PartitionTable,
    /// A file system.
    FileSystem,
    /// A member of an array, a pool or a volume group.
    Member,
    /// Swap space.
    Swap,
    /// An encrypted volume.
    Encrypted,
    /// Data of no known format.
    Unrecognised,
}

/// Something that was found on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name, in blkid's notation if blkid knows it.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The name that its creator gave it.
    pub label: Option<String>,
}

impl Signature {
    fn new(name: &str, role: Role) -> Self {
        Self { name: name.to_owned(), role, label: None }
    }

    /// True if it is a file system that Larder made, of any rack.
    pub fn is_larders(&self) -> bool {
        self.role == Role::FileSystem && self.label.as_deref().is_some_and(label::is_volume_name)
    }
}

/// Magic numbers at fixed places from the beginning.
const AT_HEAD: &[(&str, Role, usize, &[u8])] = &[
    ("xfs", Role::FileSystem, 0, b"XFSB"),
    ("btrfs", Role::FileSystem, 0x1_0040, b"_BHRfS_M"),
    ("bcachefs", Role::FileSystem, 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("f2fs", Role::FileSystem, 0x400, b"\x10\x20\xf5\xf2"),
    ("ntfs", Role::FileSystem, 3, b"NTFS    "),
    ("exfat", Role::FileSystem, 3, b"EXFAT   "),
    ("vfat", Role::FileSystem, 0x36, b"FAT12   "),
    ("vfat", Role::FileSystem, 0x36, b"FAT16   "),
    ("vfat", Role::FileSystem, 0x52, b"FAT32   "),
    ("hfsplus", Role::FileSystem, 0x400, b"H+"),
    ("apfs", Role::FileSystem, 32, b"NXSB"),
    ("jfs", Role::FileSystem, 0x8000, b"JFS1"),
    ("reiserfs", Role::FileSystem, 0x1_0034, b"ReIsEr"),
    ("iso9660", Role::FileSystem, 0x8001, b"CD001"),
    ("gfs2", Role::FileSystem, 0x1_0000, b"\x01\x16\x19\x70"),
    ("ocfs2", Role::FileSystem, 0x2000, b"OCFSV2"),
    ("erofs", Role::FileSystem, 0x400, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", Role::FileSystem, 0, b"hsqs"),
    ("swap", Role::Swap, 4086, b"SWAPSPACE2"),
    ("crypto_LUKS", Role::Encrypted, 0, b"LUKS\xba\xbe"),
    ("BitLocker", Role::Encrypted, 3, b"-FVE-FS-"),
    ("LVM2_member", Role::Member, 0x218, b"LVM2 001"),
    ("LVM2_member", Role::Member, 0x18, b"LVM2 001"),
    ("LVM2_member", Role::Member, 0x418, b"LVM2 001"),
    ("LVM2_member", Role::Member, 0x618, b"LVM2 001"),
    ("linux_raid_member", Role::Member, 0x1000, b"\xfc\x4e\x2b\xa9"),
    ("linux_raid_member", Role::Member, 0, b"\xfc\x4e\x2b\xa9"),
    ("ceph_bluestore", Role::Member, 0, b"bluestore block device"),
    ("bcache", Role::Member, 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("gpt", Role::PartitionTable, 512, b"EFI PART"),
    ("gpt", Role::PartitionTable, 4096, b"EFI PART"),
];

/// Magic numbers at fixed places from the end.
const AT_TAIL: &[(&str, Role, usize, &[u8])] = &[
    ("isw_raid_member", Role::Member, 1024, b"Intel Raid ISM Cfg Sig. "),
    ("ddf_raid_member", Role::Member, 512, b"\xde\x11\xde\x11"),
    ("gpt", Role::PartitionTable, 512, b"EFI PART"),
    ("gpt", Role::PartitionTable, 4096, b"EFI PART"),
];

/// The signatures on a disk of `size_bytes` that begins with `head` and ends with `tail`. Each kind once, partition
/// tables first.
pub fn signatures(head: &[u8], tail: &[u8], size_bytes: u64) -> Vec<Signature> {
    let at = |bytes: &[u8], from: usize, magic: &[u8]| bytes.get(from..).is_some_and(|rest| rest.starts_with(magic));
    let mut found: Vec<Signature> = Vec::new();
    found.extend(AT_HEAD.iter().filter(|s| at(head, s.2, s.3)).map(|s| Signature::new(s.0, s.1)));
    let from_end = |bytes: usize| tail.len().checked_sub(bytes);
    let ends = AT_TAIL.iter().filter(|s| from_end(s.2).is_some_and(|from| at(tail, from, s.3)));
    found.extend(ends.map(|s| Signature::new(s.0, s.1)));
    found.extend(ext(head));
    found.extend(md_at_end(tail, size_bytes));
    found.extend(zfs(head, tail, size_bytes));
    if found.is_empty() {
        found.extend(dos(head));
    }
    if let Some(xfs) = found.iter_mut().find(|signature| signature.name == "xfs") {
        xfs.label = name_at(head, 108, 12);
    }
    if found.is_empty() && head.iter().chain(tail).any(|b| *b != 0) {
        found.push(Signature::new("data of no known format", Role::Unrecognised));
    }
    found.sort_by(|a, b| (a.role, &a.name).cmp(&(b.role, &b.name)));
    found.dedup_by(|a, b| a.name == b.name);
    found
}

/// The name in `bytes` at `from`, padded with zeros; `None` if it is empty.
fn name_at(bytes: &[u8], from: usize, length: usize) -> Option<String> {
    let padded = bytes.get(from..from + length)?;
    let name = padded.split(|b| *b == 0).next().unwrap_or_default();
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

fn u32_at(bytes: &[u8], from: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(from..from + 4)?.try_into().ok()?))
}

/// ext2 to ext4, by the superblock at 1024: magic at 56, features at 92 and 96, volume name at 120.
fn ext(head: &[u8]) -> Option<Signature> {
    const JOURNAL: u32 = 4;
    const EXTENTS: u32 = 0x40;
    if head.get(0x438..0x43a)? != b"\x53\xef" {
        return None;
    }
    let (compatible, incompatible) = (u32_at(head, 0x45c)?, u32_at(head, 0x460)?);
    let name = match (compatible & JOURNAL != 0, incompatible & EXTENTS != 0) {
        (_, true) => "ext4",
        (true, false) => "ext3",
        (false, false) => "ext2",
    };
    Some(Signature { label: name_at(head, 0x478, 16), ..Signature::new(name, Role::FileSystem) })
}

/// A member of a Linux array whose superblock is at its end: version 1.0, or 0.90.
fn md_at_end(tail: &[u8], size_bytes: u64) -> Option<Signature> {
    const MAGIC: u32 = 0xa92b_4efc;
    let places = [(size_bytes & !4095).checked_sub(8 << 10), (size_bytes & !0xffff).checked_sub(64 << 10)];
    let tail_from = size_bytes.checked_sub(tail.len() as u64)?;
    let there = |place: u64| u32_at(tail, usize::try_from(place.checked_sub(tail_from)?).ok()?);
    let found = places.into_iter().flatten().any(|place| there(place) == Some(MAGIC));
    found.then(|| Signature::new("linux_raid_member", Role::Member))
}

/// A member of a ZFS pool: an uberblock in the first label or in one of the two at the end, in either byte order.
fn zfs(head: &[u8], tail: &[u8], size_bytes: u64) -> Option<Signature> {
    const LABEL_BYTES: usize = 256 << 10;
    const UBERBLOCKS: std::ops::Range<usize> = 128 << 10..256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let in_label = |label: &[u8]| {
        let uberblocks = label.get(UBERBLOCKS).unwrap_or_default();
        uberblocks.chunks_exact(1024).any(|one| {
            let magic = <[u8; 8]>::try_from(&one[..8]).unwrap_or_default();
            u64::from_le_bytes(magic) == MAGIC || u64::from_be_bytes(magic) == MAGIC
        })
    };
    // The size is rounded down to whole labels.
    let odd = usize::try_from(size_bytes % LABEL_BYTES as u64).ok()?;
    let end = tail.len().checked_sub(odd)?;
    let ends = (1..=2).filter_map(|back| tail.get(end.checked_sub(back * LABEL_BYTES)?..end));
    let found = std::iter::once(head).chain(ends).any(in_label);
    found.then(|| Signature::new("zfs_member", Role::Member))
}

/// A DOS partition table: its mark, and four entries that are each empty or sound, at least one not empty. Boot sectors
/// of file systems have the mark as well.
fn dos(head: &[u8]) -> Option<Signature> {
    let table = head.get(446..512)?;
    let entries = || table[..64].chunks_exact(16);
    let sound = entries().all(|entry| matches!(entry[0], 0 | 0x80));
    let any = entries().any(|entry| entry[4] != 0);
    (table[64..] == *b"\x55\xaa" && sound && any).then(|| Signature::new("dos", Role::PartitionTable))
}
