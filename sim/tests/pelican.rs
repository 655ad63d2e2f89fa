//! Pelican's evaluation in its quick form: what even that must meet, and what it prints and draws.

#![allow(clippy::unwrap_used, missing_docs)]

use sim::reproduce::judge::Verdict;
use sim::reproduce::pelican::{Extent, FIGURES, Reproduction};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// The quick form, simulated once for all tests.
fn quick() -> &'static Reproduction {
    static MADE: OnceLock<Reproduction> = OnceLock::new();
    MADE.get_or_init(|| {
        let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let rack = model::text::parse(text, name).unwrap();
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Reproduction::new(rack, Extent::Quick, threads, &|_, _| {}).unwrap()
    })
}

#[test]
fn the_quick_form_meets_every_row_that_neither_hours_nor_sizes_decide() {
    // Rows that a short run may miss by chance, or that are missed at any length, are not among these.
    let met = [
        "JUDGED",
        "BURST_ANSWERED",
        "PLATEAU",
        "FP_CARD",
        "STRAW_MAN",
        "FP_UNBOUNDED",
        "UNBOUNDED_MOST",
        "NO_REJECTS_FP",
        "FP_NEVER",
        "REJECTS_8",
        "WAKING_5",
        "SERVICE_LEAST",
        "SERVICE_CROSSES",
        "TTFB_IDLE_FP",
        "TTFB_RATIO",
        "U_MODEST",
        "U_P99_FALLS",
        "U_P99_RISES",
        "FIFO_SPIN_UPS",
        "SPIN_UPS_PEAK",
        "POWER_PEAKS_AT",
        "POWER_HIGHEST",
        "POWER_PEAK",
        "POWER_PEAK_RATIO",
        "POWER_SHARE",
        "BOOT",
        "FILL_RANDOM",
        "FILL_CLIPPED",
    ];
    for id in met {
        let row = quick().row(id).unwrap_or_else(|| panic!("there is no row {id}"));
        assert_eq!(row.verdict, Verdict::Met, "{row:?}");
    }
    for id in ["BURST_CARD", "REBUILD_ARITHMETIC", "POWER_ALL_ACTIVE", "POWER_WAKING", "POWER_AWAKE", "BOOT_ROUNDS"] {
        assert_eq!(quick().row(id).unwrap().verdict, Verdict::ByConstruction, "{:?}", quick().row(id));
    }
    for id in ["TTFB_IDLE", "REJECTS_5_UNBOUNDED"] {
        assert_eq!(quick().row(id).unwrap().verdict, Verdict::Calibrated, "{:?}", quick().row(id));
    }
}

#[test]
fn each_contradiction_of_the_text_has_its_arithmetic() {
    let told = |id: &str, part: &str| {
        let row = quick().row(id).unwrap();
        assert_eq!(row.verdict, Verdict::Contradiction);
        assert!(row.note.contains(part), "{row:?}");
    };
    told("AGAINST_WITHIN", "26 Gb/s, which is 34 % below FP's 39.6 Gb/s");
    told("AGAINST_DATA", "28.9 Gb/s read: 24.1 Gb/s for clients if all 18 stacks count");
    told("AGAINST_NEVER", "of 16/s it cannot send 17 %");
    told("AGAINST_U", "= 5 times the throughput");
    told("AGAINST_POWER", "10.85 kW / 3.3 kW = 3.29x");
    told("AGAINST_SPIN_UP", "= 24.8 kW");
    told("AGAINST_GB", "42.9 Gb/s");
}

#[test]
fn rows_and_figures_are_complete_and_the_page_stands_alone() {
    let made = quick();
    assert!(made.rows.len() > 60);
    assert!(made.rows.iter().all(|row| !row.paper.is_empty() && !row.ours.is_empty() && !row.place.is_empty()));
    assert_eq!(made.figures.len(), FIGURES.len() - 1, "reading k stacks is not in the quick form");
    for (drawn, name) in made.figures.iter().zip(FIGURES) {
        let svg = drawn.plate.svg();
        assert_eq!(drawn.name, name);
        assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("href"), "{name}");
    }
    let page = made.page("larder reproduce pelican --quick").html();
    assert!(made.rows.iter().all(|row| page.contains(row.place)));
    assert_eq!(page.matches("<svg").count(), made.figures.len());
    assert_eq!(made.points().rows.len(), made.runs.points.len());
}
