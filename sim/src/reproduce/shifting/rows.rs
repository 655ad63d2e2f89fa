//! The rows: each claim of the text with the results of the runs.

use super::paper;
use super::runs::{ARRAYS, DISKS, FEW, IDEAL_LOG_MB, LOG_MB, LOGS_MB, LONG_LOG_MB, Put, Runs, SIZES_KB};
use super::runs::{SeedRuns, System, Variant};
use crate::report::{range, short};
use crate::reproduce::judge::{LEVEL, NEAR_POINTS, Row};
use crate::reproduce::sweep::{STEP, from_to, most, spread};
use crate::shifting::StageSpan;
use System::{Basic, LevelDb, LogRaid0, Shifting};
use Variant::{Alone, Both, Doubled, Far, Paced, Sequential, ShortReads, Sleeping, Uncached, Unsynced};

const HERE: (u32, u64) = (DISKS, LOG_MB);

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts = [impact, throughput, sequential, values, disks, few_disks, logs, stages, energy, contradictions];
    parts.iter().flat_map(|part| part(runs)).collect()
}

fn impact(runs: &Runs) -> Vec<Row> {
    let seconds = |system, variant| runs.sample(move |of| of.of(system, variant, 100).seconds());
    let rise = |system| runs.sample(move |of| of.rise(system, 100, HERE) * 100.0);
    let over = |system, variant| {
        let share = |of: SeedRuns<'_>| of.of(system, variant, 100).seconds() / of.of(system, Alone, 100).seconds();
        percent(runs.mean(share) - 1.0)
    };
    vec![
        paper::SHIFTING_ALONE.judge(seconds(Shifting, Alone)),
        paper::SHIFTING_BOTH.judge(seconds(Shifting, Both)),
        paper::SHIFTING_RISE.judge(rise(Shifting)).noted(format!(
            "the first put of a log finds the arm elsewhere: a seek and a part of a rotation for each log; with the \
             average seek of Table II {}; the basic model {}",
            over(Shifting, Far),
            over(Basic, Both)
        )),
        paper::RAID_ALONE.judge(seconds(LogRaid0, Alone)),
        paper::RAID_BOTH.judge(seconds(LogRaid0, Both)),
        paper::RAID_RISE.judge(rise(LogRaid0)).noted(format!(
            "it hangs on the size of requests in the background: {} with 512 KiB instead of 256, {} with reads of \
             128 KiB from one disk; with the average seek of Table II {}",
            over(LogRaid0, Doubled),
            over(LogRaid0, ShortReads),
            over(LogRaid0, Far)
        )),
    ]
}

fn throughput(runs: &Runs) -> Vec<Row> {
    let mb = |system, variant, kb| runs.sample(move |of| of.of(system, variant, kb).mb_per_s());
    let amplified = |kb| {
        format!(
            "{:.1} bytes written for each byte; {} MB/s if no table stayed in memory, {} with reads of 128 KiB from \
             one disk",
            runs.mean(|of| of.of(LevelDb, Both, kb).amplification()),
            short(mb(LevelDb, Uncached, kb).mean()),
            short(mb(LevelDb, ShortReads, kb).mean())
        )
    };
    let faster = |of: SeedRuns<'_>| {
        SIZES_KB.map(|kb| of.of(Shifting, Both, kb).mb_per_s() / of.of(LevelDb, Both, kb).mb_per_s())
    };
    vec![
        paper::SHIFTING_1000.judge(mb(Shifting, Alone, 1_000)),
        paper::SHIFTING_100.judge(mb(Shifting, Both, 100)),
        paper::SHIFTING_10.judge(mb(Shifting, Both, 10)).noted(
            "320 s, 38.6 and 6.3 MB/s are 3.1, 25.9 and 1.6 ms a put: no fixed cost and cost for each byte give all \
             three; those that give the first two give 0.8 ms here",
        ),
        paper::LEVELDB_1000.judge(mb(LevelDb, Both, 1_000)).noted(amplified(1_000)),
        paper::LEVELDB_100.judge(mb(LevelDb, Both, 100)).noted(amplified(100)),
        paper::LEVELDB_10.judge(mb(LevelDb, Both, 10)).noted(amplified(10)).noted(
            "2.2 MB/s are 4.5 ms a put, which by the text's own 522 s is a synced put on the stripe and no compaction",
        ),
        paper::LEVELDB_RANDOM
            .judge(runs.sample(|of| most(SIZES_KB.into_iter().map(|kb| of.of(LevelDb, Both, kb).mb_per_s())))),
        paper::FASTER.seen(
            runs.follows(|of| faster(of).iter().all(|times| *times > 1.0)),
            format!("{} times", from_to(range(faster(runs.first())))),
        ),
    ]
}

