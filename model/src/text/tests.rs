//! Valid descriptions, the errors of invalid ones, and a check with random texts that no text makes the parser panic.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::{DomainId, DomainLimit, HeavyLoad, Rng};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

fn shipped(name: &str) -> &'static str {
    SHIPPED.iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn pelican_is_the_papers_rack() {
    let spec = parse(shipped("pelican"), "pelican.toml").unwrap();
    assert_eq!((spec.drives.len(), spec.group_drives, spec.code.stacks()), (1152, 24, 18));
    let domains: Vec<usize> = spec.resources_by_id().map(|(id, _)| spec.domain_count(id)).collect();
    assert_eq!(domains, [72, 96, 576, 2], "trays, columns, back-to-back pairs, PCIe roots");
    assert_eq!(spec.resources[3].limit, DomainLimit::BytesPerS(8_000_000_000));
    let kinds: Vec<u32> =
        (0..4).map(|k| spec.drives.iter().map(|d| d.failure_domains[k].0 + 1).max().unwrap()).collect();
    assert_eq!(kinds, [1152, 72, 6, 2], "drives, trays, chassis, servers");
    assert_eq!(spec.profile.starts_per_day(), 10);
    assert_eq!(spec.profile.watts.spin_up_mw, 21_530);
}

#[test]
fn a_switch_of_a_pelican_group_takes_the_calibrated_time() {
    let profile = parse(shipped("pelican"), "pelican.toml").unwrap().profile.clone();
    let mut rng = Rng::new(1);
    let rounds = 2000;
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let mut slowest = |spans: &[crate::Distribution]| {
            (0..24).map(|_| spans.iter().map(|s| s.sample(&mut rng)).sum::<Duration>()).max().unwrap()
        };
        total += slowest(&[profile.unmount, profile.spin_down]) + slowest(&[profile.spin_up, profile.mount]);
    }
    let mean = total / rounds;
    assert!((Duration::from_millis(13_300)..Duration::from_millis(13_700)).contains(&mean), "{mean:?}");
}

#[test]
fn what_makes_load_heavy_is_described() {
    let with = |line: &str| {
        let text = shipped("nas8").replace("[drive]\n", &format!("[drive]\n{line}\n"));
        parse(&text, "nas8.toml").map(|spec| spec.profile.heavy_load).map_err(|error| error.to_string())
    };
    assert_eq!(with(""), Ok(HeavyLoad::StreamOnServer));
    assert_eq!(with("heavy_load = \"stream\""), Ok(HeavyLoad::StreamOnServer));
    assert_eq!(with("heavy_load = { streams = 36 }"), Ok(HeavyLoad::StreamsInRack(36)));
    assert_eq!(with("heavy_load = { queues = \"50 %\" }"), Ok(HeavyLoad::QueueFill(500)));
    for wrong in ["\"often\"", "7", "{}", "{ streams = 1, queues = \"2 %\" }"] {
        let refused = with(&format!("heavy_load = {wrong}")).unwrap_err();
        assert!(refused.contains("{ streams = 36 } or { queues = \"50 %\" }"), "{wrong}: {refused}");
    }
    for wrong in ["0 %", "101 %"] {
        assert!(with(&format!("heavy_load = {{ queues = \"{wrong}\" }}")).unwrap_err().contains("at most 100 %"));
    }
}

#[test]
fn drives_may_be_described_one_by_one() {
    let spec = parse(shipped("nas8"), "nas8.toml").unwrap();
    assert_eq!(spec.drives.len(), 8);
    assert_eq!(spec.drives[5].slot, [5, 0, 0]);
    assert_eq!(spec.drives[5].resource_domains, [DomainId(0), DomainId(1)]);
    assert_eq!(spec.drives[5].failure_domains, [DomainId(5), DomainId(1)]);
}

