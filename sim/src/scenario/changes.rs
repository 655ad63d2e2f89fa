//! The changes that a scenario makes to a described rack.
//!
//! Limits over the whole rack are resources like those of the description, so the layout is made for them, the ledger
//! grants permits by them, and the trace judge counts them. Stragglers are late to spin up; mounts stay as described.

use model::{DomainId, DomainLimit, RackDraft, RackSpec, Resource, Stragglers};
use std::time::Duration;

/// The changes to a rack. Without changes, the rack stays as described.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changes {
    pub active_groups: Option<u32>,
    pub watts: Option<u32>,
    pub group_drives: Option<u32>,
    /// The share of stragglers among starts, in thousandths, and the longest start.
    pub stragglers: Option<(u16, Duration)>,
    pub rate_spread_permille: Option<u16>,
    pub zone_spread_permille: Option<u16>,
}

impl Changes {
    /// The first key with a change; errors are reported at its line.
    pub fn first_key(&self) -> Option<&'static str> {
        let changes = [
            (self.active_groups.is_some(), "limit.active_groups"),
            (self.watts.is_some(), "limit.watts"),
            (self.group_drives.is_some(), "drives.group_drives"),
            (self.stragglers.is_some(), "drives.straggler_max"),
            (self.rate_spread_permille.is_some(), "drives.rate_spread"),
            (self.zone_spread_permille.is_some(), "drives.zone_spread"),
        ];
        changes.into_iter().find(|(changed, _)| *changed).map(|(_, key)| key)
    }

    pub fn applied_to(&self, spec: &RackSpec) -> Result<RackSpec, String> {
        let mut draft = (**spec).clone();
        draft.group_drives = self.group_drives.unwrap_or(draft.group_drives);
        self.limit(&mut draft);
        if let Some((permille, max)) = self.stragglers {
            draft.profile.spin_up.stragglers = Some(Stragglers { permille, max });
        }
        let spread = &mut draft.profile.rate_spread;
        spread.drive_permille = self.rate_spread_permille.unwrap_or(spread.drive_permille);
        spread.zone_permille = self.zone_spread_permille.unwrap_or(spread.zone_permille);
        let spec = RackSpec::validated(draft).map_err(|error| error.to_string())?;
        engine::layout::synthesise(&spec).map_err(|error| error.to_string())?;
        Ok(spec)
    }

    fn limit(&self, draft: &mut RackDraft) {
        let drives = self.active_groups.map(|groups| groups.saturating_mul(draft.group_drives));
        let drives = drives.map(DomainLimit::ActiveDrives);
        for (name, limit) in [("limit.active_groups", drives), ("limit.watts", self.watts.map(DomainLimit::Watts))] {
            let Some(limit) = limit else { continue };
            draft.resources.push(Resource { name: name.to_owned(), limit, hard: true });
            for drive in &mut draft.drives {
                drive.resource_domains.push(DomainId(0));
            }
        }
    }
}
