//! Notes of a field: the logical type of its Parquet column, if Arrow has no type for it.

use arrow_schema::Field;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;

/// A time of day in UTC. The library's writer looks for this note.
pub(crate) const IN_UTC: &str = "adjusted_to_utc";

/// The logical type of a field by its notes, if Arrow has no type for it.
pub(crate) fn logical_name(field: &Field) -> Option<&'static str> {
    match field.metadata().get(EXTENSION_TYPE_NAME_KEY).map(String::as_str) {
        Some("arrow.uuid") => Some("UUID"),
        Some("arrow.json") => Some("JSON"),
        _ if field.metadata().contains_key(IN_UTC) => Some("Time in UTC"),
        _ => None,
    }
}
