//! The racks and traces that scenarios name.

use super::changes::Changes;
use model::RackSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Finds a rack, or the path of a trace, by its name in the scenario; or says why it cannot be had.
pub type Source<'a, T> = &'a dyn Fn(&str) -> Result<T, String>;

/// Where racks and traces come from. Each is asked for once, however many cases name it.
pub struct Sources<'a> {
    rack: Source<'a, RackSpec>,
    trace: Source<'a, PathBuf>,
    racks: BTreeMap<String, RackSpec>,
    traces: BTreeMap<String, PathBuf>,
    changed: BTreeMap<(String, Changes), RackSpec>,
}

impl<'a> Sources<'a> {
    /// Uses these sources, each of which says what is wrong with a name and what to write instead.
    pub fn new(rack: Source<'a, RackSpec>, trace: Source<'a, PathBuf>) -> Self {
        Self { rack, trace, racks: BTreeMap::new(), traces: BTreeMap::new(), changed: BTreeMap::new() }
    }

    pub(super) fn rack(&mut self, name: &str) -> Result<RackSpec, String> {
        once(&mut self.racks, name.to_owned(), || (self.rack)(name))
    }

    pub(super) fn trace(&mut self, name: &str) -> Result<PathBuf, String> {
        once(&mut self.traces, name.to_owned(), || (self.trace)(name))
    }

    /// The rack of this name with these changes.
    pub(super) fn changed(
        &mut self,
        name: (String, Changes),
        make: impl FnOnce() -> Result<RackSpec, String>,
    ) -> Result<RackSpec, String> {
        once(&mut self.changed, name, make)
    }
}

fn once<K: Ord, T: Clone>(
    known: &mut BTreeMap<K, T>,
    name: K,
    find: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    if let Some(found) = known.get(&name) {
        return Ok(found.clone());
    }
    let found = find()?;
    known.insert(name, found.clone());
    Ok(found)
}
