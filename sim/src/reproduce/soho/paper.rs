//! The claims of the text of SOHO, in numbers and words, each with its place. Nothing here was read off a figure. A
//! claim that could not miss has a basis that states why; all others are findings. Nothing was calibrated.

use crate::reproduce::judge::Basis::{Constructed, Unjudged};
use crate::reproduce::judge::ClaimContent::{AtMost, Course, Number};
use crate::reproduce::judge::Unit::{Count, Gigabytes, Mbytes, Percent, Seconds, Times};
use crate::reproduce::judge::claims;

claims! {
    // IV-B, figure 3: 160 GB each, mean response time of all requests, on average over DSA, SWA and GIA.
    SSD_DISK: "pure SSD against pure HDD, better by", "IV-B, figure 3", Number(79.1), Percent;
    SOHO_DISK: "SOHO against pure HDD, better by", "abstract, V", Number(78.25), Percent;
    SOHO_SSD: "SOHO against pure SSD, worse by", "abstract", AtMost(3.11), Percent;
    SOHO_DSA: "the same of DSA", "IV-B, figure 3", AtMost(3.0), Percent;
    SOHO_SWA: "the same of SWA", "IV-B, figure 3", AtMost(3.0), Percent;
    SOHO_ONE_PACKAGE: "SOHO against a pure SSD of one package", "ours", Course("no claim of the paper"), Percent,
        Unjudged("a second reading of SOHO_SSD");
    SSD_BEST: "pure SSD against the other two, each application", "IV-B, figure 3", Course("always better"), Times;
    GIA_WRITES: "GIA's writes in SOHO against pure SSD", "IV-B, figure 3", Course("worse"), Percent;

    // IV-C, figure 4: the critical threshold.
    THRESHOLD: "threshold of 0.2 to 0.8, mean response time better by", "IV-C, figure 4", Number(15.6), Percent;
    THRESHOLDS: "mean response time with the threshold, each application", "IV-C, figure 4",
        Course("falls as it rises"), Seconds;
    MOVES_200: "moves of GIA's batch at 0.2", "IV-C", Number(2.0), Count,
        Constructed("16 GB over 0.2 of 32 GB, if a move leaves less than 1.6 GB behind");
    MOVES_400: "the same at 0.4", "IV-C", Number(1.0), Count, Constructed("16 GB over 0.4 of 32 GB");
    MOVES_800: "the same at 0.8", "IV-C", AtMost(0.0), Count, Constructed("16 GB are below 0.8 of 32 GB");
    PACED: "the same moves paced, 0.2 to 0.8 better by", "ours", Course("no claim of the paper"), Percent,
        Unjudged("the policy that the server is to run");
    PACED_WAIT: "the longest a request waits, blocked and paced", "ours", Course("no claim of the paper"), Seconds,
        Unjudged("the critical threshold of 0.2");
    ORDER: "reads from the warehouse at 0.2, paced: processed data first, and by age alone", "ours",
        Course("no claim of the paper"), Count, Unjudged("what the order of moving buys here");
    SSD_SIZE: "workshops of 8, 16 and 32 GB, mean response time", "Table I", Course("no words"), Seconds,
        Unjudged("the text lists the sizes and says nothing of them");

    // IV-D, figure 5: synthetic traces.
    READS_DISK: "reads of 4, 40 and 400 KB, pure HDD", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    READS_SSD: "the same, pure SSD", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    READS_SOHO: "the same, SOHO", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    WRITES_DISK: "writes of 4, 40 and 400 KB, pure HDD", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    WRITES_SSD: "the same, pure SSD", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    WRITES_SOHO: "the same, SOHO", "IV-D, figure 5", Course("40 a little longer, 400 far"), Times;
    LARGE_WRITES: "writes of 400 KB against 40 KB, SSD and SOHO", "IV-D, figure 5", Number(91.7), Percent,
        Unjudged("\"performance decreases\", and \"mean response time decreases 91.7 %\": of what, and which way?");
    LARGE_SIMILAR: "SOHO against pure SSD at 400 KB", "IV-D, figure 5", Course("very similar"), Percent;

    // IV-E, figure 6: blocks of moves.
    BLOCKS: "moves in larger blocks, 2, 4 and 8 GB", "IV-E, figure 6", Course("always faster"), Seconds;
    BLOCKS_LARGE: "moves in blocks of 40 and of 400 KB", "IV-E, figure 6", Course("small differences"), Times;
    BLOCKS_SMALL: "blocks of 4 KB, the rate of 8 GB below that of 2 GB by", "IV-E, figure 6", Number(16.7), Percent;
    RATES: "the rates of moves in blocks of 4, 40 and 400 KB", "ours", Course("no words"), Mbytes,
        Unjudged("figure 6 has no number of it in words");

    // Contradictions in the text.
    THREE_SHARES: "79.1 %, 78.25 % and 3.11 %", "abstract, IV-B", Course("one evaluation"), Percent;
    REGULAR: "a regular threshold of 0.3", "Table I", Course("below the critical one"), Count;
    CAPACITY: "the disk of 286,749,479 blocks", "Table I", Number(128.0), Gigabytes;
}
