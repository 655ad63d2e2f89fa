//! Pelican's evaluation in its quick form: the required results, and the printed and drawn output.

#![allow(clippy::unwrap_used, missing_docs)]

mod racks;
mod reproduced;

use reproduced::{are_complete, contradict, says_what_the_full_form_says};
use sim::reproduce::pelican::{FIGURES, Reproduction, Runs};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// The quick form, simulated once for all tests.
fn quick() -> &'static Reproduction {
    static MADE: OnceLock<Reproduction> = OnceLock::new();
    MADE.get_or_init(|| {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Reproduction::of(Runs::new(&racks::shipped("pelican"), true, threads, &|_, _| {}).unwrap())
    })
}

#[test]
fn the_quick_form_says_what_the_full_form_says() {
    let state = "at 4/s, where the rack has two states, it depends on the hours";
    let but = [
        ("SPAN", "the quick form measures six hours"),
        ("ALMOST_FP", state),
        ("NO_REJECTS", state),
        ("SERVICE_FALLS", state),
        ("TTFB_RATIO", state),
        ("SPIN_UPS_LEVEL", state),
        ("REBUILD_GROWS", "two rates"),
        ("REBUILD_CLIENTS", "a twentieth of the drive"),
        ("REBUILD_CLIENTS_MOST", "two rates"),
        ("REBUILD_OTHERS", "two rates"),
        ("U_P99_LEAST", "three values of u"),
    ];
    says_what_the_full_form_says(quick(), "pelican", &but);
}

#[test]
fn each_contradiction_of_the_text_has_its_arithmetic() {
    let arithmetic = [
        ("AGAINST_WITHIN", "26 Gb/s, which is 34 % below FP's 39.6 Gb/s"),
        ("AGAINST_DATA", "28.9 Gb/s read: 24.1 Gb/s for clients if all 18 stacks count"),
        ("AGAINST_NEVER", "of 16/s it cannot send 17 %"),
        ("AGAINST_U", "= 5 times the throughput"),
        ("AGAINST_POWER", "10.85 kW / 3.3 kW = 3.29x"),
        ("AGAINST_SPIN_UP", "= 24.8 kW"),
        ("AGAINST_GB", "42.9 Gb/s"),
    ];
    contradict(quick(), &arithmetic);
}

#[test]
fn rows_and_figures_are_complete_and_the_page_stands_alone() {
    let made = quick();
    assert!(made.rows.len() > 60);
    // Reading k stacks is not in the quick form.
    are_complete(made, &FIGURES[..FIGURES.len() - 1], &made.page("larder reproduce pelican --quick").html());
    assert_eq!(made.points().rows.len(), made.runs.points.len());
}
