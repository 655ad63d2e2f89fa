//! The claims of the text of Workload Shifting, in numbers and words, each with its place. Nothing here was read off a
//! figure. A claim that could not miss, or that was calibrated to, has a basis that states why; all others are
//! findings.

use crate::reproduce::judge::Basis::{Calibrated, Constructed, Unjudged};
use crate::reproduce::judge::ClaimContent::{AtMost, Course, Number};
use crate::reproduce::judge::Unit::{Count, Mbytes, Percent, Seconds, Times};
use crate::reproduce::judge::claims;

claims! {
    // II and IV-B, figures 2 and 11: 10 GB of 100 KB values, random keys, four disks, logs of 5 MB, synced.
    SHIFTING_ALONE: "Workload Shifting, puts alone", "IV-B, figure 11", Number(320.0), Seconds,
        Calibrated("one of the two points of a synced put's cost");
    SHIFTING_BOTH: "Workload Shifting, with transformation", "IV-B, figure 11", Number(329.0), Seconds,
        Constructed("SHIFTING_RISE, on the calibrated time");
    SHIFTING_RISE: "Workload Shifting, longer with transformation", "IV-B, figure 11", Number(2.7), Percent;
    RAID_ALONE: "Log+RAID0, puts alone", "II, figures 2 and 11", Number(522.0), Seconds,
        Calibrated("the fixed cost of a synced put on a stripe");
    RAID_BOTH: "Log+RAID0, with transformation", "II, figures 2 and 11", Number(813.0), Seconds,
        Constructed("RAID_RISE, on the calibrated time");
    RAID_RISE: "Log+RAID0, longer with transformation", "II, IV-B", Number(55.7), Percent,
        Unjudged("it goes by the size of a request in the background, which the text does not give: 36 to 101 %");

    // IV-B, figure 10: throughput under random keys.
    SHIFTING_1000: "Workload Shifting, 1,000 KB", "IV-B, figure 10", Number(38.6), Mbytes,
        Calibrated("the other point of a synced put's cost, which is taken without transformation");
    SHIFTING_100: "Workload Shifting, 100 KB", "IV-B, figure 10", Number(31.1), Mbytes,
        Constructed("SHIFTING_RISE once more");
    SHIFTING_10: "Workload Shifting, 10 KB", "IV-B, figure 10", Number(6.3), Mbytes;
    LEVELDB_1000: "LevelDB, 1,000 KB", "IV-B, figure 10", Number(4.7), Mbytes;
    LEVELDB_100: "LevelDB, 100 KB", "IV-B, figure 10", Number(2.5), Mbytes;
    LEVELDB_10: "LevelDB, 10 KB", "IV-B, figure 10", Number(2.2), Mbytes;
    LEVELDB_RANDOM: "LevelDB under random keys, the largest throughput", "II, figure 3", AtMost(32.0), Mbytes;
    LEVELDB_SEQUENTIAL: "LevelDB under sequential keys, the largest throughput", "II, figure 3", AtMost(32.0), Mbytes;
    LEVELDB_KEYS: "LevelDB under sequential keys against random ones", "II, figure 3",
        Course("is distinctly faster"), Mbytes;
    FASTER: "Workload Shifting against LevelDB, random keys", "IV-B, figure 10", Course("is faster"), Mbytes;
    SEQUENTIAL: "Workload Shifting and LevelDB under sequential keys", "IV-B",
        Course("the same throughput"), Mbytes;

    // IV-C: sensitivity.
    VALUES_SHIFTING: "Workload Shifting's rise with the value size", "IV-C, values of 1, 50 and 100 KB",
        Course("does not change"), Percent;
    VALUES_RAID: "Log+RAID0's rise with the value size", "IV-C, values of 1, 50 and 100 KB",
        Course("falls as values grow"), Percent,
        Unjudged("smaller values take longer to log, which by the text's own reasoning means less contention");
    DISKS_SHIFTING: "Workload Shifting's time with 4 to 10 disks", "IV-C", Course("unchanged"), Seconds,
        Constructed("one disk takes the log, however many there are");
    DISKS_RAID: "Log+RAID0's time with 4 to 10 disks", "IV-C", Course("falls"), Seconds;
    DISKS_LEVELDB: "LevelDB's time with 4 to 10 disks", "IV-C", Course("falls"), Seconds;
    DISKS_RISE: "Log+RAID0's rise with 4 to 10 disks", "IV-C", Course("falls"), Percent;
    DISKS_ABOVE: "Log+RAID0's rise against Workload Shifting's, any number of disks", "IV-C", Course("stays above"),
        Percent;
    LOG_SHIFTING: "Workload Shifting's time with logs of 5 to 200 MB", "IV-C", Course("unchanged"), Seconds;
    LOG_RAID: "Log+RAID0's time with logs of 5 to 200 MB", "IV-C", Course("unchanged"), Seconds;

    FEW_DISKS: "disks with which transformation interferes as little as with four", "IV-C",
        Course("only four or more"), Count;

    // III-C, figures 6 to 8: the alternation of stages.
    IDEAL: "stages of a disk that overlap, logging as long as transformation", "III-C, figure 6", AtMost(0.0), Count;
    ACCEPTABLE: "stages of a disk that overlap, logging longer", "III-C, figure 7", AtMost(0.0), Count;
    BAD: "stages of the disks, logging shorter", "III-C, figure 8", Course("overlap"), Count;

    // III-C, figure 9: without sync.
    UNSYNCED: "logs of 5 to 200 MB without sync, whose transformation outlasts the logging", "III-C, figure 9",
        Course("all"), Count;
    SYNCED: "logs of 5 to 200 MB with sync, whose transformation outlasts the logging", "III-C",
        Course("none"), Count;

    // IV-D: energy. The text assumes that an active disk draws W, and an idle one nothing.
    ENERGY_IDLE: "Workload Shifting's energy over N W T, by the text's assumptions", "IV-D, formula (2)",
        AtMost(1.0), Times;
    ENERGY_LESS: "Workload Shifting's energy against Log+RAID0's, by the text's assumptions", "IV-D",
        Course("less"), Times;
    ENERGY_SHIFTING: "Workload Shifting's energy, more with transformation, by the text's assumptions", "IV-D",
        AtMost(2.65), Percent;
    ENERGY_RAID: "Log+RAID0's energy, more with transformation", "IV-D", Number(55.69), Percent,
        Constructed("the text multiplies RAID_RISE by a constant power");
    ENERGY_ASLEEP: "Workload Shifting's energy with idle disks asleep, by disks", "not in the paper",
        Course("not in the paper"), Times,
        Unjudged("the text's idle disks draw nothing and are there at once");

    // Contradictions.
    TIMES_TWICE: "the times with transformation, given twice", "IV-B against IV-C", Number(331.3), Seconds;
    RISE_THRICE: "Workload Shifting's rise, given three times", "IV-B, IV-D", Number(2.7), Percent;
    SEQUENTIAL_LIMIT: "LevelDB's limit of 32 MB/s, and its equality with 38.6 MB/s", "II against IV-B",
        AtMost(32.0), Mbytes;
}
