//! The evaluation of BuffPack and OffPack in its quick form: the required results, and the printed and drawn output.

#![allow(clippy::unwrap_used, missing_docs)]

mod reproduced;

use reproduced::{are_complete, contradict, says_what_the_full_form_says};
use sim::repartition::{Groups, Method, Repartition};
use sim::reproduce::partition::{Apart, FIGURES, Reproduction, Runs, Sweep, apart};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// The quick form, simulated once for all tests.
fn quick() -> &'static Reproduction {
    static MADE: OnceLock<Reproduction> = OnceLock::new();
    MADE.get_or_init(|| {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Reproduction::of(Runs::new(true, threads, &|_, _| {}).unwrap())
    })
}

#[test]
fn the_quick_form_says_what_the_full_form_says() {
    says_what_the_full_form_says(quick(), "partition", &[("MODEL_OFFPACK", "by seeks, which small data has more of")]);
}

#[test]
fn nothing_is_drawn_so_that_rows_need_no_interval() {
    let once =
        Repartition { data_bytes: 200_000_000_000, ..Repartition::paper(&Groups::PAPER, Method::Offpack).unwrap() };
    let of = |seed| sim::repartition::run(&Repartition { seeds: vec![seed], ..once.clone() }).unwrap();
    let (one, other) = (of(1), of(2));
    assert_eq!((one.hours.to_bits(), one.switches.to_bits()), (other.hours.to_bits(), other.switches.to_bits()));
}

#[test]
fn each_contradiction_of_the_text_has_its_arithmetic() {
    let arithmetic = [
        ("AGAINST_GAIN", "472 h / 141 h = 3.3x"),
        ("AGAINST_ORDERS", "= 1.9x"),
        ("AGAINST_DAYS", "5.9 days by (6) and (7); to read and write 100 TB once at 1 GB/s alone takes 56 h, 2.3 days"),
        ("AGAINST_WEEKS", "2.8 weeks"),
    ];
    contradict(quick(), &arithmetic);
}

#[test]
fn where_the_papers_formulas_are_off_the_reason_adds_up_and_the_better_ones_are_not() {
    let apart: Vec<Apart<'_>> = apart(&quick().runs);
    assert!(apart.iter().any(|one| one.job.sweep == Sweep::InputSkew), "formula (6) knows no skew");
    assert!(apart.iter().any(|one| one.job.sweep == Sweep::Groups), "formula (7) knows no small runs");
    for one in apart {
        let parts = one.by_switches + one.by_bytes + one.by_rest;
        assert!((parts - (one.job.point.hours - one.model_hours)).abs() < 0.02 * one.job.point.hours, "{one:?}");
        // Every method except OffPack has a better one.
        let better = one
            .better_off()
            .map_or(one.job.what.method == Method::Offpack, |off| off.abs() < 0.05 && off.abs() < one.off().abs());
        assert!(better, "{one:?}");
    }
}

#[test]
fn rows_and_figures_are_complete_and_the_page_stands_alone() {
    let made = quick();
    assert!(made.rows.len() > 30);
    are_complete(made, &FIGURES, &made.page("larder reproduce partition --quick").html());
    for drawn in &made.figures {
        let svg = drawn.figure.svg();
        let words = [
            "TourPack (ours)",
            "FillPack (ours)",
            "HDD cluster",
            "FillPack, better model (ours)",
            "longer than the model",
        ];
        assert!(words.iter().all(|words| svg.contains(words)), "{}", drawn.name);
    }
    assert_eq!(made.points().rows.len(), made.runs.jobs.len());
}
