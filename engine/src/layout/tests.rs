//! What layouts come out, and that every one is sound.

#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeMap;

fn shipped(name: &str) -> RackSpec {
    let text = model::text::SHIPPED.iter().find(|(n, _)| *n == name).unwrap().1;
    model::text::parse(text, name).unwrap()
}

/// The most drives of any group that have in common what `key` makes of their slot.
fn most_per_group(spec: &RackSpec, layout: &Layout, key: impl Fn([u16; 3]) -> (u16, u16)) -> usize {
    let most = |group: &Group| {
        let mut counts: BTreeMap<(u16, u16), usize> = BTreeMap::new();
        group.drives.iter().for_each(|d| *counts.entry(key(spec.drive(*d).slot)).or_default() += 1);
        counts.into_values().max().unwrap()
    };
    layout.groups.iter().map(most).max().unwrap()
}

#[test]
fn pelican_gets_the_papers_layout() {
    let spec = shipped("pelican");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.groups.len(), 48);
    assert!(layout.groups.iter().all(|group| group.drives.len() == 24));
    assert_eq!(layout.classes.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12, 12, 12]);
    assert_eq!((layout.active_groups_max(), layout.drives_active_max()), (4, 96));
    assert_eq!((layout.spares.len(), layout.warnings.len()), (0, 0), "every soft limit kept, nothing left over");
    assert_eq!(most_per_group(&spec, &layout, |[w, _, h]| (w, h)), 1, "drives a tray");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h, 0)), 2, "drives a height row");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h / 2, 0)), 4, "drives a chassis");
    for class in &layout.classes {
        let halves = |g: &GroupId| {
            layout.groups[g.index()].drives.iter().map(|d| spec.drive(*d).slot[0] / 3).collect::<Vec<_>>()
        };
        let mut halves: Vec<u16> = class.iter().flat_map(halves).collect();
        halves.dedup();
        assert_eq!(halves.len(), 1, "a class lies within one server's half");
    }
    assert_eq!(layout.bound.to_string(), "at most 4 groups, since `cooling` lets 96 drives be awake at once");
}

#[test]
fn pelican_draws_what_the_paper_says() {
    let spec = shipped("pelican");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.asleep_mw(&spec), 1_797_120);
    assert_eq!(layout.waking_mw(&spec), 3_714_240, "the paper: peak 3.7 kW");
    assert_eq!(layout.active_mw(&spec), 2_551_680, "the paper: average 2.6 kW");
}

#[test]
fn pelican_mini_is_pelican_in_small() {
    let spec = shipped("pelican-mini");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.classes.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    assert!(layout.warnings.is_empty() && layout.spares.is_empty());
    assert_eq!(most_per_group(&spec, &layout, |[w, _, h]| (w, h)), 1, "drives a tray");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h, 0)), 2, "drives a chassis, which r = 2 survives");
}

#[test]
fn nas8_gets_two_groups_of_four_in_one_class() {
    let spec = shipped("nas8");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.groups.iter().map(|g| g.drives.len()).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(layout.classes, [[GroupId(0), GroupId(1)]]);
    assert_eq!(layout.bound.resource.as_deref(), Some("power"));
}

#[test]
fn a_layout_survives_serde_with_its_table() {
    let layout = synthesise(&shipped("nas8")).unwrap();
    let text = serde_json::to_string(&layout).unwrap();
    let back: Layout = serde_json::from_str(&text).unwrap();
    assert_eq!(back, layout);
    assert_eq!(back.group_of(layout.groups[1].drives[2]), Some(GroupId(1)));
    assert_eq!(back.group_of(DriveId(8)), None);
}
