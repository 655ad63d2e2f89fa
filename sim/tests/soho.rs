//! SOHO beside a disk and flash: what the paper's text says comes out, or is missed in the way that the docs say.

#![allow(clippy::unwrap_used)]

use sim::reproduce::judge::{Row, Verdict};
use sim::reproduce::soho::{Reproduction, Runs};
use std::num::NonZeroUsize;

fn row<'a>(made: &'a Reproduction, id: &str) -> &'a Row {
    made.rows.iter().find(|row| row.id == id).unwrap()
}

#[test]
fn the_text_s_courses_come_out_and_one_package_is_not_five() {
    let made = Reproduction::of(Runs::new(true, NonZeroUsize::new(2).unwrap(), &|_, _| {}));
    for row in &made.rows {
        println!("{:20} {:>12} {:>28} {:>10} {:?} {}", row.id, row.paper, row.ours, row.differs, row.verdict, row.note);
    }
    println!("{}", made.sensitivity().csv());
    for id in ["SSD_BEST", "GIA_WRITES", "READS_DISK", "WRITES_DISK", "BLOCKS"] {
        assert_eq!(row(&made, id).verdict, Verdict::Met, "{id}");
    }
    for id in ["MOVES_200", "MOVES_400", "MOVES_800"] {
        assert_eq!(row(&made, id).verdict, Verdict::ByConstruction, "{id}");
    }
    // Five packages at once against one; blocks that cost the same, however many came before.
    for id in ["SOHO_SSD", "READS_SSD", "BLOCKS_SMALL"] {
        assert_eq!(row(&made, id).verdict, Verdict::Missed, "{id}");
    }
    assert_eq!(row(&made, "SOHO_ONE_PACKAGE").ours, "0.0 %");
    for named in &made.figures {
        assert!(named.figure.svg().contains("</svg>"), "{}", named.name);
    }
}