#[test]
fn labels_paths_and_capacities_of_single_drives_are_kept() {
    let text = shipped("nas8")
        .replace("slot = [0, 0, 0]", "slot = [0, 0, 0]\npath = \"/srv/a\"\ncapacity = \"8 TB\"")
        .replace("controller = 0", "controller = \"left\"")
        .replace("controller = 1", "controller = \"right\"");
    let spec = parse(&text, "x").unwrap();
    assert_eq!(spec.drives[0].path.as_deref(), Some("/srv/a"));
    assert_eq!(spec.drives[0].capacity_bytes, Some(8_000_000_000_000));
    assert_eq!(spec.drives[7].resource_domains[1], DomainId(1));
}

/// The message for the shipped text `name` with `from` replaced by `to`.
fn message(name: &str, from: &str, to: &str) -> String {
    let text = shipped(name);
    assert!(text.contains(from), "{from}");
    parse(&text.replacen(from, to, 1), "rack.toml").unwrap_err().to_string()
}

#[test]
fn every_refusal_says_where_what_and_what_instead() {
    let cases = [
        ("k = 15", "k = ", "this is not TOML"),
        ("k = 15", "kk = 15", "9:1: unknown key `kk`; write `k`, or leave it out (known here: k, r, fragment)"),
        ("k = 15", "k = \"15\"", "9:5: `k` is a string, not a whole number; write one from 0 to 255"),
        ("k = 15", "k = -15", "9:5: `k` is out of range; write a whole number from 0 to 255"),
        ("k = 15", "k = 0", "9:5: a stripe needs at least one data fragment; write k = 1 or more"),
        ("k = 15\n", "", "8:2: `code` has no `k`; write k = 15"),
        ("\"128 KiB\"", "\"128 KB\"", "11:12: \"128 KB\" is not a size; write a number and one of B, kB, MB"),
        ("\"128 KiB\"", "\"130 kB\"", "11:12: a fragment of 130000 bytes is not a whole number of 4 KiB blocks"),
        ("\"128 KiB\"", "\"8 GiB\"", "11:12: a fragment this large is never in memory at once; write \"128 KiB\""),
        (
            "group_drives = 24 ",
            "group_drives = 12 ",
            "5:16: a group of 12 cannot hold a blob, which lies on k + r = 18",
        ),
        ("width = 6", "width = 0", "14:9: `width` is out of range; write a whole number from 1 to 65535"),
        ("depth = 16", "depth = 65535", "13:2: 4718520 drives are more than a rack may have; write at most"),
        ("[\"width\", \"height\"]", "[\"widht\"]", "20:9: \"widht\" is no coordinate; write \"width\""),
        ("[\"height/2\"]", "[\"height/0\"]", "cannot divide by \"0\"; write \"height\" or"),
        ("\"width\", \"height\"]", "\"width\", \"width/2\"]", "width is there twice; write it once"),
        ("active_drives = 2 ", "active_drives = 2\nwatts = 5", "19:12: a resource has exactly one limit; write one of"),
        ("active_drives = 2 ", "active_drives = 0 ", "21:17: no drive could ever spin; write active_drives = 1"),
        ("bytes_per_s = \"64 Gb/s\"\nhard = false", "bytes_per_s = \"64 Gb/s\"\nhard = true", "so it cannot be hard"),
        ("hard = true\n", "", "19:12: `power` has no `hard`; write hard = true if a fuse trips"),
        ("hard = true\n", "hard = 1\n", "`hard` is an integer, not true or false; write hard = true or hard = false"),
        ("\"4.2 ms\"", "4.2", "`seek` is a float, not text in quotes; write seek = \"13.5 s\" or \"4.2 ms\""),
        ("min = \"8 s\"", "min = \"13 s\"", "min 13s is above max 12s; write the shorter one as min"),
        ("standby = 1.56", "standby = 1.5678", "cannot be read as watts; write a number with up to three decimals"),
        ("standby = 1.56", "standby = inf", "cannot be read as watts; write"),
        ("standby = 1.56", "standby = 15.6", "a drive in standby draws more than one that spins; write"),
        ("[geometry]", "[geometri]", "13:2: unknown key `geometri`; write `geometry`"),
        ("name = \"pelican\"", "", "1:1: the rack has no `name`; write name = \"cold-1\""),
        (
            "same = [\"width/3\"]\nbytes",
            "bytes",
            "the rule is missing by which drives share a domain of `pcie`; write same =",
        ),
    ];
    for (from, to, expected) in cases {
        let message = message("pelican", from, to);
        assert!(message.starts_with("rack.toml:") && message.contains(expected), "{to:?} gives {message}");
    }
}

