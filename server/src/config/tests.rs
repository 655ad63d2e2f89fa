//! The meaning of configurations, and the errors of wrong ones.
#![allow(clippy::unwrap_used)]

use super::*;

const CONFIGURATION: &str = include_str!("../../../docs/reference/configuration.md");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("larder.toml"), text)
}

fn complaint(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn pelican() -> RackSpec {
    let (_, text) = model::text::SHIPPED.iter().find(|(name, _)| *name == "pelican").unwrap();
    model::text::parse(text, "pelican.toml").unwrap()
}

/// The template with every key uncommented: the defaults that it documents.
fn uncommented() -> String {
    let is_key = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.starts_with(' '));
    TEMPLATE.lines().map(|line| if is_key(line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_empty_file_and_the_template_are_the_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse(&Config::template(&[])).unwrap(), Config::default());
}

#[test]
fn the_template_tells_the_true_defaults_of_every_key() {
    let mut said = parse(&uncommented()).unwrap();
    assert_eq!(said.pins, [Pin { prefix: "bucket/prefix".into(), class: ClassId(2) }]);
    assert_eq!(said.scheduler.overtake_limit(), Config::default().scheduler.overtake_limit());
    let spec = pelican();
    assert_eq!(said.starts_per_day, Some(spec.profile.starts_per_day()), "the example is the shipped rack's value");
    assert_eq!(said.placement.batch_bytes, Some(spec.pack_bytes * BATCH_PACKS));
    assert_eq!(said.migrate.pack_bytes, Some(spec.pack_bytes));
    assert_eq!(said.limits(5120).user_requests, Config::default().limits(5120).user_requests);
    assert_eq!(said.limits(5120).peer_requests, Config::default().limits(5120).peer_requests);
    assert_eq!(said.limits(5120).unsigned_requests, Config::default().limits(5120).unsigned_requests);
    assert_eq!(said.limits(5120).peer_connections, Config::default().limits(5120).peer_connections);
    assert_eq!(said.workshop.spool, said.workshop.capacity.map(|capacity| capacity / 4));
    assert_eq!(said.thermometer.default, Some(said.thermometer.thermometer().default), "with a rule");
    // These have no fixed default; the rest must be equal.
    said.thermometer = ThermometerConfig::default();
    said.pins.clear();
    said.starts_per_day = None;
    said.trace = None;
    said.health.drain_above = None;
    said.domain = None;
    (said.tls, said.metrics) = (TlsConfig::default(), MetricsConfig::default());
    (said.user_request_limit, said.peer_request_limit, said.unsigned_request_limit) = (None, None, None);
    said.peer_connection_limit = None;
    said.scheduler.overtake_limit = None;
    said.placement.batch_bytes = None;
    said.migrate = MigrateConfig { pack_bytes: None, older_than: None, ..said.migrate };
    said.workshop = WorkshopConfig { capacity: None, spool: None, ..said.workshop };
    assert_eq!(said, Config::default());
}

#[test]
fn every_key_there_is_stands_in_the_template() {
    // Serde lists the keys that it knows when it refuses an unknown one.
    for (table, marker) in [
        ("", "listen"),
        ("tls", "certificate"),
        ("metrics", "listen"),
        ("workshop", "capacity"),
        ("migrate", "window"),
        ("thermometer", "default"),
        ("scheduler", "quantum"),
        ("scheduler", "anticipation"),
        ("placement", "batch"),
        ("emulation", "seed"),
    ] {
        let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let message = complaint(&format!("{head}zzzz = 1\n"));
        let keys = message.split("(keys: ").nth(1).map_or_else(|| marker.to_owned(), |rest| rest.replace(')', ""));
        for key in keys.split(", ") {
            let known = TEMPLATE.contains(&format!("\n#{key} = ")) || TEMPLATE.contains(&format!("[{key}]"));
            let known = known || TEMPLATE.contains(&format!("[{table}.{key}]"));
            assert!(known, "{table}.{key} is not documented");
            let name = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            let rows = [format!("\n| `{name}` |"), format!("\n| `{key}.")];
            assert!(rows.iter().any(|row| CONFIGURATION.contains(row)), "{name} has no row in configuration.md");
        }
    }
}

#[test]
fn values_that_are_set_are_written_into_the_template() {
    let text = Config::template(&[("time_scale", "20".into()), ("migrate.older_than", "\"30 s\"".into())]);
    let config = parse(&text).unwrap();
    assert_eq!(config.time_scale, 20);
    assert_eq!(config.migrate.older_than, Some(Duration::from_secs(30)));
    assert!(text.contains("\ntime_scale = 20\n") && text.contains("\n#max_wait ="));
}

#[test]
fn wall_times_become_modelled_ones_and_the_rack_fills_the_gaps() {
    let spec = pelican();
    let config =
        parse("time_scale = 10\n[migrate]\nolder_than = \"30 s\"\nmin_age = \"2 s\"\nscan_interval = \"5 s\"\n")
            .unwrap();
    let policy = config.rack_policy(&spec);
    assert_eq!(policy.migration.due_age, Some(Duration::from_mins(5)));
    assert_eq!(policy.migration.min_age, Duration::from_secs(20));
    assert_eq!(policy.migration.scan_interval, Duration::from_secs(50));
    assert_eq!(policy.migration.linger, Duration::from_hours(10));
    assert_eq!(policy.idle_timeout, IdleTimeout::After(Duration::from_mins(5)), "is modelled already");
    assert_eq!(policy.migration.pack_bytes, spec.pack_bytes);
    assert_eq!(policy.group_choice, GroupChoice::Batch { bytes: 20 * spec.pack_bytes });
    assert_eq!(policy.starts_per_day, 10, "30,000 starts over 8 years");
    assert_eq!((policy.migration.regular_permille, policy.migration.critical_permille), (300, 800));
    assert_eq!(policy.evacuate_permille, 500);
    assert_eq!(policy.scheduler.overtake_limit, 500_000_000_000);
    assert_eq!(policy.scheduler.wait_limit, Some(Duration::from_mins(2)));
    let never = parse("[scheduler]\nwait_limit = \"never\"").unwrap();
    assert_eq!(never.scheduler.wait_limit, None);
    assert!(policy.classes.is_empty());
}

#[test]
fn the_papers_reproduction_can_be_set() {
    let text = "idle_timeout = \"never\"\nread_policy = \"k\"\n[placement]\ngroup_choice = \"random\"\n\
                [scheduler]\nweighing = \"operations\"\novertake_limit = 500\njoin_in_service = false\n";
    let policy = parse(text).unwrap().rack_policy(&pelican());
    assert_eq!(policy.idle_timeout, IdleTimeout::Never);
    assert_eq!(policy.migration.order, MoveOrder::Processed, "SOHO's, unless it is switched off");
    let by_age = parse("[migrate]\norder = \"age\"").unwrap().rack_policy(&pelican());
    assert_eq!(by_age.migration.order, MoveOrder::Age);
    assert_eq!(policy.read_policy, ReadPolicy::K);
    assert_eq!(policy.group_choice, GroupChoice::Random);
    assert_eq!((policy.scheduler.weighing, policy.scheduler.overtake_limit), (Weighing::Operations, 500));
    let timed = parse("[scheduler]\nweighing = \"time\"\novertake_limit = \"5 min\"").unwrap();
    assert_eq!(timed.scheduler.overtake_limit(), 300_000, "in milliseconds");
    let timed = parse("[scheduler]\nweighing = \"service_time\"\novertake_limit = \"90 s\"").unwrap();
    assert_eq!((timed.scheduler.weighing, timed.scheduler.overtake_limit()), (Weighing::ServiceTime, 90_000));
}

#[test]
fn an_unknown_key_is_refused_at_its_place_with_the_nearest_one() {
    let message = complaint("listen = \"127.0.0.1:1\"\n\n[workshop]\n  capcity = \"1 GB\"\n");
    assert!(message.starts_with("larder.toml:4:3: there is no key `capcity` here; write `capacity`"), "{message}");
    let message = complaint("[migrat]\n");
    assert!(message.contains(":1:2: there is no key `migrat` here; write `migrate`"), "{message}");
    let message = complaint("patience = \"45 s\"\n");
    assert!(message.starts_with("larder.toml:1:1: there is no key `patience` here; write `"), "{message}");
    assert!(message.contains("(keys: ") && message.contains(" max_wait,"), "{message}");
    let message = complaint("[[pin]]\nprefix = \"a\"\nclas = 1\n");
    assert!(message.contains(":3:1: ") && message.contains("write `class`"), "{message}");
}

#[test]
fn wrong_values_are_refused_at_their_place_with_a_right_one() {
    for (text, place, fix) in [
        ("max_wait = 45", ":1:12: ", "write \"45 s\""),
        ("max_wait = \"45 sec\"", ":1:12: ", "\"13.5 s\""),
        ("time_scale = 0", ":1:14: ", "from 1 to 100000"),
        ("time_scale = 1.5", ":1:14: ", "from 1 to 100000"),
        ("request_limit = 0", ":1:17: ", "from 1"),
        ("peer_request_limit = 0", ":1:22: ", "from 1"),
        ("head_limit = \"1 KiB\"", ":1:14: ", "at least \"16 KiB\""),
        ("idle_timeout = \"sometimes\"", ":1:16: ", "or \"never\""),
        ("read_policy = \"some\"", ":1:15: ", "`all`"),
        ("evacuation_fraction = 50", ":1:23: ", "from 0.0 to 1.0"),
        ("listen = \"localhost:9000\"", ":1:10: ", "127.0.0.1:9000"),
        ("[workshop]\ncapacity = \"many\"", ":2:12: ", "4.55 TB"),
        ("[workshop]\ncapacity = 0", ":2:12: ", "above 0"),
        ("[workshop]\nspool = -1", ":2:9: ", "0 or more"),
        ("[workshop]\nregular = 0.9", ":1:", "`workshop.critical` must not be below `regular`; write a larger share"),
        ("[workshop]\ncritical = 0.1", ":2:12: ", "larger share"),
        ("[migrate]\nscan_interval = \"0 s\"", ":2:17: ", "above 0"),
        ("[migrate]\norder = \"coldest\"", ":2:9: ", "`processed`"),
        ("[migrate]\npack_size = 0", ":2:13: ", "above 0"),
        ("[scheduler]\nshares = { client = 0, rebuild = 0, background = 0 }", ":2:10: ", "not all be 0"),
        ("[scheduler]\nweighing = \"time\"", ":2:12: ", "\"5 min\""),
        ("[scheduler]\nweighing = \"service_time\"", ":2:12: ", "\"5 min\""),
        ("[scheduler]\novertake_limit = \"5 min\"", ":2:18: ", "\"500 GB\""),
        ("[[pin]]\nprefix = \"/x\"\nclass = 1", ":1:", "bucket/prefix"),
        ("[workshop", ":1:", ""),
    ] {
        let message = complaint(text);
        assert!(
            message.starts_with("larder.toml:") && message.contains(place) && message.contains(fix),
            "{text}: {message}"
        );
    }
}

#[test]
fn no_text_makes_it_panic() {
    let whole = uncommented();
    for cut in (0..whole.len()).filter(|&cut| whole.is_char_boundary(cut)) {
        let _ = parse(&whole[..cut]);
    }
}

#[test]
fn pins_cover_a_bucket_or_what_lies_under_a_prefix() {
    let pin = |prefix: &str| Pin { prefix: prefix.into(), class: ClassId(0) };
    assert!(pin("films").covers("films", "any"));
    assert!(!pin("films").covers("films2", "any"));
    assert!(pin("films/1950").covers("films", "1950s/a"));
    assert!(!pin("films/1950").covers("films", "1960s/a"));
    assert!(!pin("films/1950").covers("film", "1950s/a"));
}

#[test]
fn the_workshop_takes_a_quarter_of_the_room_unless_told_otherwise() {
    let workshop = WorkshopConfig::default();
    assert_eq!(workshop.capacity_bytes(300, 100), 100, "what is staged already counts as room");
    assert_eq!(workshop.spool_bytes(100), 25);
    let set = WorkshopConfig { capacity: Some(7), spool: Some(3), ..workshop };
    assert_eq!((set.capacity_bytes(300, 100), set.spool_bytes(100)), (7, 3));
}

#[test]
fn shares_of_requests_and_connections_follow_their_limits_unless_set() {
    let limits = parse("request_limit = 100\nconnection_limit = 10\nuser_request_limit = 7\n").unwrap().limits(5120);
    assert_eq!(
        (limits.requests, limits.user_requests, limits.peer_requests, limits.unsigned_requests),
        (100, 7, 25, 50)
    );
    assert_eq!((limits.connections, limits.peer_connections), (10, 10), "few are nobody's share");
    assert_eq!(parse("connection_limit = 100\n").unwrap().limits(5120).peer_connections, 50);
    let waiting = |text: &str, connections| parse(text).unwrap().limits(connections).waiting_max();
    assert_eq!((waiting("", 5120), waiting("waiting_gets = 7", 5120)), (4096, 7));
    assert_eq!(waiting("", 400), 200, "they leave connections to others");
    let least = parse("request_limit = 1\nconnection_limit = 1\nmin_rate = 0").unwrap().limits(1024);
    assert_eq!((least.peer_requests, least.peer_connections, least.min_bytes_per_s), (1, 1, 0));
}
