//! Signatures at their places, and in arbitrary bytes.
#![allow(clippy::unwrap_used)]

use super::signatures::{HEAD_BYTES, Role, TAIL_BYTES, signatures};
use crate::label::{RackUuid, volume_name};
use proptest::prelude::*;

const SIZE_BYTES: u64 = (1 << 30) + 4096 * 5;

/// An empty disk of [`SIZE_BYTES`] with `marks` from its beginning and `end_marks` from its end: what it holds.
fn holds(marks: &[(usize, &[u8])], end_marks: &[(usize, &[u8])]) -> Vec<(String, Role)> {
    let (mut head, mut tail) = (vec![0; HEAD_BYTES], vec![0; TAIL_BYTES]);
    for (at, magic) in marks {
        head[*at..at + magic.len()].copy_from_slice(magic);
    }
    for (back, magic) in end_marks {
        let at = TAIL_BYTES - back;
        tail[at..at + magic.len()].copy_from_slice(magic);
    }
    signatures(&head, &tail, SIZE_BYTES).into_iter().map(|found| (found.name, found.role)).collect()
}

fn one(name: &str, role: Role) -> Vec<(String, Role)> {
    vec![(name.to_owned(), role)]
}

#[test]
fn zeros_are_nothing_and_other_bytes_are_something() {
    assert_eq!(holds(&[], &[]), []);
    let unrecognised = one("data of no known format", Role::Unrecognised);
    assert_eq!(holds(&[(70_000, b"x")], &[]), unrecognised);
    assert_eq!(holds(&[], &[(1, b"x")]), unrecognised);
}

#[test]
fn file_systems_are_named() {
    assert_eq!(holds(&[(0, b"XFSB")], &[]), one("xfs", Role::FileSystem));
    assert_eq!(holds(&[(0x1_0040, b"_BHRfS_M")], &[]), one("btrfs", Role::FileSystem));
    let ext: &[(usize, &[u8])] = &[(0x438, b"\x53\xef")];
    assert_eq!(holds(ext, &[]), one("ext2", Role::FileSystem));
    let ext: &[(usize, &[u8])] = &[(0x438, b"\x53\xef"), (0x45c, b"\x04"), (0x460, b"\xc2\x02")];
    assert_eq!(holds(ext, &[]), one("ext4", Role::FileSystem));
    // A boot sector has the mark of a partition table as well, and is none.
    assert_eq!(holds(&[(0x52, b"FAT32   "), (510, b"\x55\xaa")], &[]), one("vfat", Role::FileSystem));
}

#[test]
fn partition_tables_are_named() {
    let dos: &[(usize, &[u8])] = &[(446, b"\x80\0\0\0\x83"), (510, b"\x55\xaa")];
    assert_eq!(holds(dos, &[]), one("dos", Role::PartitionTable));
    assert_eq!(holds(&[(510, b"\x55\xaa")], &[])[0].1, Role::Unrecognised);
    let gpt: &[(usize, &[u8])] = &[(446, b"\0\0\0\0\xee"), (510, b"\x55\xaa"), (512, b"EFI PART")];
    assert_eq!(holds(gpt, &[(512, b"EFI PART")]), one("gpt", Role::PartitionTable));
    // The second copy, where the first was overwritten.
    assert_eq!(holds(&[], &[(512, b"EFI PART")]), one("gpt", Role::PartitionTable));
    assert_eq!(holds(&[(4096, b"EFI PART")], &[]), one("gpt", Role::PartitionTable));
}

#[test]
fn members_of_arrays_and_pools_are_named() {
    let md = b"\xfc\x4e\x2b\xa9";
    for marks in [[(0, &md[..])], [(4096, &md[..])]] {
        assert_eq!(holds(&marks, &[]), one("linux_raid_member", Role::Member));
    }
    // Version 1.0: 8 KiB before the end, rounded down to 4 KiB. Version 0.90: in the last whole 64 KiB.
    let last_64k = (SIZE_BYTES % (64 << 10)) as usize + (64 << 10);
    for back in [8 << 10, last_64k] {
        assert_eq!(holds(&[], &[(back, md)]), one("linux_raid_member", Role::Member));
    }
    assert_eq!(holds(&[(512, b"LABELONE"), (0x218, b"LVM2 001")], &[]), one("LVM2_member", Role::Member));
    let uberblock = b"\x0c\xb1\xba\0\0\0\0\0";
    assert_eq!(holds(&[(130 << 10, uberblock)], &[]), one("zfs_member", Role::Member));
    assert_eq!(holds(&[(130 << 10, b"\0\0\0\0\0\xba\xb1\x0c")], &[]), one("zfs_member", Role::Member));
    let odd = (SIZE_BYTES % (256 << 10)) as usize;
    for label in [256 << 10, 512 << 10] {
        let back = odd + label - (131 << 10);
        assert_eq!(holds(&[], &[(back, uberblock)]), one("zfs_member", Role::Member), "{label}");
    }
    assert_eq!(holds(&[], &[(1024, b"Intel Raid ISM Cfg Sig. 1.3")]), one("isw_raid_member", Role::Member));
}

#[test]
fn larders_own_are_known_by_their_volume() {
    let name = volume_name(RackUuid([9; 16]));
    let mut head = vec![0; HEAD_BYTES];
    head[..4].copy_from_slice(b"XFSB");
    head[108..120].copy_from_slice(name.as_bytes());
    let found = signatures(&head, &[], SIZE_BYTES);
    assert!(found[0].is_larders() && found[0].label.as_deref() == Some(name.as_str()));
    head[108..120].copy_from_slice(b"backup\0\0\0\0\0\0");
    let found = signatures(&head, &[], SIZE_BYTES);
    assert!(!found[0].is_larders() && found[0].label.as_deref() == Some("backup"));
}

proptest! {
    #[test]
    fn arbitrary_ends_of_any_size_never_panic(
        head in prop::collection::vec(any::<u8>(), 0..5000),
        tail in prop::collection::vec(any::<u8>(), 0..5000),
        size_bytes in prop_oneof![any::<u64>(), 0u64..20_000],
        mark in prop::sample::select(vec![(0x438usize, vec![0x53u8, 0xef]), (0, b"XFSB".to_vec())]),
    ) {
        signatures(&head, &tail, size_bytes);
        let mut head = head;
        let end = mark.0 + mark.1.len();
        if head.len() >= end {
            head[mark.0..end].copy_from_slice(&mark.1);
        }
        prop_assert!(!signatures(&head, &tail, size_bytes).is_empty() || head.iter().chain(&tail).all(|b| *b == 0));
    }
}
