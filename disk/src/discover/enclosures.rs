//! The enclosure slots of disks, as SES enclosures report them to the kernel.
//!
//! The kernel links each slot to its disk below /sys/class/enclosure. No disk or enclosure is asked here.

use super::tree::Tree;
use std::path::{Path, PathBuf};

/// A slot of an enclosure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The enclosure: its logical identifier if it has one, otherwise its address.
    pub enclosure: String,
    /// The slot: its number if it has one, otherwise its name.
    pub slot: String,
}

/// The slots of all enclosures, and the device in each.
#[derive(Debug, Default)]
pub struct Enclosures {
    slots: Vec<(PathBuf, Slot)>,
}

impl Enclosures {
    /// The enclosures of a machine.
    pub fn read(tree: &Tree) -> Self {
        let class = Path::new("sys/class/enclosure");
        let mut slots = Vec::new();
        for address in tree.names(class) {
            let folder = class.join(&address);
            let enclosure = tree.attribute(folder.join("id")).filter(|id| id != "0").unwrap_or(address);
            for name in tree.names(&folder) {
                let component = folder.join(&name);
                // The enclosure itself also links to its own device, one level higher.
                if let Some(device) = tree.target(component.join("device")).filter(|_| name != "device") {
                    let slot = tree.attribute(component.join("slot")).unwrap_or(name);
                    slots.push((device, Slot { enclosure: enclosure.clone(), slot }));
                }
            }
        }
        Self { slots }
    }

    /// The slot with `device`, the target of a disk's `device` link below /sys.
    pub fn of(&self, device: &Path) -> Option<Slot> {
        self.slots.iter().find(|(there, _)| there == device).map(|(_, slot)| slot.clone())
    }
}
