//! udev's record of a device, from its last look at the device.

use super::tree::Tree;
use std::collections::HashMap;
use std::path::Path;

/// udev's properties of a block device, by name.
pub struct Properties(HashMap<String, String>);

impl Properties {
    /// The properties of the device whose numbers are in `block`.
    pub fn read(tree: &Tree, block: &Path) -> Self {
        let numbers = tree.attribute(block.join("dev")).unwrap_or_default();
        let text = tree.text(format!("run/udev/data/b{numbers}")).unwrap_or_default();
        let property = |line: &str| {
            let (name, value) = line.strip_prefix("E:")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Self(text.lines().filter_map(property).collect())
    }

    /// The property `name`, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}
