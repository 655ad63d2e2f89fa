//! The shipped racks, for tests.

#![allow(dead_code)]

use model::RackSpec;

/// The description of a shipped rack.
pub fn shipped_text(name: &str) -> &'static str {
    model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == name).unwrap().1
}

/// A shipped rack.
pub fn shipped(name: &str) -> RackSpec {
    model::text::parse(shipped_text(name), name).unwrap()
}
