//! Scenarios from text: their meaning, their cases, and every error.
#![allow(clippy::unwrap_used)]

use super::key::{KEYS, Key};
use super::value::Kind;
use super::*;
use crate::experiment::{Arrivals, Experiment, System};
use crate::fill::{Capacities, DriveRule, Filling};
use crate::repartition::{Groups, Method, Reads, Repartition};
use crate::{Network, Popularity, Sizes};
use engine::{IdleTimeout, OverloadPolicy, ReadPolicy, Relief, Weighing};
use model::RackSpec;
use std::path::PathBuf;
use std::time::Duration;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, "s.toml", &[])
}

fn with(text: &str, overrides: &[&str]) -> Result<Scenario, ScenarioError> {
    let overrides: Vec<String> = overrides.iter().map(|setting| (*setting).to_owned()).collect();
    Scenario::parse(text, "s.toml", &overrides)
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn rack(name: &str) -> Result<RackSpec, String> {
    let shipped = model::text::SHIPPED.iter().find(|(known, _)| *known == name);
    let (_, text) = shipped.ok_or_else(|| format!("there is no rack {name}; write \"pelican\""))?;
    model::text::parse(text, name).map_err(|error| error.to_string())
}

fn trace(name: &str) -> Result<PathBuf, String> {
    match name {
        "t.csv" => Ok(PathBuf::from("traces/t.csv")),
        _ => Err(format!("{name} cannot be opened; write the path of a trace")),
    }
}

fn experiments(text: &str) -> Result<Vec<Experiment>, ScenarioError> {
    let scenario = parse(text)?;
    let mut sources = Sources::new(&rack, &trace);
    let service = |trial| match trial {
        Trial::Service(experiment) => *experiment,
        other => panic!("{other:?} serves nobody"),
    };
    scenario.cases()?.iter().map(|case| scenario.trial(case, &mut sources).map(service)).collect()
}

fn written(scenario: &Scenario, keys: &[&str]) -> Vec<Vec<String>> {
    let cases = scenario.cases().unwrap();
    let of = |case: &Case| keys.iter().map(|key| case.written(key).map_or("-".into(), ToString::to_string)).collect();
    cases.iter().map(of).collect()
}

#[test]
fn an_empty_scenario_is_pelicans_evaluation_at_one_read_a_second() {
    let ours = experiments("").unwrap();
    let mut papers = Experiment::pelican(rack("pelican").unwrap());
    papers.seeds = vec![1];
    assert_eq!(ours, [papers]);
}

#[test]
fn every_value_reaches_the_experiment() {
    let text = r#"
        question = "?"
        rack = "nas8"
        system = "fully_provisioned"
        stored_blobs = 50
        stored_share = 0.25
        warm_up = "none"
        duration = "90 min"
        seeds = [7, 9]
        [policy]
        overtake_limit = "2 min"
        weighing = "time"
        queue_depth = 17
        read_policy = "k"
        idle_timeout = "30 s"
        wait_limit = "3 min"
        join_in_service = true
        quantum = "5 s"
        anticipation = "2 s"
        shares = { client = 3, rebuild = 2, background = 0 }
        starts_per_day = 4
        [network]
        bytes_per_s = "1 Gb/s"
        shared = true
        [workload]
        rate = "30 per min"
        size = "vhd"
        popularity = "zipf"
        zipf_exponent = 0.9
    "#;
    let experiment = experiments(text).unwrap().remove(0);
    assert_eq!((experiment.rack.name.as_str(), experiment.system), ("nas8", System::FullyProvisioned));
    assert_eq!((experiment.stored_blobs, experiment.stored_permille), (50, 250));
    assert_eq!((experiment.warm_up, experiment.duration), (Duration::ZERO, Duration::from_mins(90)));
    assert_eq!(experiment.seeds, [7, 9]);
    let policy = &experiment.policy;
    assert_eq!((policy.scheduler.overtake_limit, policy.scheduler.weighing), (120_000, Weighing::Time));
    assert_eq!((policy.scheduler.queue_depth, policy.scheduler.join_in_service), (17, true));
    assert_eq!(policy.scheduler.wait_limit, Some(Duration::from_mins(3)));
    assert_eq!(policy.scheduler.quantum, Duration::from_secs(5));
    assert_eq!(policy.scheduler.anticipation, Duration::from_secs(2));
    let shares = policy.scheduler.shares;
    assert_eq!((shares.client, shares.rebuild, shares.background), (3, 2, 0));
    assert_eq!((policy.read_policy, policy.starts_per_day), (ReadPolicy::K, 4));
    assert_eq!(policy.idle_timeout, IdleTimeout::After(Duration::from_secs(30)));
    assert_eq!(experiment.network, Network { bytes_per_s: Some(125_000_000), shared: true });
    assert_eq!(experiment.workload.arrivals, Arrivals::poisson(0.5));
    assert_eq!(experiment.workload.sizes, Sizes::VHD);
    assert_eq!(experiment.workload.popularity, Popularity::Zipf { exponent_permille: 900 });
}

#[test]
fn bursts_and_traces_are_loads_too() {
    let burst = "[workload]\narrivals = \"burst\"\nreads = 30\nover = \"10 s\"\nsize = \"2 GB\"";
    let experiment = experiments(burst).unwrap().remove(0);
    assert_eq!(experiment.workload.arrivals, Arrivals::Burst { reads: 30, over: Duration::from_secs(10) });
    assert_eq!(experiment.workload.sizes, Sizes::Fixed(2_000_000_000));
    let replay = "[workload]\narrivals = \"replay\"\ntrace = \"t.csv\"\n[network]\nbytes_per_s = \"unbounded\"";
    let experiment = experiments(replay).unwrap().remove(0);
    assert_eq!(experiment.workload.arrivals, Arrivals::Replay("traces/t.csv".into()));
    assert_eq!(experiment.network, Network::UNBOUNDED);
}

#[test]
fn cases_are_the_product_of_all_values_and_hold_only_what_says_something() {
    let text = r#"
        system = ["engine", "random_layout"]
        [workload]
        arrivals = ["poisson", "burst"]
        rate = [1, 2]
        reads = { from = 10, to = 1000, steps = 3, scale = "log" }
    "#;
    let scenario = parse(text).unwrap();
    let cases = written(&scenario, &["system", "workload.arrivals", "workload.rate", "workload.reads"]);
    let poisson = |system: &str| ["1", "2"].map(|rate| vec![system.into(), "poisson".into(), rate.into(), "-".into()]);
    let burst =
        |system: &str| ["10", "100", "1000"].map(|reads| vec![system.into(), "burst".into(), "-".into(), reads.into()]);
    let mut expected: Vec<Vec<String>> = Vec::new();
    for system in ["engine", "random_layout"] {
        expected.extend(poisson(system));
        expected.extend(burst(system));
    }
    assert_eq!(cases, expected);
    assert_eq!(
        scenario.varied().iter().map(|key| key.name).collect::<Vec<_>>(),
        ["system", "workload.arrivals", "workload.rate", "workload.reads"]
    );
}

#[test]
fn overrides_take_the_place_of_what_is_written_and_quotes_can_be_left_out() {
    let text = "seeds = 2\n[policy]\novertake_limit = [\"50 GB\", \"1 TB\"]\n[workload]\nrate = 3";
    let scenario = with(text, &["policy.overtake_limit=70 GB", "workload.rate=[1, 2]", "seeds=[5]"]).unwrap();
    assert_eq!(written(&scenario, &["policy.overtake_limit", "workload.rate"]), [["70 GB", "1"], ["70 GB", "2"]]);
    assert_eq!(scenario.seeds, [5]);
    let range = with(text, &["workload.rate={ from = 1, to = 3, steps = 3 }", "system=random_layout"]).unwrap();
    assert_eq!(written(&range, &["workload.rate"]).len(), 6);
    let table = with(text, &["policy.shares={ client = 2 }"]).unwrap();
    assert_eq!(written(&table, &["policy.shares.client", "policy.shares.rebuild"])[0], ["2", "1"]);
}

#[test]
fn wrong_overrides_are_refused_with_the_nearest_key() {
    for (setting, expected) in [
        (
            "polcy.queue_depth=3",
            "--set polcy.queue_depth=3: unknown key `polcy.queue_depth`; write `policy.queue_depth`, or leave it out",
        ),
        (
            "queue_depth=3",
            "--set queue_depth=3: unknown key `queue_depth`; write `policy.queue_depth`, or leave it out",
        ),
        ("policy.queue_depth", "--set policy.queue_depth: this sets nothing; write --set key=value"),
        (
            "policy.queue_depth=many",
            "--set policy.queue_depth=many: `policy.queue_depth`: \"many\" is not allowed here; write a whole number \
             from 1 to",
        ),
        ("policy=3", "--set policy=3: unknown key `policy`"),
        ("=3", "--set =3: unknown key ``; write `"),
        ("system=enigne", "--set system=enigne: `system`: \"enigne\" is none of \"engine\", \"fully_provisioned\""),
        ("rack=a\nb=1", "rack=a\nb=1: `rack`: there is no rack"),
    ] {
        let refusal = match with("", &[setting]) {
            Err(error) => error.to_string(),
            Ok(scenario) => {
                let case = scenario.cases().unwrap().remove(0);
                scenario.trial(&case, &mut Sources::new(&rack, &trace)).unwrap_err().to_string()
            }
        };
        assert!(refusal.contains(expected), "{setting:?} gives {refusal}");
    }
}

#[test]
fn every_refusal_has_its_place_and_its_fix() {
    for (text, expected) in [
        ("rack = ", "s.toml:1:8: this is not TOML: "),
        (
            "rak = \"pelican\"",
            "s.toml:1:1: unknown key `rak`; write `rack`, or leave it out (known here: kind, rack, system,",
        ),
        ("\n[polcy]\nx = 1", "s.toml:2:2: unknown key `polcy`; write `policy`, or leave it out"),
        (
            "[policy]\nqueue_dept = 1",
            "s.toml:2:1: unknown key `queue_dept`; write `queue_depth`, or leave it out (known here: overtake_limit,",
        ),
        ("[policy]\nrate = 1", "s.toml:2:1: unknown key `rate`; write `workload.rate`, or leave it out"),
        ("[policy.shares]\nclients = 1", "s.toml:2:1: unknown key `clients`; write `client`, or leave it out"),
        (
            "[policy]\nqueue_depth = 0",
            "s.toml:2:15: `policy.queue_depth`: 0 is out of range; write a whole number from 1",
        ),
        ("[policy]\nqueue_depth = [5, \"x\"]", "s.toml:2:19: `policy.queue_depth`: \"x\" is not allowed here"),
        ("[policy]\nqueue_depth = []", "s.toml:2:15: `policy.queue_depth`: an empty list has no values; write a whole"),
        ("rack = [[1]]", "s.toml:1:9: `rack`: this is not a value; write a shipped rack's name, or the path of a"),
        (
            "[workload]\nrate = { from = 1, to = 2, step = 2 }",
            "s.toml:2:8: `workload.rate`: a range has no `step`; write `steps`, as in { from = 1, to = 8,",
        ),
        ("[workload]\nrate = { from = 1, steps = 2 }", "the range has no `to`; write one as in {"),
        ("[workload]\nrate = { from = 1, to = 2 }", "the range needs `steps` from 2 to 1000; write one as in {"),
        (
            "[workload]\nrate = { from = 1, to = 2, steps = 2, scale = \"lin\" }",
            "a range's scale is \"log\" or \"linear\"; write one of them",
        ),
        ("seeds = 0", "s.toml:1:9: these are not seeds; write a number, such as 3, or a list such as [1, 2, 3]"),
        ("question = 3", "s.toml:1:12: a question is text; write it in \"quotes\""),
        (
            "[workload]\nreads = 3",
            "s.toml:2:9: `workload.reads`: has no effect here; write workload.arrivals = \"burst\", or leave it out",
        ),
        (
            "[workload]\nzipf_exponent = 1.0",
            "s.toml:2:17: `workload.zipf_exponent`: has no effect here; write workload.popularity = \"zipf\", or leave",
        ),
        ("plot = 3", "s.toml:1:1: unknown key `plot`"),
        ("[plot]\nx = 3", "s.toml:2:5: a plot is described in words; write a name in \"quotes\", or a list of them"),
        ("[plot]\ny = \"ttfb_s.p99\"", "s.toml: `plot.x`: a plot has one parameter or measure along x; write x ="),
        ("[plot]\nx = \"workload.rate\"", "s.toml: `plot.y`: a plot needs measures; write y = [\"ttfb_s.p99\","),
        (
            "[plot]\nx = \"workload.rate\"\ny = \"ttfb.p99\"",
            "s.toml:3:5: `plot.y`: there is no measure \"ttfb.p99\"; \
            write \"ttfb_s.p99\" (known: hours, model_hours,",
        ),
        (
            "[plot]\nx = \"workload.rat\"\ny = \"reject_rate\"",
            "s.toml:2:5: `plot.x`: there is no parameter or measure \"workload.rat\"; \
            write \"workload.rate\" (known: kind, rack",
        ),
        (
            "[plot]\nx = \"workload.rate\"\ny = \"reject_rate\"\nseries = \"sytem\"",
            "s.toml:4:10: `plot.series`: there is no parameter \"sytem\"; write \"system\" (known: kind, rack, system,",
        ),
        (
            "system = [\"engine\", \"random_layout\"]\n[plot]\nx = \"workload.rate\"\ny = \"reject_rate\"",
            "`plot.series`: `system` has several values, and the plot must say where; write it into series",
        ),
        (
            "[plot]\nx = \"system\"\ny = \"reject_rate\"",
            "s.toml:2:5: `plot.x`: the values of `system` are not numbers; write it into series instead",
        ),
        (
            "[plot]\nx = \"workload.rate\"\ny = \"reject_rate\"\nx_scale = \"lg\"",
            "s.toml:4:11: `plot.x_scale`: a scale is \"linear\" or \"log\"; write one of them",
        ),
        (
            "[plot]\nx = \"workload.rate\"\ny = \"ttfb_s.max\"\nlog_y = \"ttfb_s.mean\"",
            "s.toml:4:9: `plot.log_y`: there is no measure in y \"ttfb_s.mean\"; \
            write \"ttfb_s.max\" (known: ttfb_s.max)",
        ),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(expected), "{text:?} gives {refusal}");
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused_at_their_place() {
    for (text, expected) in [
        ("rack = \"atlantis\"", "s.toml:1:8: `rack`: there is no rack atlantis; write \"pelican\""),
        (
            "[policy]\novertake_limit = \"5 min\"",
            "s.toml:2:18: `policy.overtake_limit`: does not fit weighing = \"bytes\"; write a size such as \"500 GB\"",
        ),
        (
            "[policy]\nweighing = \"operations\"",
            "s.toml: `policy.overtake_limit`: does not fit weighing = \"operations\"; write a number such as 500",
        ),
        (
            "[policy]\nweighing = \"time\"\novertake_limit = 7",
            "s.toml:3:18: `policy.overtake_limit`: does not fit weighing = \"time\"; \
            write a duration such as \"5 min\"",
        ),
        (
            "[policy]\nweighing = \"service_time\"\novertake_limit = \"7 GB\"",
            "s.toml:3:18: `policy.overtake_limit`: does not fit weighing = \"service_time\"; \
            write a duration such as \"5 min\"",
        ),
        (
            "[policy]\nshares = { client = 0, rebuild = 0, background = 0 }",
            "s.toml:2:21: `policy.shares.client`: all shares are 0; write for example 1 for the client",
        ),
        (
            "[workload]\narrivals = \"replay\"\ntrace = \"x\"",
            "s.toml:3:9: `workload.trace`: x cannot be opened; write the path of a trace",
        ),
        (
            "[workload]\narrivals = \"replay\"",
            "s.toml:2:12: `workload.arrivals`: a replay needs a trace; write workload.trace = \"trace.csv\"",
        ),
    ] {
        let refusal = experiments(text).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{text:?} gives {refusal}");
    }
}

#[test]
fn limits_over_the_whole_rack_are_obeyed_by_its_layout() {
    for (text, groups) in [
        ("[limit]\nactive_groups = 1", 1),
        ("[limit]\nactive_groups = 2", 2),
        ("[limit]\nactive_groups = 4", 4),
        ("[limit]\nactive_groups = 40", 4),
        ("[limit]\nwatts = 2800", 2),
        ("[limit]\nwatts = 9000\nactive_groups = 2", 2),
    ] {
        let experiment = experiments(text).unwrap().remove(0);
        let layout = engine::layout::synthesise(&experiment.rack).unwrap();
        assert_eq!((layout.active_groups_max(), layout.groups.len()), (groups, 48), "{text}");
    }
    let refusal = experiments("[limit]\nwatts = 2000").unwrap_err().to_string();
    assert!(
        refusal.contains("s.toml:2:9: `limit.watts`: `limit.watts` lets 10 drives be awake at once, and a"),
        "{refusal}"
    );
}

#[test]
fn drives_may_be_changed() {
    let text = "[drives]\ngroup_drives = 18\nstraggler_share = 0.002\nrate_spread = 0.05\nzone_spread = 0.3";
    let rack = experiments(text).unwrap().remove(0).rack;
    let (stragglers, spread) = (rack.profile.spin_up.stragglers.unwrap(), rack.profile.rate_spread);
    assert_eq!((rack.group_drives, stragglers.permille, stragglers.max), (18, 2, Duration::from_mins(1)));
    assert_eq!((spread.drive_permille, spread.zone_permille), (50, 300));
    let plain = experiments("").unwrap().remove(0).rack;
    assert_eq!((plain.group_drives, plain.profile.spin_up.stragglers), (24, None), "as described");
    let refusal = |text: &str| experiments(text).unwrap_err().to_string();
    let small = refusal("[drives]\nstraggler_share = 0.0001");
    assert!(small.contains("`drives.straggler_share`: is less than a thousandth; write 0.001 or more"), "{small}");
    let few = refusal("[drives]\ngroup_drives = 4");
    assert!(few.contains("`drives.group_drives`: group_drives: a group of 4 cannot hold a blob"), "{few}");
    let early = refusal("[drives]\nstraggler_share = 0.01\nstraggler_max = \"1 s\"");
    assert!(
        early.contains("s.toml:3:17: `drives.straggler_max`: drive.spin_up: the slowest straggler takes 1s"),
        "{early}"
    );
}

#[test]
fn a_drive_may_fail() {
    let text = "stored_share = 0.94\n[fault]\nkind = \"drive\"\ndrive = 7\nblobs = 100\nstored = \"1 TB\"";
    let fault = experiments(text).unwrap().remove(0).fault.unwrap();
    assert_eq!((fault.drive.0, fault.blobs, fault.bytes), (7, 100, 1_000_000_000_000));
    let papers = experiments("[fault]\nkind = \"drive\"").unwrap().remove(0).fault;
    assert_eq!(papers, Some(crate::Fault::pelican(model::DriveId(0))));
    for (text, expected) in [
        ("[fault]\ndrive = 7", "`fault.drive`: has no effect here; write fault.kind = \"drive\", or leave it out"),
        (
            "[fault]\nkind = \"drive\"\ndrive = 1152",
            "s.toml:3:9: `fault.drive`: the rack has no drive 1152; write a number from 0 to 1151",
        ),
        (
            "system = \"random_layout\"\nfault = { kind = \"drive\" }",
            "s.toml:2:18: `fault.kind`: the random layout rebuilds nothing; leave it out of `system`",
        ),
    ] {
        let refusal = experiments(text).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{text:?} gives {refusal}");
    }
}

#[test]
fn a_rack_may_begin_with_a_backlog_and_have_means_against_it() {
    let scheduler = |text: &str| experiments(text).unwrap().remove(0).policy.scheduler.overload;
    assert_eq!(scheduler("policy.overload = \"none\""), OverloadPolicy::default());
    let shed = OverloadPolicy { relief: Relief::Shed, from_permille: 900, until_permille: 300 };
    assert_eq!(scheduler("[policy]\noverload = \"shed\"\noverload_from = 0.9\noverload_until = 0.3"), shed);
    let widen = scheduler("[policy]\noverload = \"widen\"\noverload_times = 7").relief;
    assert_eq!(widen, Relief::Widen { times: 7 });
    assert_eq!(experiments("workload.backlog = 40").unwrap().remove(0).workload.backlog, 40);
    let refusal = experiments("[policy]\noverload = \"shed\"\noverload_from = 0.2").unwrap_err().to_string();
    assert!(refusal.contains("`policy.overload_until`: must be below policy.overload_from"), "{refusal}");
}

fn fillings(text: &str) -> Result<Vec<Filling>, ScenarioError> {
    let scenario = parse(text)?;
    let mut sources = Sources::new(&rack, &trace);
    let filling = |trial| match trial {
        Trial::Fill(filling) => *filling,
        other => panic!("{other:?} fills nothing"),
    };
    scenario.cases()?.iter().map(|case| scenario.trial(case, &mut sources).map(filling)).collect()
}

#[test]
fn a_rack_may_be_filled_until_it_refuses() {
    let plain = fillings("kind = \"fill\"").unwrap().remove(0);
    assert_eq!((plain.capacities.min_bytes, plain.capacities.max_bytes), (4_550_000_000_000, 4_550_000_000_000));
    assert_eq!((plain.rule, plain.clipped, plain.sizes), (DriveRule::MostSpare, false, Sizes::VHD));
    let text = "kind = \"fill\"\nseeds = 2\n[fill]\ndrives = \"random\"\nclipped = [false, true]\nsize = \"1 GB\"\n\
                capacity_min = \"4.2 TB\"\ncapacity_max = \"4.9 TB\"\ncapacity_draws = 4";
    let [varied, clipped] = <[Filling; 2]>::try_from(fillings(text).unwrap()).unwrap();
    let papers = Capacities { draws: 4, ..Capacities::PELICAN };
    assert_eq!(
        (varied.capacities, varied.rule, varied.sizes),
        (papers, DriveRule::Random, Sizes::Fixed(1_000_000_000))
    );
    assert_eq!((varied.clipped, clipped.clipped, varied.seeds.len()), (false, true, 2));
    let refusal = |text: &str| fillings(text).unwrap_err().to_string();
    let small = refusal("kind = \"fill\"\n[fill]\ncapacity_min = \"2 TB\"\ncapacity_max = \"1 TB\"");
    assert!(small.contains("s.toml:4:16: `fill.capacity_max`: is less than the smallest"), "{small}");
    let idle = refusal("kind = \"fill\"\npolicy.queue_depth = 3");
    assert!(idle.contains("`policy.queue_depth`: has no effect here; write kind = \"service\""), "{idle}");
}

fn jobs(text: &str) -> Result<Vec<Repartition>, ScenarioError> {
    let scenario = parse(text)?;
    let mut sources = Sources::new(&rack, &trace);
    let job = |trial| match trial {
        Trial::Repartition(job) => *job,
        other => panic!("{other:?} is no job"),
    };
    scenario.cases()?.iter().map(|case| scenario.trial(case, &mut sources).map(job)).collect()
}

#[test]
fn a_repartition_is_the_papers_by_default_and_every_value_reaches_the_job() {
    let ours = jobs("kind = \"repartition\"").unwrap().remove(0);
    let papers = Repartition::paper(&Groups::PAPER, Method::Planner).unwrap();
    let alpha = ours.alpha;
    assert_eq!(alpha.output, alpha.input);
    assert_eq!(Repartition { alpha: papers.alpha, ..ours }, papers);
    let text = r#"
        kind = "repartition"
        seeds = [4]
        [repartition]
        strategy = ["offpack", "tourpack"]
        data = "3 TB"
        memory = "5 GB"
        alpha = 0.25
        input_skew = 0.5
        output_skew = 1
        groups = 7
        switch = "30 s"
        switch_spread = 0.1
        rate = "500 MB/s"
        seek = "5 ms"
        read_back = true
        operation = "1 GB"
        reads_per_s = 0.5
        read_size = "2 GB"
        [policy.shares]
        background = 3
    "#;
    let [job, tour] = <[Repartition; 2]>::try_from(jobs(text).unwrap()).unwrap();
    assert_eq!((job.method, tour.method), (Method::Offpack, Method::Tourpack));
    assert_eq!((job.data_bytes, job.memory_bytes), (3_000_000_000_000, 5_000_000_000));
    assert_eq!((job.alpha.as_f64(), job.input_skew_permille, job.output_skew_permille), (0.25, 500, 1_000));
    assert_eq!((job.rack.drives.len(), job.rack.profile.seek), (21, Duration::from_millis(5)));
    assert_eq!(job.rack.profile.spin_up.max, Duration::from_secs(33));
    assert_eq!((job.terms().read_bytes_per_s, job.terms().write_bytes_per_s), (500_000_000, 250_000_000));
    assert_eq!(job.operation_bytes, Some(1_000_000_000));
    assert_eq!(job.reads, Some(Reads { mean_gap: Duration::from_secs(2), bytes: 2_000_000_000 }));
    assert_eq!((job.policy.scheduler.shares.background, &*job.seeds), (3, &[4][..]));
    let given = jobs("kind = \"repartition\"\nrack = \"nas8\"\nrepartition.hardware = \"rack\"").unwrap().remove(0);
    assert_eq!((given.rack.name.as_str(), given.policy.starts_per_day), ("nas8", 27));
}

#[test]
fn what_a_repartition_has_no_use_for_is_refused() {
    for (text, expected) in [
        (
            "kind = \"repartion\"",
            "`kind`: \"repartion\" is none of \"service\", \"repartition\", \"fill\", \"copy\"; write \"repartition\"",
        ),
        (
            "repartition.data = \"1 TB\"",
            "`repartition.data`: has no effect here; write kind = \"repartition\", or leave",
        ),
        (
            "kind = \"repartition\"\nrack = \"nas8\"",
            "`rack`: has no effect here; write repartition.hardware = \"rack\"",
        ),
        ("kind = \"repartition\"\nworkload.rate = 3", "`workload.rate`: has no effect here; write workload.arrivals"),
        ("kind = \"repartition\"\nwarm_up = \"1 h\"", "`warm_up`: has no effect here"),
        (
            "kind = \"repartition\"\n[repartition]\nhardware = \"rack\"\ngroups = 3",
            "s.toml:4:10: `repartition.groups`: has no effect here; write repartition.hardware = \"groups\"",
        ),
        ("kind = \"repartition\"\n[repartition]\nmemry = 3", "unknown key `memry`; write `memory`, or leave it out"),
        ("kind = \"repartition\"\n[repartition]\nT_sw = 3", "unknown key `T_sw`; write `"),
        (
            "kind = \"repartition\"\n[repartition]\nmemory = \"1 kB\"",
            "s.toml:3:10: `repartition.memory`: this is too little for any job; write at least \"1 MB\"",
        ),
        (
            "kind = \"repartition\"\n[repartition]\nrate = \"1 B/s\"",
            "s.toml:3:8: `repartition.rate`: a drive that moves no bytes is of no use",
        ),
        ("kind = \"repartition\"\n[repartition]\nswitch = \"25 h\"", "s.toml:3:10: `repartition.switch`: longer than"),
    ] {
        let refusal = jobs(text).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{text:?} gives {refusal}");
    }
}

#[test]
fn jobs_and_racks_that_serve_may_stand_side_by_side() {
    let text =
        "kind = [\"service\", \"repartition\"]\nrack = \"nas8\"\n[repartition]\nhardware = [\"groups\", \"rack\"]";
    let cases = written(&parse(text).unwrap(), &["kind", "repartition.hardware", "rack", "repartition.groups"]);
    let expected =
        [["service", "-", "nas8", "-"], ["repartition", "groups", "-", "12"], ["repartition", "rack", "nas8", "-"]];
    assert_eq!(cases, expected);
}

/// A scenario, and the answers of all its cases.
fn answered(text: &str) -> (Scenario, Vec<Answer>) {
    let scenario = parse(text).unwrap();
    let mut sources = Sources::new(&rack, &trace);
    let run = |case: Case| {
        let found = scenario.trial(&case, &mut sources).unwrap().run().unwrap();
        Answer { case, found }
    };
    let answers = scenario.cases().unwrap().into_iter().map(run).collect();
    (scenario, answers)
}

#[test]
fn the_answers_of_jobs_become_tables_plots_and_a_page() {
    let text = r#"
        kind = "repartition"
        [repartition]
        strategy = ["buffpack", "offpack", "tourpack"]
        data = "200 GB"
        memory = ["4 GB", "16 GB"]
        [plot]
        x = "repartition.memory"
        y = ["hours", "switches"]
        series = "repartition.strategy"
    "#;
    let (scenario, answers) = answered(text);
    let table = short_table(&scenario, &answers);
    let keys: Vec<&str> = table.columns.iter().map(|column| column.key.as_str()).collect();
    assert_eq!(keys[..5], ["repartition.strategy", "repartition.memory", "hours", "model_hours", "better_model_hours"]);
    assert!(!keys.iter().any(|key| key.starts_with("ttfb_s") || *key == "throughput_bytes_per_s"), "{keys:?}");
    let svg = scenario.plot.as_ref().unwrap().figure("t", &answers).svg();
    for words in ["buffpack", "tourpack", "time (h)", "switches", "memory (GB)"] {
        assert!(svg.contains(words), "{words}");
    }
    let asked = Asked { command: "larder simulate".into(), version: "1".into(), text: text.into() };
    let html = page(&scenario, &answers, &asked).html();
    let hash = format!("{:016x}", answers[5].found.trace_hashes()[0]);
    assert!(html.contains(&hash) && html.contains("background operation") && !html.contains("TTFB"));
}

#[test]
fn every_shipped_scenario_can_be_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = Scenario::parse(&text, &path.display().to_string(), &[]).unwrap();
        let beside = |name: &str| {
            let trace = path.parent().unwrap().join(name);
            crate::replay::check(&trace).map(|_| trace).map_err(|error| error.to_string())
        };
        let mut sources = Sources::new(&rack, &beside);
        for case in scenario.cases().unwrap() {
            scenario.trial(&case, &mut sources).unwrap();
        }
        assert!(scenario.plot.is_some() && scenario.question.ends_with('?'), "{}", path.display());
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn answers_become_tables_plots_and_a_page() {
    let text = r#"
        question = "Who <waits>?"
        rack = "nas8"
        stored_blobs = 100
        warm_up = "none"
        duration = "2 h"
        seeds = 2
        [policy]
        idle_timeout = ["1 min", "never"]
        [workload]
        rate = ["20 per h", "60 per h"]
        [plot]
        x = "workload.rate"
        y = ["ttfb_s.mean", "power_w.mean"]
        series = "policy.idle_timeout"
    "#;
    let (scenario, answers) = answered(text);
    let table = short_table(&scenario, &answers);
    let keys: Vec<&str> = table.columns.iter().map(|column| column.key.as_str()).collect();
    assert_eq!(keys[..3], ["workload.rate", "policy.idle_timeout", "throughput_bytes_per_s"]);
    assert!(!keys.contains(&"rebuild.rebuild_s") && table.rows.len() == 4);
    let csv = csv(&answers);
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert!(head.contains(&"rack") && head.contains(&"ttfb_s.max"), "{head:?}");
    let at = head.iter().position(|key| *key == "throughput_bytes_per_s").unwrap();
    let exact: f64 = csv.lines().nth(1).unwrap().split(',').nth(at).unwrap().parse().unwrap();
    let Found::Service(point) = &answers[0].found else { panic!("it serves") };
    assert!((exact - point.throughput_bytes_per_s).abs() < 1e-9, "every digit is there");
    let svg = scenario.plot.as_ref().unwrap().figure("t", &answers).svg();
    for words in ["idle timeout 1 min", "idle timeout never", "mean TTFB (s)", "mean power (W)", "rate (1/s)"] {
        assert!(svg.contains(words), "{words}");
    }
    let asked = Asked { command: "larder simulate s.toml".into(), version: "1.2.3".into(), text: text.into() };
    let html = page(&scenario, &answers, &asked).html();
    let hash = format!("{:016x}", answers[3].found.trace_hashes()[1]);
    for words in ["Who &lt;waits&gt;?", "larder simulate s.toml", "1.2.3", &hash, "1, 2", "idle_timeout = ["] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn a_scenario_of_too_many_cases_is_refused() {
    let list = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("stored_blobs = [{list}]\n[policy]\nqueue_depth = [{list}]");
    let refusal = parse(&text).unwrap().cases().unwrap_err().to_string();
    assert!(
        refusal.contains("`policy.queue_depth`: the values make more than 10000 cases; write fewer values"),
        "{refusal}"
    );
}

#[test]
fn every_default_is_a_value_of_its_key() {
    for key in KEYS {
        assert_eq!(read::default_of(key).is_some(), key.default.is_some(), "{}", key.name);
        if let Some((on, words)) = key.when {
            let Some(Key { kind: Kind::Word(known), .. }) = Key::named(on) else { panic!("{on} has words") };
            let before = |key: &Key, other: &Key| {
                let at = |key: &Key| case::in_order().iter().position(|known| known.name == key.name);
                at(key) < at(other)
            };
            assert!(before(Key::named(on).unwrap(), key), "{} is decided first", key.name);
            assert!(words.iter().all(|word| known.contains(word) || *word == key::UNSET), "{}", key.name);
        }
    }
}
