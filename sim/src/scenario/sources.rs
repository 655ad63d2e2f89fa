//! The racks and traces that scenarios name.

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
    limited: BTreeMap<Limited, RackSpec>,
}

/// A rack's name, the number of its groups that may be active, and the watts that its drives may draw.
type Limited = (String, Option<u32>, Option<u32>);

impl<'a> Sources<'a> {
    /// Uses these sources, each of which says what is wrong with a name and what to write instead.
    pub fn new(rack: Source<'a, RackSpec>, trace: Source<'a, PathBuf>) -> Self {
        Self { rack, trace, racks: BTreeMap::new(), traces: BTreeMap::new(), limited: BTreeMap::new() }
    }

    pub(super) fn rack(&mut self, name: &str) -> Result<RackSpec, String> {
        once(&mut self.racks, name.to_owned(), || (self.rack)(name))
    }

    pub(super) fn trace(&mut self, name: &str) -> Result<PathBuf, String> {
        once(&mut self.traces, name.to_owned(), || (self.trace)(name))
    }

    pub(super) fn limited(
        &mut self,
        name: Limited,
        make: impl FnOnce() -> Result<RackSpec, String>,
    ) -> Result<RackSpec, String> {
        once(&mut self.limited, name, make)
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
