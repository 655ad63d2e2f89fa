//! The keys of payloads in the intake: sorted by name, then by slot.

use workshop::NamedSlot;

/// The first byte of the keys of payloads of version 1; the slot follows, big-endian.
pub(super) const PAYLOAD_1: u8 = b's';
/// Follows a name, in which each zero byte is followed by 255: so names sort as they are, and none begins another.
const NAME_END: [u8; 2] = [0, 1];
/// The first byte of the keys of payloads; the name of the object follows, and the slot, big-endian.
pub(super) const PAYLOAD: u8 = b'n';
/// The key of the payload at `at`.
pub(super) fn key(at: &NamedSlot) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + at.name().len() + NAME_END.len() + 8);
    key.push(PAYLOAD);
    for byte in at.name() {
        key.push(*byte);
        if *byte == 0 {
            key.push(u8::MAX);
        }
    }
    key.extend_from_slice(&NAME_END);
    key.extend_from_slice(&at.slot().to_be_bytes());
    key
}

/// The key that the payload in `slot` had in version 1.
pub(super) fn old_key(slot: u64) -> Vec<u8> {
    [&[PAYLOAD_1][..], &slot.to_be_bytes()].concat()
}

/// The name and slot of the payload with this key; `None` if it is not the key of a payload.
pub(super) fn slot_of(key: &[u8]) -> Option<NamedSlot> {
    let (kind, rest) = key.split_first()?;
    let (name, slot) = rest.split_last_chunk()?;
    let slot = u64::from_be_bytes(*slot);
    match *kind {
        PAYLOAD_1 if name.is_empty() => Some(slot.into()),
        PAYLOAD => {
            let mut rest = name.strip_suffix(&NAME_END)?;
            let mut name = Vec::with_capacity(rest.len());
            while let Some((byte, behind)) = rest.split_first() {
                name.push(*byte);
                rest = if *byte == 0 { behind.strip_prefix(&[u8::MAX])? } else { behind };
            }
            Some(NamedSlot::new(name, slot))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_as_names_and_slots_are_and_no_bytes_but_a_key_are_taken_for_one() {
        let names: [&[u8]; 7] = [b"", b"a", b"a\0", b"a\0\0b", b"a\0\x01", b"a\0\xff", b"a\x01"];
        let slots = [0, 1, 255, 1 << 40];
        let places: Vec<NamedSlot> =
            names.iter().flat_map(|name| slots.map(|slot| NamedSlot::new(name.to_vec(), slot))).collect();
        assert!(places.is_sorted() && places.iter().map(key).is_sorted());
        for place in &places {
            let key = key(place);
            assert_eq!(slot_of(&key).as_ref(), Some(place));
            for cut in 0..key.len() {
                assert!(slot_of(&key[..cut]).is_none_or(|other| other != *place), "{cut} bytes of {place:?}");
                let mut flipped = key.clone();
                flipped[cut] ^= 1;
                let other = slot_of(&flipped);
                assert!(
                    other
                        .is_none_or(|other| other != *place && (flipped[0] != PAYLOAD || self::key(&other) == flipped))
                );
            }
        }
    }
}
