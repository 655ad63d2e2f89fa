//! The claims of the text of Pelican's evaluation, in numbers and words, each with its place. Nothing here was read off
//! a figure. "Derived" means arithmetic on the text's own numbers; the place gives the arithmetic. Words like "modest"
//! have bounds of ours, which the subject states. A claim that could not miss, or that follows from calibrated numbers,
//! has a basis that states why; all others are findings.

use crate::reproduce::judge::Basis::{Calibrated, Constructed, Unjudged};
use crate::reproduce::judge::ClaimContent::{AtLeast, AtMost, Between, Course, Number};
use crate::reproduce::judge::Unit::{
    Count, Gbit, Gigabytes, Hours, Kilowatts, PerSecond, Percent, Seconds, Terabytes, Times,
};
use crate::reproduce::judge::claims;

claims! {
    // The method.
    STEADY: "steady state is reached before anything is measured", "5, method",
        Course("we wait for steady state"), Count;
    SPAN: "simulated after that", "5, method", Number(24.0), Hours,
        Constructed("configured");
    JUDGED: "no hard limit broken, nobody overtaken by more than u, nothing lost", "2, 3", Course("never"), Count,
        Constructed("every run is judged event by event, and ends the whole command at the first fault");
    BURST_ANSWERED: "prototype, bursts of 15 to 1,920 reads: all are answered", "5, figure 4",
        Course("until all requests had been serviced"), Count,
        Constructed("480 reads a queue of 1,000: none can be refused");
    BURST_CARD: "prototype, bursts: throughput of its one card", "5, figure 3(f)", AtMost(8.5), Gbit,
        Constructed("a cap that is configured");
    BURST_COURSES: "prototype, bursts: throughput, completion, TTFB and service time", "5, figure 4",
        Course("in the figure only"), Count;

    // Throughput, figure 5(a).
    ALMOST_FP: "throughput below FP's, 40 Gb/s, up to 4 requests/s (almost identical)", "5, figure 5(a)",
        AtMost(5.0), Percent;
    WITHIN_FP: "throughput below FP's, 40 Gb/s, at any rate", "5, figure 5(a)", AtMost(20.0), Percent;
    PLATEAU: "throughput past 5 requests/s, 40 Gb/s, both systems", "5, figure 5(a)", Course("plateaus"), Gbit;
    FP_CARD: "throughput of FP at its plateau, 40 Gb/s", "5, figure 5(a)", Number(40.0), Gbit,
        Constructed("a cap that is configured, and more is offered");
    RANDOM_LAYOUT: "throughput of the random layout, any rate", "5, figure 5(a)", AtMost(0.7), Gbit;
    FP_UNBOUNDED: "throughput of FP, unbounded network", "5, figure 5(a); derived: 2 x 64 Gb/s x 15/18",
        Number(106.0), Gbit,
        Constructed("a cap that is configured, and more is offered");
    UNBOUNDED_MOST: "throughput of Pelican, unbounded network: its target", "5, figure 5(a)", AtMost(40.0), Gbit,
        Calibrated("79 % of 5 requests/s are 31.6 Gb/s, by REJECTS_5_UNBOUNDED");

    // Rejects, figure 6.
    NO_REJECTS: "rejects below 5 requests/s, Pelican, 40 Gb/s", "5, figure 6", AtMost(0.0), Percent;
    NO_REJECTS_UNBOUNDED: "rejects below 5 requests/s, Pelican, unbounded", "5, figure 6", AtMost(0.0), Percent;
    NO_REJECTS_FP: "rejects below 5 requests/s, FP, 40 Gb/s", "5, figure 6", AtMost(0.0), Percent,
        Constructed("32 of 40 Gb/s are offered at most, and a queue holds 1,000");
    FP_NEVER: "rejects of FP, unbounded, to 8 requests/s", "5, figure 6", AtMost(0.0), Percent,
        Constructed("64 of 106 Gb/s are offered, and a queue holds 1,000");
    REJECTS_5: "rejects at 5 requests/s, Pelican, 40 Gb/s", "5, figure 6", Number(35.0), Percent;
    REJECTS_5_UNBOUNDED: "rejects at 5 requests/s, Pelican, unbounded", "5, figure 6", Number(21.0), Percent,
        Calibrated("by the mount on a busy server");
    REJECTS_5_FP: "rejects at 5 requests/s, FP, 40 Gb/s (marginally)", "5, figure 6", Number(1.0), Percent;
    REJECTS_8: "rejects at 8 requests/s, Pelican, 40 Gb/s (more than half)", "5, figure 6", AtLeast(50.0), Percent,
        Calibrated("3.95 requests/s are served at most, by REJECTS_5_UNBOUNDED, which refuses 50.6 % of 8");
    WAKING_5: "a class's time spent waking at 5 requests/s, unbounded",
        "derived: 21 % of rejects leave 4 / 3.95 s a request, 0.64 s of them transfer", Number(37.0), Percent,
        Calibrated("arithmetic on REJECTS_5_UNBOUNDED");

    // Service time, figure 5(b).
    SERVICE_LEAST: "service time of 1 GB, lower bound (FP, low load)", "5, figure 5(b)", Number(0.65), Seconds,
        Constructed("1 GB over 15 drives of 105 MB/s, and a seek");
    SERVICE_FALLS: "service time from 0.25 requests/s up", "5, figure 5(b)", Course("decreases"), Seconds;
    SERVICE_CROSSES: "service time below FP's, 40 Gb/s, from", "5, figure 5(b)", Number(4.0), PerSecond;

    // Time to first byte, figure 5(c).
    TTFB_IDLE: "TTFB of an idle rack, average", "5, figure 5(c)", Number(14.2), Seconds,
        Calibrated("by the mount on an idle server");
    TTFB_IDLE_FP: "TTFB of FP at low load (tens of milliseconds: 10 to 100)", "5, figure 5(c)",
        Between(0.01, 0.1), Seconds;
    TTFB_RATIO: "Pelican's mean TTFB over FP's maximum, below 5 requests/s", "5, figure 5(c)", AtLeast(10.0), Times;

    // Rebuild, figure 7.
    REBUILD_TIME: "rebuild of a drive of 4.28 TB, 64,329 blobs, w = 50 %, at its plateau", "5, figure 7(a)",
        AtMost(24.0), Hours;
    REBUILD_GROWS: "rebuild time with the client load", "5, figure 7(a)", Course("grows to a plateau"), Hours;
    REBUILD_CLIENTS: "TTFB of clients in the class that rebuilds, at high request rates (8/s)", "5, figure 7(b)",
        Number(2.2), Times;
    REBUILD_CLIENTS_MOST: "TTFB of clients in the rebuilding class, at any rate", "5, figure 7(b)", AtMost(2.2), Times;
    REBUILD_OTHERS: "TTFB of clients in the other classes", "5, figure 7(b)", Course("no impact"), Times;
    REBUILD_ARITHMETIC: "rebuild time without any switching", "derived: 4.28 TB / 105 MB/s / 0.5", Number(22.6), Hours,
        Constructed("leaves 6 % for switching inside 24 h");

    // The reorder limit u, figure 8.
    U_THROUGHPUT: "throughput, u = 350 GB over u = 50 GB (nearly doubles: 1.8 to 2)", "5, figure 8(a)",
        Between(1.8, 2.0), Times;
    U_MODEST: "throughput, u = 1,000 GB over u = 350 GB (a modest, slight increase: up to a quarter)", "5, figure 8(a)",
        Between(1.0, 1.25), Times;
    U_P99_FALLS: "p99 TTFB from u = 50 to 350 GB", "5, figure 8(a)", Course("falls"), Seconds;
    U_P99_RISES: "p99 TTFB from u = 350 to 1,000 GB", "5, figure 8(a)", Course("rises"), Seconds;
    U_P99_LEAST: "u with the least p99 TTFB", "5, figure 8(a)", Number(350.0), Gigabytes;
    U_REJECTS_50: "rejects at u = 50 GB (nearly)", "5, figure 8(b)", Number(85.0), Percent;
    U_REJECTS_1000: "rejects at u = 1,000 GB (approximately)", "5, figure 8(b)", Number(25.0), Percent;
    FIFO_SPIN_UPS: "group spin-ups a request, u = 0", "3; derived: 11 of 12 groups of a class", Number(0.92), Times,
        Constructed("arithmetic on 12 groups that are read alike");

    // Wear and power, figures 9(a) and 9(b).
    SPIN_UPS_PEAK: "spin-ups are most at", "5, figure 9(a)", Number(0.5), PerSecond;
    SPIN_UPS_LEVEL: "spin-ups past 4 requests/s", "5, figure 9(a)", Course("constant"), Count;
    DATA_YEAR: "data a drive and year, saturated, all stacks that are read", "5, figure 9(a)", Number(99.0), Terabytes;
    DATA_YEAR_PAYLOAD: "the same, counted as payload (15 of 18 stacks)", "5, figure 9(a)", Number(99.0), Terabytes,
        Unjudged("a second reading of the row above, which is missed");
    POWER_PEAKS_AT: "mean power is highest at", "5, figure 9(b)", Number(0.5), PerSecond,
        Constructed("groups stay awake, so that watts follow the starts: SPIN_UPS_PEAK");
    POWER_HIGHEST: "highest mean power", "5, figure 9(b)", Number(3.3), Kilowatts;
    POWER_LOW_END: "mean power at the lowest rate (close to)", "5, figure 9(b)", Number(2.6), Kilowatts;
    POWER_HIGH_END: "mean power at the highest rate (close to)", "5, figure 9(b)", Number(2.6), Kilowatts;
    POWER_PEAK: "peak power", "5, figure 9(b)", Number(3.7), Kilowatts,
        Constructed("that of 96 drives that wake, as four groups do at once some time in a day");
    POWER_ALL_ACTIVE: "power of FP, all drives active", "derived: 1,152 x 9.42 W", Number(10.85), Kilowatts,
        Constructed("the watts that were put in");
    POWER_PEAK_RATIO: "all drives active over Pelican's peak", "5, figure 9(b)", Number(3.0), Times,
        Constructed("the watts that were put in");
    POWER_WAKING: "96 drives that wake", "derived: 96 x 21.53 W + 1,056 x 1.56 W", Number(3.714), Kilowatts,
        Constructed("the watts that were put in");
    POWER_AWAKE: "96 drives that are awake", "derived: 96 x 9.42 W + 1,056 x 1.56 W", Number(2.552), Kilowatts,
        Constructed("the watts that were put in; so 2.6 kW at both ends means that groups stay up until replaced");
    POWER_SHARE: "share of the time that 96 drives wake at 0.5 requests/s",
        "derived: (3.3 - 2.55) / (3.71 - 2.55) kW; about two thirds", Number(64.5), Percent,
        Constructed("arithmetic on POWER_HIGHEST");

    // Boot, section 4.
    BOOT: "boot of an idle rack", "4", AtMost(180.0), Seconds,
        Calibrated("12 switches of the 13.5 s that TTFB_IDLE leaves");
    BOOT_ROUNDS: "rounds of boot, four groups at a time", "4", Number(12.0), Count,
        Constructed("48 groups in four classes");

    // Utilisation, figure 9(c).
    FILL_EQUAL: "rack utilisation at the first reject, equal drives", "5, figure 9(c)", Number(99.998), Percent;
    FILL_VARIED: "rack utilisation at the first reject, drives that vary", "5, figure 9(c)", Number(99.386), Percent;
    FILL_RANDOM: "drives chosen at random inside the group", "5, figure 9(c)", Course("fill worse"), Percent;
    FILL_CLIPPED: "drives that vary, over all of them clipped to 4.2 TB", "5, figure 9(c)", Number(107.7), Percent,
        Constructed("4.55 over 4.2 TB were put in, and 98 % full is near enough");

    // Contradictions in the text.
    AGAINST_WITHIN: "(a) 35 % of rejects, or within 20 % of FP", "5, figures 5(a) and 6", Course("both"), Gbit;
    AGAINST_DATA: "(a) 35 % of rejects, or 99 TB a drive and year", "5, figures 6 and 9(a)", Course("both"), Gbit;
    AGAINST_NEVER: "FP, unbounded: 106 Gb/s, and never a reject", "5, figures 5(a) and 6", Course("both"), Percent;
    AGAINST_U: "(b) rejects from 85 % to 25 %, and throughput that nearly doubles", "5, figures 8(a) and 8(b)",
        Course("both"), Times;
    AGAINST_POWER: "(c) power 3.6 to 4.1 times below all drives active", "5, figure 9(b)", Between(3.6, 4.1), Times;
    AGAINST_SPIN_UP: "(d) all drives spinning up at once", "5, figure 9(b)", Number(25.8), Kilowatts;
    AGAINST_GB: "(e) 5 requests/s of 1 GB fill 40 Gb/s", "5, metrics", Course("only if GB = 10^9 bytes"), Gbit;
}