#[test]
fn single_drives_are_refused_at_their_own_line() {
    let cases = [
        ("slot = [7, 0, 0]", "slot = [6, 0, 0]", ":68:8: slot [6, 0, 0] is that of drives[6] already; give each drive"),
        ("slot = [7, 0, 0]", "slot = [7, 0]", ":68:8: a slot is three numbers; write [width, depth, height]"),
        ("slot = [7, 0, 0]", "slot = [7, 0, 70000]", ":68:15: `slot` is out of range; write a whole number from 0"),
        ("slot = [7, 0, 0]", "slto = [7, 0, 0]", ":68:1: unknown key `slto`; write `slot`"),
        (
            "{ power = 0, controller = 0 }",
            "{ controller = 0 }",
            "this drive is in no domain of `power`; write domains = { power = 0 }",
        ),
        ("{ power = 0, controller = 0 }", "{ powr = 0, controller = 0 }", ":34:13: unknown key `powr`; write `power`"),
        (
            "fails_with = { controller",
            "fails_with = { drive = 1, controller",
            "`drive` has a rule already; leave this out",
        ),
        ("[[drives]]", "[geometry]\nwidth = 1\n[[drives]]", "leave out one of the two"),
    ];
    for (from, to, expected) in cases {
        let message = message("nas8", from, to);
        assert!(message.contains(expected), "{to:?} gives {message}");
    }
}

#[test]
fn drives_of_a_pool_are_in_the_domains_of_the_rack() {
    // Beside the row of width 0 and height 0, whose tray supplies two drives that spin.
    let by_rule = "[[pool]]\nslot = [0, 16, 0]\npath = \"/mnt/ssd\"\n\n[[pool]]\n\n[geometry]";
    let text = shipped("pelican").replace("[geometry]", by_rule);
    let spec = parse(&text, "rack.toml").unwrap();
    let row = spec.drives[0].resource_domains[0];
    assert_eq!(spec.pool[0].resource_domains, [Some(row), None, None, Some(spec.drives[0].resource_domains[3])]);
    assert_eq!(
        (spec.pool[0].path.as_deref(), &spec.pool[1].resource_domains),
        (Some("/mnt/ssd"), &alloc::vec![None; 4])
    );
    assert_eq!(spec.always_on_in(crate::ResourceId(0))[row.index()], 1);
    let one_by_one = "[[pool]]\nslot = [8, 0, 0]\ndomains = { power = 0, controller = 1 }\n\n[drive]";
    let spec = parse(&shipped("nas8").replace("[drive]", one_by_one), "rack.toml").unwrap();
    assert_eq!(spec.pool[0].resource_domains, [Some(DomainId(0)), Some(DomainId(1))]);
    let cases = [
        ("slot = [8, 0, 0]\n", "", "shares nothing with it; write its slot as well"),
        ("slot = [8, 0, 0]", "slot = [7, 0, 0]", "is that of drives[7] already"),
        ("power = 0, controller = 1", "power = 0", "this drive is in no domain of `controller`"),
        ("domains =", "fails_with =", "unknown key `fails_with`"),
    ];
    for (from, to, expected) in cases {
        let text = shipped("nas8").replace("[drive]", &one_by_one.replace(from, to));
        let message = parse(&text, "rack.toml").unwrap_err().to_string();
        assert!(message.contains(expected), "{to:?} gives {message}");
    }
    let five = "[[pool]]\nslot = [SLOT, 0, 0]\ndomains = { power = 0, controller = 1 }\n\n";
    let five: Vec<_> = (8..13).map(|slot| five.replace("SLOT", &format!("{slot}"))).collect();
    let text = shipped("nas8").replace("[drive]", &(five.concat() + "[drive]"));
    let message = parse(&text, "rack.toml").unwrap_err().to_string();
    assert!(message.contains("5 drives of one domain count as spinning at all times"), "{message}");
}

