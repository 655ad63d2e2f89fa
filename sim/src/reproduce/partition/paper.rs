//! The claims of the text of BuffPack and OffPack, in numbers and words, each with its place. Nothing here was read off
//! a figure. "Derived" means arithmetic on the text's own formulas and its Table III; the place gives the arithmetic. A
//! claim that could not miss, or that is not in the paper, has a basis that states why; all others are findings.

use crate::reproduce::judge::Basis::{Constructed, Unjudged};
use crate::reproduce::judge::ClaimContent::{AtMost, Course, Number};
use crate::reproduce::judge::Unit::{Count, Gigabytes, Hours, Percent, Times};
use crate::reproduce::judge::claims;

claims! {
    // Table III: 100 TB, 12 groups, 8 GB, 1 GB/s, 10 s.
    BASELINE_HOURS: "time of the baseline at the defaults", "derived: (1) and Table III", Number(472.2), Hours,
        Constructed("arithmetic on its switches, which every group has once for each full buffer");
    BUFFPACK_HOURS: "time of BuffPack at the defaults", "derived: (6) and Table III", Number(246.5), Hours,
        Constructed("arithmetic on BUFFPACK_SWITCHES");
    OFFPACK_HOURS: "time of OffPack at the defaults", "derived: (7) and Table III", Number(141.2), Hours,
        Constructed("arithmetic on OFFPACK_SWITCHES");
    BASELINE_SWITCHES: "switches of the baseline at the defaults", "derived: K S_D / S_M", Number(150_000.0), Count,
        Constructed("every group, once for each full buffer");
    BUFFPACK_SWITCHES: "switches of BuffPack at the defaults", "(5)", Number(68_750.0), Count;
    OFFPACK_SWITCHES: "switches of OffPack at the defaults", "derived: S_D / S_M", Number(12_500.0), Count;
    GAIN: "baseline over the faster of both, at the defaults", "derived: (1) over (7)", Number(3.34), Times,
        Constructed("arithmetic on the rows above");

    // V-A, figure 4: data size.
    DATA_LINEAR: "times with the data size", "V-A, figure 4", Course("grow almost linear"), Hours;
    DATA_CHOICE: "the fastest method with the data size", "V-A, V-E", Course("does not depend on it"), Hours,
        Constructed("follows from DATA_LINEAR");

    // V-B, figure 5: buffer.
    SWITCHES_INVERSE: "switches with the buffer, all three methods", "V-B, figure 5",
        Course("inversely proportional"), Count;
    CROSSOVER: "buffer at which BuffPack becomes faster than OffPack", "V-B, figure 5", Number(25.0), Gigabytes;
    CROSSOVER_DERIVED: "the same by the formulas", "derived: (6) = (7)", Number(24.5), Gigabytes,
        Constructed("CROSSOVER once more, against the text's formulas");
    SMALL_BUFFERS: "OffPack, for buffers below 25 GB", "V-B, figure 5", Course("is the fastest"), Hours,
        Constructed("follows from CROSSOVER, where there is one");
    LARGE_BUFFERS: "OffPack, for larger buffers", "V-B, figure 5", Course("is slower than BuffPack"), Hours,
        Constructed("follows from CROSSOVER, where there is one");
    BASELINE_INFERIOR: "the baseline against BuffPack, any buffer", "V-B, figure 5", Course("is inferior"), Hours;

    // V-C, figure 6: groups.
    GROUPS_OFFPACK: "OffPack's time with the number of groups", "V-C, figure 6",
        Course("not affected as much as the others'"), Times;
    GROUPS_LINEAR: "the baseline's and BuffPack's time with the number of groups", "derived: (1), (6)",
        Course("grow linearly"), Hours;

    // V-D, figure 7: switch latency.
    LATENCY_OFFPACK: "OffPack, where the latency is high", "V-D, figure 7", Course("performs better than the others"),
        Hours;
    LATENCY_TOTAL: "time switching over switches x latency", "V-D", Number(1.0), Times,
        Constructed("a switch takes what was put in");

    // V-E: the models.
    MODEL_BASELINE: "formula (1) against the simulation, figures 4 to 7, at most", "V-E (accurately: 5 %)",
        AtMost(5.0), Percent;
    MODEL_BUFFPACK: "formula (6) against the simulation, figures 4 to 7, at most", "V-E (accurately: 5 %)",
        AtMost(5.0), Percent;
    MODEL_OFFPACK: "formula (7) against the simulation, figures 4 to 7, at most", "V-E (accurately: 5 %)",
        AtMost(5.0), Percent;
    MODEL_CHOOSES: "the fastest method can be chosen by the models", "V-E", Course("before execution"), Hours;

    // V-F, figure 8: skew.
    INPUT_GAIN: "the gain of both with skewed input", "V-F, figure 8", Course("reduces"), Times;
    INPUT_SWITCHES: "switches of both with skewed input", "V-F, figure 8", Course("more"), Count;
    OUTPUT_BUFFPACK: "BuffPack with skewed output, s up to 1", "V-F, figure 8", Course("slightly better"), Hours;
    OUTPUT_BUFFPACK_2: "BuffPack with skewed output, s = 2", "V-F, figure 8", Course("slightly better"), Hours,
        Unjudged("a second reading of the row above, which is missed: the text names no s");
    OUTPUT_OFFPACK: "OffPack with skewed output", "V-F, figure 8", Course("degrades"), Hours;

    // Compared with disks that need no switch.
    DISKS: "both over an HDD cluster without switches", "VI", Course("comparable"), Times;

    // Contradictions in the text.
    AGAINST_GAIN: "data partitioning is accelerated by", "abstract", Number(3.5), Times;
    AGAINST_ORDERS: "both are faster than the baseline by", "I", Course("orders of magnitude"), Times;
    AGAINST_DAYS: "100 TB on 12 groups at 1 GB/s, our strategies", "I", Course("two days"), Hours;
    AGAINST_WEEKS: "100 TB on 12 groups at 1 GB/s, the baseline", "I", Course("two weeks"), Hours;

    // Not in the paper.
    ERRORS: "the paper's formulas against the simulation, figures 4 to 8", "not in the paper, but for V-E", Course("-"),
        Percent;
    ERRORS_OURS: "ours, the better models against the simulation, figures 4 to 8, at most", "not in the paper",
        AtMost(5.0), Percent,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_HOURS: "ours, time of FillPack at the defaults", "not in the paper, but (7)", Number(141.2), Hours,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_SWITCHES: "ours, switches of FillPack at the defaults", "not in the paper, but S_D / S_M",
        Number(12_500.0), Count,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_CROSSOVER: "ours, buffer at which BuffPack becomes faster than FillPack", "not in the paper, but V-B",
        Number(24.5), Gigabytes,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_GROUPS: "ours, FillPack's time with the number of groups", "not in the paper, but V-C",
        Course("grows less than OffPack's"), Times,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_OUTPUT: "ours, FillPack with skewed output", "not in the paper, but V-F", Course("degrades"), Hours,
        Unjudged("ours, and no claim of the paper");
    FILLPACK_OFFPACK: "ours, FillPack against OffPack, figures 4 to 8", "not in the paper", Course("is no slower"),
        Percent,
        Unjudged("ours, and no claim of the paper");
    TOURPACK: "ours, TourPack, where both of theirs take the same time", "not in the paper", Course("-"), Percent;
    BOUND: "ours, the least that any strategy can take there", "not in the paper", Course("-"), Percent;
}
