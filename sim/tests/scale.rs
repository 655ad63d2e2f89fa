//! Racks much larger than any real one; the bench `speed` extends this to 100,224 drives.

#![allow(clippy::unwrap_used)]

mod racks;

use racks::shipped_text;
use sim::{Arrivals, Experiment};
use std::time::Duration;

#[test]
fn ten_thousand_drives_are_laid_out_to_their_bound_and_serve_under_the_judge() {
    let wide = shipped_text("pelican").replace("width = 6\n", "width = 54\n");
    let rack = model::text::parse(&wide, "pelican").unwrap();
    assert_eq!(rack.drives.len(), 10_368);
    let layout = engine::layout::synthesise(&rack).unwrap();
    assert_eq!((layout.groups.len(), layout.classes.len(), layout.spares.len()), (9 * 48, 9 * 4, 0));
    assert_eq!(layout.active_groups_max(), layout.bound.groups);

    let mut experiment = Experiment::pelican(rack);
    experiment.workload.arrivals = Arrivals::poisson(27.0);
    experiment.stored_blobs = 4_320;
    experiment.warm_up = Duration::ZERO;
    experiment.duration = Duration::from_mins(20);
    let measured = sim::run_once(&experiment, &layout, 1).unwrap();
    assert!(measured.clients.answered > 20_000, "{} of some 32,400 reads were answered", measured.clients.answered);
    assert_eq!(measured.clients.refused, 0);
}
