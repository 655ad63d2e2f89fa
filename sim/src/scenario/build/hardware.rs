//! The rack of a trial: its description, with the changes of the scenario.

use super::system::Wrong;
use crate::scenario::case::Case;
use crate::scenario::changes::Changes;
use crate::scenario::sources::Sources;
use model::RackSpec;

/// The rack with the changes of the scenario.
pub(super) fn rack(case: &Case, sources: &mut Sources<'_>) -> Result<RackSpec, Wrong> {
    let name = case.word("rack");
    let changes = changes(case)?;
    let spec = sources.rack(name).map_err(|why| ("rack", why))?;
    let Some(key) = changes.first_key() else { return Ok(spec) };
    sources.changed((name.to_owned(), changes.clone()), || changes.applied_to(&spec)).map_err(|why| (key, why))
}

fn changes(case: &Case) -> Result<Changes, Wrong> {
    let whole = |key: &'static str| case.whole_or_word(key).map(|number| number as u32);
    let max = case.span("drives.straggler_max").unwrap_or_default();
    Ok(Changes {
        active_groups: whole("limit.active_groups"),
        watts: whole("limit.watts"),
        group_drives: whole("drives.group_drives"),
        stragglers: permille(case, "drives.straggler_share")?.map(|share| (share, max)),
        rate_spread_permille: permille(case, "drives.rate_spread")?,
        zone_spread_permille: permille(case, "drives.zone_spread")?,
    })
}

/// A share in thousandths; `None` for zero.
fn permille(case: &Case, key: &'static str) -> Result<Option<u16>, Wrong> {
    let share = case.number(key);
    match (share * 1_000.0).round() as u16 {
        0 if share > 0.0 => Err((key, "is less than a thousandth; write 0.001 or more, or 0".to_owned())),
        0 => Ok(None),
        permille => Ok(Some(permille)),
    }
}
