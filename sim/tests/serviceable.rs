//! Serviceable cold storage compared with a cluster without it: the claims of the paper's text are met, or missed in
//! the way that the docs describe.

#![allow(clippy::unwrap_used)]

mod reproduced;

use reproduced::{are_complete, contradict, says_what_the_full_form_says};
use sim::reproduce::judge::Verdict;
use sim::reproduce::serviceable::{FIGURES, Reproduction, Runs};
use std::num::NonZeroUsize;

/// Rows that depend on the number of objects or on the time.
const BUT: [(&str, &str); 0] = [];

#[test]
fn no_cold_drive_is_touched_and_the_watts_come_out() {
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
    verdicts(&["UNTOUCHED", "POWER_COLD_6", "SAVED_COLD_6", "RECOVERY_COLD_6", "BACK", "SECOND_HOT"], Verdict::Met);
    verdicts(&["MIGRATION_COLD_12", "MIGRATING_COLD_12", "SCRUB_LONGER", "MEAN_COLD_12", "RISES"], Verdict::Met);
    verdicts(&["POWER_VANILLA", "POWER_COLD_12", "RATE_600", "RATE_700", "WORST_VANILLA"], Verdict::Calibrated);
    // Waits depend on the remaining drives; the number of requests behind the tails is not in the text.
    verdicts(&["ADDED_COLD_6", "ADDED_COLD_12", "TAIL_COLD_12", "RECOVERY_COLD_12"], Verdict::Missed);
    let arithmetic = [("ASLEEP", "1.18 W"), ("BEFORE", "105 W"), ("NEWEST", "99.7 %"), ("ADDED", "10 to 20 ms")];
    contradict(&made, &arithmetic);
    says_what_the_full_form_says(&made, "serviceable", &BUT);
    are_complete(&made, &FIGURES, &made.page("larder reproduce serviceable --quick").html());
}
