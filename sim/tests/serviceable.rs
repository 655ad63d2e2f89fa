//! Serviceable cold storage beside a cluster without it: what the paper's text says comes out, or is missed in the way
//! that the docs say.

#![allow(clippy::unwrap_used)]

mod reproduced;

use reproduced::{are_complete, contradict, says_what_the_full_form_says};
use sim::reproduce::judge::Verdict;
use sim::reproduce::serviceable::{FIGURES, Reproduction, Runs};
use std::num::NonZeroUsize;

/// Rows that the number of objects or the time decides.
const BUT: [(&str, &str); 0] = [];

#[test]
fn no_cold_drive_is_touched_and_the_watts_come_out() {
    let made = Reproduction::of(Runs::new(true, NonZeroUsize::new(2).unwrap(), &|_, _| {}));
    for row in &made.rows {
        println!("{:20} {:>12} {:>28} {:>10} {:?} {}", row.id, row.paper, row.ours, row.differs, row.verdict, row.note);
    }
    println!("{}", made.sensitivity().csv());
    println!("{}", made.points().csv());
}