fn sequential(runs: &Runs) -> Vec<Row> {
    let mb = |of: SeedRuns<'_>, system, variant, kb| of.of(system, variant, kb).mb_per_s();
    let gain = |of: SeedRuns<'_>| SIZES_KB.map(|kb| mb(of, LevelDb, Sequential, kb) / mb(of, LevelDb, Both, kb));
    let over = |of: SeedRuns<'_>| SIZES_KB.map(|kb| mb(of, Shifting, Sequential, kb) / mb(of, LevelDb, Sequential, kb));
    let same = |of: SeedRuns<'_>| over(of).iter().all(|times| (times - 1.0).abs() <= LEVEL);
    let times = format!("Workload Shifting {} times LevelDB's", from_to(range(over(runs.first()))));
    let alone = runs.first().of(LogRaid0, Alone, 100);
    vec![
        paper::LEVELDB_SEQUENTIAL
            .judge(runs.sample(|of| most(SIZES_KB.into_iter().map(|kb| mb(of, LevelDb, Sequential, kb)))))
            .noted("at 1,000 KB, where each disk of the stripe takes a quarter of a put"),
        paper::LEVELDB_KEYS.seen(
            runs.follows(|of| gain(of).iter().all(|times| *times > 1.0 + LEVEL)),
            format!("{} times", from_to(range(gain(runs.first())))),
        ),
        paper::SEQUENTIAL.seen(runs.follows(same), times).noted(format!(
            "by the text's own 522 s a synced put of 100 KB on the stripe takes {:.1} ms, which is {} MB/s; its log on \
             one disk takes 3.1 ms",
            alone.seconds() * 1e3 / alone.run.puts as f64,
            short(alone.mb_per_s())
        )),
    ]
}

fn values(runs: &Runs) -> Vec<Row> {
    let sizes = runs.first().values_kb();
    let rises = |of: SeedRuns<'_>, system| sizes.map(|kb| of.rise(system, kb, HERE));
    let shown = |system| {
        let each = sizes.iter().map(|kb| format!("{kb} KB {}", percent(runs.mean(|of| of.rise(system, *kb, HERE)))));
        each.collect::<Vec<_>>().join(", ")
    };
    let level = |rises: [f64; 3]| spread(range(rises.map(|rise| 1.0 + rise))) <= STEP;
    vec![
        paper::VALUES_SHIFTING
            .seen(runs.follows(|of| level(rises(of, Shifting))), shown(Shifting))
            .noted("what a log of 5 MB costs is the same for all values, and less of a time that is longer"),
        paper::VALUES_RAID.seen(runs.follows(|of| falls(&rises(of, LogRaid0))), shown(LogRaid0)),
    ]
}

/// True if each value is significantly lower than the one before.
fn falls(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[1] < pair[0] * (1.0 - STEP))
}

fn disks(runs: &Runs) -> Vec<Row> {
    let times = |of: SeedRuns<'_>, system| ARRAYS.map(|disks| of.at(system, Both, 100, (disks, LOG_MB)).seconds());
    let rises = |of: SeedRuns<'_>, system| ARRAYS.map(|disks| of.rise(system, 100, (disks, LOG_MB)));
    let seconds = |system| in_seconds(ARRAYS, |of, at| times(of, system)[at], runs);
    let shown = |system| {
        let each = (0..ARRAYS.len()).map(|at| percent(runs.mean(|of| rises(of, system)[at])));
        each.collect::<Vec<_>>().join(", ")
    };
    let above =
        |of: SeedRuns<'_>| rises(of, LogRaid0).iter().zip(rises(of, Shifting)).all(|(raid, shifting)| *raid > shifting);
    vec![
        paper::DISKS_SHIFTING.seen(runs.follows(|of| spread(range(times(of, Shifting))) <= LEVEL), seconds(Shifting)),
        paper::DISKS_RAID.seen(runs.follows(|of| falls(&times(of, LogRaid0))), seconds(LogRaid0)),
        paper::DISKS_LEVELDB.seen(runs.follows(|of| falls(&times(of, LevelDb))), seconds(LevelDb)),
        paper::DISKS_RISE.seen(runs.follows(|of| falls(&rises(of, LogRaid0))), shown(LogRaid0)),
        paper::DISKS_ABOVE.seen(runs.follows(above), format!("{} against {}", shown(LogRaid0), shown(Shifting))),
    ]
}