#[test]
fn what_is_written_is_read_back_as_the_same_rack() {
    let again = |spec: &RackSpec| {
        let text = write(spec, |drive| (drive.0 == 1).then(|| "a note\nof two \u{7} lines".to_string()));
        let back = parse(&text, "written.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(&back, spec);
        text
    };
    for (name, text) in SHIPPED {
        again(&parse(text, name).unwrap());
    }
    let mut draft = crate::RackDraft::clone(&parse(shipped("nas8"), "nas8.toml").unwrap());
    draft.resources[0].name = "the.supply".into();
    draft.pack_bytes = 123_456_789;
    draft.drives[0].capacity_bytes = Some(11_987_654_321_000);
    draft.drives[0].bytes_per_s = Some(181_234_567);
    draft.drives[0].path = Some("/dev/disk/by-id/ata-\"odd\\ \u{e4}\t".into());
    let argv = ["/bin/relay", "a b", "\"", ""].map(ToString::to_string).to_vec();
    let command = |seconds| {
        crate::DrivePower::Command(crate::PowerCommand { argv: argv.clone(), timeout: Duration::from_secs(seconds) })
    };
    (draft.drives[1].path, draft.drives[1].power) = (Some("/dev/x".into()), command(7));
    (draft.drives[2].path, draft.drives[2].power) = (Some("/dev/y".into()), command(30));
    draft.drives[3].power = crate::DrivePower::None;
    draft.profile.rate_spread = crate::RateSpread { zone_permille: 305, drive_permille: 50 };
    draft.profile.heavy_load = HeavyLoad::QueueFill(500);
    draft.profile.seek = Duration::from_nanos(8_500_001);
    draft.profile.spin_up.stragglers = Some(crate::Stragglers { permille: 5, max: Duration::from_secs(40) });
    draft.profile.watts.standby_mw = 805;
    let pool = |slot, domain: Option<u32>| crate::PoolDriveSpec {
        slot,
        resource_domains: alloc::vec![domain.map(DomainId), None],
        path: None,
        disk: None,
    };
    draft.pool = alloc::vec![pool(Some([9, 0, 0]), Some(0)), pool(None, None)];
    (draft.pool[1].path, draft.pool[1].disk) = (Some("/mnt/p".into()), Some("/dev/disk/by-id/p".into()));
    let text = again(&RackSpec::validated(draft).unwrap());
    for line in [
        "# a note of two   lines\n[[drives]]",
        "domains = { \"the.supply\" = 0, controller = 0 }",
        "capacity = \"11987654.321 MB\"\nbytes_per_s = ",
        "power = { command = [\"/bin/relay\", \"a b\", \"\\\"\", \"\"], timeout = \"7 s\" }",
        "watts = { standby = 0.805, spin_up = 24, active = 6.5 }",
        "rate_spread = { zone = \"30.5 %\", drive = \"5 %\" }",
        "path = \"/mnt/p\"\ndisk = \"/dev/disk/by-id/p\"",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
}

#[test]
fn who_controls_the_power_of_a_drive_is_described() {
    use crate::DrivePower::{None, Own};
    let mixed = |drive: &str, profile: &str| {
        let text =
            shipped("nas8").replacen("[[drives]]\n", &format!("[[drives]]\npath = \"/dev/disk/by-id/a\"\n{drive}"), 1);
        let text = text.replace("active_drives = 4", "active_drives = 8");
        let text = text.replace("[drive]\n", &format!("[drive]\n{profile}\n"));
        parse(&text, "nas8.toml")
            .map(|spec| spec.drives[..2].iter().map(|drive| drive.power.clone()).collect::<Vec<_>>())
    };
    let command = |seconds| {
        let argv = alloc::vec!["/bin/relay".to_string(), "7".to_string()];
        crate::DrivePower::Command(crate::PowerCommand { argv, timeout: Duration::from_secs(seconds) })
    };
    assert_eq!(mixed("", "").unwrap(), [Own, Own]);
    assert_eq!(mixed("", "power = \"none\"").unwrap(), [Own, None], "the default is for those it fits");
    let by_command = "power = { command = [\"/bin/relay\", \"7\"] }";
    assert_eq!(mixed("", by_command).unwrap(), [command(30), Own]);
    let in_time = "power = { command = [\"/bin/relay\", \"7\"], timeout = \"9 s\" }\n";
    assert_eq!(mixed(in_time, by_command).unwrap(), [command(9), Own]);
    assert_eq!(mixed("power = \"own\"\n", by_command).unwrap(), [Own, Own]);
    for (wrong, expected) in [
        ("power = \"none\"\n", "a whole disk is started and stopped; leave `power` out"),
        ("power = \"off\"\n", "this power control is unknown; write power = \"none\""),
        ("power = 7\n", "this is not a power control; write power = \"none\""),
        ("power = { comand = [\"/x\"] }\n", "unknown key `comand`; write `command`"),
        ("power = { command = [] }\n", "found by its absolute path"),
        ("power = { command = \"/x\" }\n", "not a list; write command = "),
    ] {
        let message = mixed(wrong, "").unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("nas8.toml:3"), "{wrong} gives {message}");
    }
}

#[test]
fn the_guide_shows_real_messages() {
    let guide = include_str!("../../../docs/reference/racks.md");
    let block = |after: &str| {
        let rest = guide.split_once(after).unwrap().1;
        let (_, rest) = rest.split_once("```").unwrap();
        let (body, _) = rest.split_once('\n').unwrap().1.split_once("```").unwrap();
        body
    };
    let example = block("## A whole example");
    parse(example, "example.toml").unwrap();
    let [from, to] = ["active_drives = 1\n", "active_drive = 1\n"];
    assert!(example.contains(from));
    let error = parse(&example.replacen(from, to, 1), "box.toml").unwrap_err();
    assert_eq!(block("## When it is wrong").trim(), error.to_string());
}

/// Any bytes: a rack or a refusal that keeps its promises, never a panic.
fn fuzz_body(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text, "f") {
        Ok(spec) => assert!(RackSpec::validated((*spec).clone()).is_ok()),
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1, "{error}");
            assert!(error.column >= 1 && error.message.contains(';'), "{error}");
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const PIECES: [&str; 16] = [
        "[",
        "]",
        "{",
        "}",
        "\"",
        "=",
        "\n",
        ".",
        "0",
        "-1",
        "99999999999999999999",
        "[[drives]]\n",
        "true",
        "#",
        "\u{fc}",
        "e9",
    ];
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = (at + rng.below(12) as usize).min(bytes.len());
    match rng.below(5) {
        0 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece: Vec<u8> = bytes[at..end].to_vec();
            let to = rng.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, piece);
        }
        3 => bytes.truncate(at),
        _ => {
            let piece = PIECES[rng.below(PIECES.len() as u64) as usize];
            bytes.splice(at..end, piece.bytes());
        }
    }
}

#[test]
fn no_text_makes_it_panic() {
    let deep = "a = ".to_string() + &"[".repeat(100_000);
    let dotted = "a.".repeat(10_000) + "b = 1";
    for text in ["", "\0", "\u{feff}name", "name = \"x\"\nname = \"y\"", "[drive]\n[drive]", "= 1", &deep, &dotted] {
        fuzz_body(text.as_bytes());
    }
    for seed in 0..6_000 {
        let mut rng = Rng::for_thing(0x7061_6e74_7279, seed);
        let (_, text) = SHIPPED[rng.below(3) as usize];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=rng.below(4) {
            mutate(&mut bytes, &mut rng);
        }
        fuzz_body(&bytes);
    }
}

#[test]
fn shipped_names_are_the_names_inside() {
    for (name, text) in SHIPPED {
        assert_eq!(parse(text, &format!("{name}.toml")).unwrap().name, name);
    }
}
