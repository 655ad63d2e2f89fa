//! The racks and traces that scenarios name.

use super::changes::Changes;
use model::RackSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Finds a rack, or the path of a trace, by its name in the scenario; or returns the reason why it is not available.
pub type Source<'a, T> = &'a dyn Fn(&str) -> Result<T, String>;

/// The sources of racks and traces. Each is requested once, for any number of cases with its name.
pub struct Sources<'a> {
    rack: Source<'a, RackSpec>,
    trace: Source<'a, PathBuf>,
    racks: BTreeMap<String, RackSpec>,
    traces: BTreeMap<String, PathBuf>,
    changed: BTreeMap<(String, Changes), RackSpec>,
}

impl<'a> Sources<'a> {
    /// Uses these sources; the error of each names the problem with a name, and the correct form.
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
