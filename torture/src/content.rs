//! The bytes of objects: a function of a serial number and a length, which the ETag states. So every answer is checked
//! without a stored copy.

use catalog::Object;
use model::Rng;

/// Separates the bytes of objects from other streams.
const SALT: u64 = 0x1a2d_e200_b17e_5000;

/// The number from which an object's bytes are made; each put of a run has its own.
pub(crate) type Serial = u64;

/// The bytes of the object that was put as number `serial`.
pub(crate) fn content(serial: Serial, bytes: u64) -> Vec<u8> {
    let mut rng = Rng::for_thing(SALT, serial);
    let mut content = Vec::with_capacity(bytes as usize + 8);
    while content.len() < bytes as usize {
        content.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    content.truncate(bytes as usize);
    content
}

/// The ETag of an object.
pub(crate) fn etag(serial: Serial, bytes: u64) -> String {
    format!("{serial}-{bytes}")
}

/// The serial number of `object`; `None` if its record contradicts itself.
pub(crate) fn serial_of(object: &Object) -> Option<Serial> {
    let (serial, bytes) = object.etag.split_once('-')?;
    (bytes.parse() == Ok(object.bytes)).then(|| serial.parse().ok())?
}
