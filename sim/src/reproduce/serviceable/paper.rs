//! The claims of the text of Serviceable cold storage, in numbers and words, each with its place. Nothing here was read
//! off a figure. A claim that could not miss has a basis that states why; all others are findings.

use crate::reproduce::judge::Basis::{Calibrated, Constructed, Unjudged};
use crate::reproduce::judge::ClaimContent::{AtLeast, AtMost, Between, Course, Number};
use crate::reproduce::judge::Unit::{Count, Milliseconds, PerSecond, Percent, Seconds, Times, Watts};
use crate::reproduce::judge::claims;

claims! {
    // III: the spin-down manager, redirection.
    STARTS: "starts of a drive a day", "III-B.3", Number(10.0), Count,
        Constructed("30,000 over 8 years of 365 days, by the server's own rule");
    REDIRECTS: "reads that a secondary sends on, if reads go to any replica", "III-A.1", AtMost(1.0), Percent;

    // IV, figure 4: the rate that vanilla sustains.
    RATE_600: "vanilla at 600/s, mean time", "IV, figure 4", AtMost(100.0), Milliseconds,
        Calibrated("to what a request takes of a processor");
    RATE_700: "vanilla, aiming at 700/s", "IV, figure 4", Between(600.0, 700.0), PerSecond,
        Calibrated("to what a request takes of a processor");
    LOAD_LOW: "load of a server at 60/s", "IV", Number(0.5), Count,
        Unjudged("Ceph's figure is Linux's load, which some versions divide by the processors");

    // IV-A, figure 5: normal load.
    POWER_VANILLA: "power of the drives, vanilla", "IV-A, figure 5", Number(124.7), Watts,
        Calibrated("24 drives of 5.196 W");
    POWER_COLD_6: "the same, cold-6", "IV-A, figure 5", Number(100.6), Watts;
    POWER_COLD_12: "the same, cold-12", "IV-A, figure 5", Number(73.8), Watts,
        Calibrated("twelve drives that stand still, of 0.954 W");
    SAVED_COLD_6: "power saved, cold-6", "IV-A", Number(20.0), Percent;
    SAVED_COLD_12: "power saved, cold-12", "IV-A", Number(41.0), Percent, Calibrated("follows from both watts");
    UNTOUCHED: "accesses to cold drives while nothing fails", "IV-A", AtMost(0.0), Count;
    HELD: "requests a second, cold-12", "IV-A, figure 5", Number(300.0), PerSecond;
    ADDED_COLD_6: "median of the mean times, above vanilla's, cold-6", "I, IV-A", Number(18.5), Milliseconds;
    ADDED_COLD_12: "the same, cold-12", "I, IV-A", Number(23.6), Milliseconds;
    MEAN_COLD_6: "mean time, cold-6", "IV-A, figure 5", AtMost(100.0), Milliseconds;
    MEAN_COLD_12: "mean time, cold-12", "IV-A, figure 5", AtMost(100.0), Milliseconds;
    RISES: "mean time with the number of cold OSDs", "IV-A, figure 5", Course("rises"), Milliseconds;

    // IV-B, figure 6: an OSD fails.
    WORST_VANILLA: "an OSD fails: longest request, vanilla", "IV-B, figure 6", Number(2.3), Seconds,
        Calibrated("groups of a failed OSD answer after 2.2 s");
    DIP: "service when an OSD fails", "IV-B, figure 6", Course("worse for a short time, and back"), Milliseconds;
    TAIL_COLD_6: "requests that are no slower than that, cold-6", "IV-B, figure 6", Number(99.985), Percent;
    TAIL_COLD_12: "the same, cold-12", "IV-B, figure 6", Number(99.955), Percent;
    TAIL_RATIO: "slower ones, cold-12 against cold-6", "derived: 0.045 / 0.015", Number(3.0), Times;
    P9999_COLD_6: "99.99th percentile, cold-6", "IV-B", Number(3.8), Seconds;
    P9999_COLD_12: "99.99th percentile, cold-12", "IV-B", Number(5.8), Seconds;
    P99999_COLD_6: "99.999th percentile, cold-6", "IV-B", Number(9.9), Seconds;
    P99999_COLD_12: "99.999th percentile, cold-12", "IV-B", Number(9.9), Seconds;
    MAX_COLD_6: "longest request, cold-6", "IV-B", Number(11.8), Seconds;
    MAX_COLD_12: "longest request, cold-12", "IV-B", Number(10.4), Seconds;
    RECOVERY_VANILLA: "power in recovery, vanilla", "IV-B, figure 6", Number(123.0), Watts;
    RECOVERY_COLD_6: "power in recovery, cold-6", "IV-B, figure 6", Number(113.0), Watts;
    RECOVERY_COLD_12: "power in recovery, cold-12", "IV-B, figure 6", Number(91.4), Watts;
    BACK: "cold drives after the recovery", "IV-B", Course("stand still again"), Watts;
    ALL_MOVED: "slower ones, if all that is older than two minutes has moved", "ours", Course("no claim of the paper"),
        Count, Unjudged("a choice of ours that decides how many wait");
    SECOND_HOT: "the longest, if the second replica stays hot as well", "III-B.1", Course("shorter tails"), Seconds;

    // IV-C, figure 7: migration with a scrub, at full load.
    MIGRATION_COLD_6: "scrub at full load, least a second, cold-6", "IV-C, figure 7", AtLeast(100.0), PerSecond;
    MIGRATION_COLD_12: "the same, cold-12", "IV-C, figure 7", AtLeast(100.0), PerSecond;
    MIGRATING_COLD_6: "highest mean of 10 s after the first, cold-6", "IV-C, figure 7", AtMost(242.0), Milliseconds;
    MIGRATING_COLD_12: "the same, cold-12", "IV-C, figure 7", AtMost(242.0), Milliseconds;
    SCRUB_LONGER: "a scrub takes longer with migration", "IV-C", Course("longer, and requests fewer"), Times;
    MIGRATION_POWER: "power during the migration, cold-12", "IV-C", Number(124.7), Watts;
    LOW_SCRUB: "mean time in a scrub at 60/s, cold-12", "IV-C", AtMost(100.0), Milliseconds;
    MIGRATION_RATE: "copies moved a second at 60/s and at full load, cold-12", "ours", Course("no number"), PerSecond,
        Unjudged("the text counts no copies");

    // Contradictions in the text.
    NEWEST: "requests that the newest 8 % draw", "II-C, IV and I", Number(99.8), Percent;
    ADDED: "time added", "I, IV-A", Course("\"10 to 20 ms\", and a median of 23.6 ms"), Milliseconds;
    BEFORE: "power of cold-6 before the failure", "IV-A, IV-B", Number(105.0), Watts;
    ASLEEP: "power of a drive that stands still", "derived, IV-A", Course("cold-6 1.18 W, cold-12 0.95 W"), Watts;
}
