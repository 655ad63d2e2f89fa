//! Workload Shifting and its baselines: the paper's measurements follow from two calibrated puts.

#![allow(clippy::unwrap_used)]

use sim::reproduce::judge::{Row, Verdict};
use sim::reproduce::shifting::{Reproduction, Runs, System, Variant};
use sim::shifting::{Stage, StageSpan, run};
use std::num::NonZeroUsize;

fn reproduced() -> Reproduction {
    Reproduction::of(Runs::new(true, NonZeroUsize::new(2).unwrap(), &|_, _| {}))
}

fn row<'a>(made: &'a Reproduction, id: &str) -> &'a Row {
    made.rows.iter().find(|row| row.id == id).unwrap()
}

#[test]
fn the_text_s_main_numbers_come_out() {
    let made = reproduced();
    for row in &made.rows {
        println!("{:20} {:>12} {:>28} {:>10} {:?} {}", row.id, row.paper, row.ours, row.differs, row.verdict, row.note);
    }
    for id in [
        "SHIFTING_RISE",
        "FASTER",
        "LEVELDB_KEYS",
        "DISKS_RAID",
        "DISKS_ABOVE",
        "UNSYNCED",
        "SYNCED",
        "ACCEPTABLE",
        "BAD",
        "ENERGY_LESS",
    ] {
        assert_eq!(row(&made, id).verdict, Verdict::Met, "{id}");
    }
    for id in ["SHIFTING_ALONE", "RAID_ALONE", "SHIFTING_1000"] {
        assert_eq!(row(&made, id).verdict, Verdict::Calibrated, "{id}");
    }
    assert_eq!(made.rows.iter().filter(|row| row.verdict == Verdict::Contradiction).count(), 3);
    for named in &made.figures {
        assert!(named.figure.svg().contains("</svg>"), "{}", named.name);
    }
}

#[test]
fn the_same_parameters_give_the_same_outcome() {
    let made = reproduced();
    let put = made.runs.first().of(System::Shifting, Variant::Both, 100);
    let again = run(&put.run);
    assert_eq!(
        (again.took, again.energy_mj, &again.stages),
        (put.outcome.took, put.outcome.energy_mj, &put.outcome.stages)
    );
}

/// Figure 7: if each put is synced, no disk is in two stages at once, and each passes through them in order.
#[test]
fn synced_puts_keep_the_stages_of_a_disk_apart() {
    let made = reproduced();
    let put = made.runs.first().of(System::Shifting, Variant::Both, 100);
    for disk in 0..4 {
        let mut spans: Vec<&StageSpan> = put.outcome.stages.iter().filter(|span| span.disk == disk).collect();
        spans.sort_by_key(|span| span.from);
        assert!(spans.len() > 100, "{}", spans.len());
        assert!(spans.windows(2).all(|pair| pair[0].to <= pair[1].from), "disk {disk} does one thing at a time");
        let order: Vec<Stage> = spans.iter().map(|span| span.stage).collect();
        let begin = order.iter().position(|stage| *stage == Stage::Log).unwrap();
        for stages in order[begin..].chunks_exact(3).take(30) {
            assert_eq!(stages, [Stage::Log, Stage::ReadLog, Stage::WriteTree]);
        }
    }
}
