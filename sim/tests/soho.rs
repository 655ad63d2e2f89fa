//! SOHO beside a disk and flash: the claims of the paper's text are met, or missed in the way that the docs describe.

#![allow(clippy::unwrap_used)]

mod reproduced;

use reproduced::{are_complete, contradict, says_what_the_full_form_says};
use sim::reproduce::judge::Verdict;
use sim::reproduce::soho::{FIGURES, Reproduction, Runs};
use std::num::NonZeroUsize;

/// Rows that depend on sizes.
const BUT: [(&str, &str); 1] =
    [("THRESHOLDS", "GIA's moves at 0.2 and 0.4 differ by one hundredth, and in so little data they do not")];

#[test]
fn the_text_s_courses_come_out_and_one_package_is_not_five() {
    let made = Reproduction::of(Runs::new(true, NonZeroUsize::new(2).unwrap(), &|_, _| {}));
    for row in &made.rows {
        println!("{:20} {:>12} {:>28} {:>10} {:?} {}", row.id, row.paper, row.ours, row.differs, row.verdict, row.note);
    }
    println!("{}", made.sensitivity().csv());
    let verdicts = |ids: &[&str], verdict: Verdict| {
        for id in ids {
            let row = made.rows.iter().find(|row| row.id == *id).unwrap();
            assert_eq!(row.verdict, verdict, "{row:?}");
        }
    };
    verdicts(&["SSD_BEST", "GIA_WRITES", "READS_DISK", "WRITES_DISK", "BLOCKS"], Verdict::Met);
    verdicts(&["MOVES_200", "MOVES_400", "MOVES_800"], Verdict::ByConstruction);
    // Five parallel packages compared with one; blocks have the same cost, independent of the number before them.
    verdicts(&["SOHO_SSD", "READS_SSD", "BLOCKS_SMALL"], Verdict::Missed);
    let arithmetic = [("THREE_SHARES", "4.1 % apart, not 3.11 %"), ("REGULAR", "0.05"), ("CAPACITY", "146.8 GB")];
    contradict(&made, &arithmetic);
    says_what_the_full_form_says(&made, "soho", &BUT);
    are_complete(&made, &FIGURES, &made.page("larder reproduce soho --quick").html());
}