fn in_seconds<const N: usize, T>(_: [T; N], of: impl Fn(SeedRuns<'_>, usize) -> f64, runs: &Runs) -> String {
    let each = (0..N).map(|at| format!("{:.1}", runs.mean(|seed| of(seed, at))));
    each.collect::<Vec<_>>().join(", ") + " s"
}

/// Both models on one to four disks.
fn few_disks(runs: &Runs) -> Vec<Row> {
    let rise = |of: SeedRuns<'_>, system, disks| of.rise(system, 100, (disks, LOG_MB)) * 100.0;
    let near = |of: SeedRuns<'_>, disks| rise(of, Shifting, disks) <= rise(of, Shifting, DISKS) + NEAR_POINTS;
    let shown = |system| {
        let each = FEW.map(|disks| format!("{:.1}", runs.mean(|of| rise(of, system, disks))));
        each.join(", ")
    };
    vec![
        paper::FEW_DISKS
            .seen(
                runs.follows(|of| FEW.iter().all(|disks| near(of, *disks) == (*disks >= DISKS))),
                format!("one to four: {} %", shown(Shifting)),
            )
            .noted(format!(
                "the basic model {} %; where each put is synced a log is a tree long before the next one is full, so \
                 that the disk for the fourth stage, Idle, is not needed",
                shown(Basic)
            )),
    ]
}

fn logs(runs: &Runs) -> Vec<Row> {
    let times = |of: SeedRuns<'_>, system| LOGS_MB.map(|log_mb| of.at(system, Both, 100, (DISKS, log_mb)).seconds());
    let seconds = |system| in_seconds(LOGS_MB, |of, at| times(of, system)[at], runs);
    let level = |of: SeedRuns<'_>, system| spread(range(times(of, system))) <= LEVEL;
    let synced = |of: SeedRuns<'_>| LOGS_MB.map(|log_mb| bad_share(of.at(Shifting, Both, 100, (DISKS, log_mb))));
    let unsynced =
        |of: SeedRuns<'_>, kb| LOGS_MB.map(|log_mb| bad_share(of.at(Shifting, Unsynced, kb, (DISKS, log_mb))));
    let shown = |shares: [f64; 4]| shares.map(percent).join(", ");
    let sizes = runs.first().unsynced_kb();
    let each = sizes.iter().map(|kb| format!("{kb} KB: {}", shown(unsynced(runs.first(), *kb))));
    let all = |of: SeedRuns<'_>| sizes.iter().all(|kb| unsynced(of, *kb).iter().all(|share| *share > 0.9));
    vec![
        paper::LOG_SHIFTING.seen(runs.follows(|of| level(of, Shifting)), seconds(Shifting)),
        paper::LOG_RAID.seen(runs.follows(|of| level(of, LogRaid0)), seconds(LogRaid0)),
        paper::UNSYNCED.seen(runs.follows(all), each.collect::<Vec<_>>().join("; ")),
        paper::SYNCED
            .seen(runs.follows(|of| synced(of).iter().all(|share| *share == 0.0)), shown(synced(runs.first()))),
    ]
}

/// The share of full logs whose predecessor was not a tree yet.
fn bad_share(put: &Put) -> f64 {
    alternation_share(put, 2)
}

fn alternation_share(put: &Put, which: usize) -> f64 {
    let alternations = put.outcome.shift.alternations;
    alternations[which] as f64 / alternations.iter().sum::<u64>().max(1) as f64
}

/// The number of traced stages that begin before the previous stage of the same disk has ended.
fn overlaps(put: &Put) -> usize {
    let disks = 0..put.run.disks as usize;
    disks
        .map(|disk| {
            let mut spans: Vec<&StageSpan> = put.outcome.stages.iter().filter(|span| span.disk == disk).collect();
            spans.sort_by_key(|span| span.from);
            spans.windows(2).filter(|pair| pair[1].from < pair[0].to).count()
        })
        .sum()
}

fn stages(runs: &Runs) -> Vec<Row> {
    fn ideal(of: SeedRuns<'_>) -> &Put {
        of.at(Shifting, Paced, 100, (DISKS, IDEAL_LOG_MB))
    }
    fn acceptable(of: SeedRuns<'_>) -> &Put {
        of.of(Shifting, Both, 100)
    }
    fn bad(of: SeedRuns<'_>) -> &Put {
        of.of(Shifting, Unsynced, 100)
    }
    let traced = |put: &Put| put.outcome.stages.len();
    vec![
        paper::IDEAL.judge(runs.sample(|of| overlaps(ideal(of)) as f64)).noted(format!(
            "of {} in the first minute; {} of the logs found the transformation before as long as themselves",
            traced(ideal(runs.first())),
            percent(runs.mean(|of| alternation_share(ideal(of), 0)))
        )),
        paper::ACCEPTABLE
            .judge(runs.sample(|of| overlaps(acceptable(of)) as f64))
            .noted(format!("of {} in the first minute", traced(acceptable(runs.first())))),
        paper::BAD.seen(
            runs.follows(|of| overlaps(bad(of)) > 0),
            format!("{} of {} overlap", overlaps(bad(runs.first())), traced(bad(runs.first()))),
        ),
    ]
}

/// A run with the log size for sleeping disks.
fn long(of: SeedRuns<'_>, variant: Variant, disks: u32) -> &Put {
    of.at(Shifting, variant, 100, (disks, LONG_LOG_MB))
}

fn energy(runs: &Runs) -> Vec<Row> {
    let joules = |of: SeedRuns<'_>, system, variant| of.of(system, variant, 100).outcome.energy_mj as f64;
    let more = |system| move |of: SeedRuns<'_>| (joules(of, system, Both) / joules(of, system, Alone) - 1.0) * 100.0;
    let active = |of: SeedRuns<'_>, variant| of.of(Shifting, variant, 100).outcome.busy.as_secs_f64();
    // All disks of the stripe are active all the time (IV-D).
    let over = |of: SeedRuns<'_>| active(of, Both) / (of.of(LogRaid0, Both, 100).seconds() * f64::from(DISKS));
    let saved = ARRAYS.map(|disks| {
        runs.mean(|of| {
            let energy = |variant| long(of, variant, disks).outcome.energy_mj as f64;
            energy(Sleeping) / energy(Both)
        })
    });
    let slower = runs.mean(|of| long(of, Sleeping, DISKS).seconds() / long(of, Both, DISKS).seconds()) - 1.0;
    vec![
        paper::ENERGY_IDLE.judge(runs.sample(|of| of.of(Shifting, Both, 100).active_share())),
        paper::ENERGY_LESS
            .seen(runs.follows(|of| over(of) < 1.0), format!("{} of Log+RAID0's", percent(runs.mean(over)))),
        paper::ENERGY_SHIFTING.judge(runs.sample(|of| (active(of, Both) / active(of, Alone) - 1.0) * 100.0)).noted(
            format!(
                "without transformation one disk of four works, which is W T; whatever reads a log and writes a tree \
                 comes on top. The text holds N W T against N W T. With 8 W at work and 5 W idle {:.1} %",
                runs.mean(more(Shifting))
            ),
        ),
        paper::ENERGY_RAID.judge(runs.sample(|of| of.rise(LogRaid0, 100, HERE) * 100.0)),
        paper::ENERGY_ASLEEP
            .seen(
                runs.follows(|_| true),
                format!("4, 6, 8, 10 disks: {} of that without sleep", saved.map(percent).join(", ")),
            )
            .noted(format!(
                "logs of 1 GB, asleep after 10 s, starts of 15 s one at a time; {} slower with four",
                percent(slower)
            )),
    ]
}

fn contradictions(runs: &Runs) -> Vec<Row> {
    let shifting = runs.mean(|of| of.of(Shifting, Both, 100).seconds());
    let ordered = runs.mean(|of| of.of(LevelDb, Sequential, 1_000).mb_per_s());
    vec![
        paper::TIMES_TWICE.contradiction(
            format!("{shifting:.1} s"),
            "329 and 331.3 s for Workload Shifting, 813 and 813.6 s for Log+RAID0".to_owned(),
        ),
        paper::RISE_THRICE.contradiction(
            percent(runs.mean(|of| of.rise(Shifting, 100, HERE))),
            "2.7 % in words, 329 / 320 = 2.8 %, and 2.65 % under energy".to_owned(),
        ),
        paper::SEQUENTIAL_LIMIT.contradiction(
            format!("{} MB/s", short(ordered)),
            "below 32 MB/s for any size and both orders of keys, yet equal to Workload Shifting, whose 38.6 MB/s under \
             random keys are not its most"
                .to_owned(),
        ),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
