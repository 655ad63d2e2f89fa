//! Windows in which the cold drives of a pool turn anyway: while they are deep-scrubbed, and for a while after.
//!
//! The agents wake drives for the deep scrubs of their placement groups, and let them turn for their idle time after
//! that. So the monitors know of every window, on any host.

use crate::agent::stamp;
use crate::cluster::Pg;
use model::Time;
use std::time::Duration;

/// True if each OSD with a copy in `pgs`, those of a pool, was deep-scrubbed there within `span` before `now`, or is
/// being deep-scrubbed.
pub fn is_open(pgs: &[Pg], now: Time, span: Duration) -> bool {
    let recent = |pg: &&Pg| {
        let is_scrubbed = pg.state.split('+').any(|word| word == "deep");
        is_scrubbed || stamp::parse(&pg.deep_scrubbed).is_some_and(|ended| now.since(ended) <= span)
    };
    let awake: Vec<_> = pgs.iter().filter(recent).flat_map(|pg| &pg.acting).collect();
    !pgs.is_empty() && pgs.iter().flat_map(|pg| &pg.acting).all(|osd| awake.contains(&osd))
}
