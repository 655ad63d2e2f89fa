//! `larder explain`: the place of one object, the time to its first byte, and its temperature.

use crate::args::Explain;
use crate::drives;
use crate::human::{bytes, count, counted, seconds};
use crate::output::{ask, show};
use crate::temperature::{self, date};
use anyhow::bail;
use server::report::{Explanation, PlaceReport, RackPlace, UnusableStack};
use std::fmt::Write;

/// `larder explain`.
pub fn explain(options: &Explain) -> anyhow::Result<()> {
    if options.dry_run || options.rule.is_some() {
        return temperature::dry_run(options);
    }
    let (bucket, key) = (&options.place.bucket, &options.place.prefix);
    if key.is_empty() {
        bail!(
            "s3://{bucket} names no object; write it as s3://bucket/key, or add --dry-run to apply the rules to all \
             objects"
        );
    }
    let Some(explanation) = ask(&options.data, async |client| client.explain(bucket, key).await)? else {
        bail!("there is no object s3://{bucket}/{key}; list the objects with `aws s3 ls s3://{bucket} --recursive`");
    };
    show(options.json, &explanation, text)
}

fn text(explanation: &Explanation) -> String {
    let Explanation { bucket, key, bytes: length, etag, modified_ms, place, quarantined, temperature } = explanation;
    let mut text = format!(
        "object    s3://{bucket}/{key}\nsize      {} ({} bytes)\nwritten   {}\netag      {etag}\n",
        bytes(*length),
        count(*length),
        date(*modified_ms),
    );
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    if let Some(reason) = quarantined {
        row(
            "trouble",
            format!("in quarantine: {reason}; write the object again, or restore its file and restart the server"),
        );
    }
    match place {
        PlaceReport::Workshop { slots, age_s, migrating } => {
            let going = match quarantined {
                Some(_) => "where it stays",
                None if *migrating => "on its way to the rack",
                None => "not yet on its way to the rack",
            };
            let files = match slots[..] {
                [slot] => format!("slot {slot}"),
                [first, .., last] => format!("{} slots from {first} to {last}", slots.len()),
                [] => "no slot".to_owned(),
            };
            row("place", format!("workshop, {files}, for {}, {going}", seconds(*age_s)));
            row("wait", "none: it is read from the workshop".to_owned());
            temperature.iter().flat_map(temperature::rows).for_each(|(name, value)| row(&name, value));
        }
        PlaceReport::Rack(place) => {
            let RackPlace { blob, members, offset, group, group_state, class, code_data, code_parity, .. } = place;
            row("place", format!("rack, group {group} ({group_state}) of class {class}"));
            let others = match members {
                0 | 1 => "of its own".to_owned(),
                _ => format!("with {}, at byte {}", counted(u64::from(members - 1), "other object"), count(*offset)),
            };
            row("blob", format!("{blob}, {others}, as {code_data} + {code_parity} stacks"));
            let wait = match (place.wait_min_s, place.wait_expected_s, place.wait_max_s) {
                _ if place.recalled => "none: a recall is in the spool".to_owned(),
                (Some(min), Some(expected), Some(max)) => {
                    let (expected, min, max) = (seconds(expected), seconds(min), seconds(max));
                    format!("about {expected} until the first byte, {min} to {max}")
                }
                _ => "waiting does not help".to_owned(),
            };
            if place.state != "readable" {
                row("state", trouble(&place.state, &place.unusable, *code_parity, place.recalled));
            }
            row("wait", wait);
            text.push('\n');
            text.push_str(&drives::table(&place.drives));
        }
    }
    text
}

/// The sentence about an object that cannot be read: the drives that cause this, and the remedy.
fn trouble(state: &str, unusable: &[UnusableStack], parity: u8, recalled: bool) -> String {
    let of = |why: &str| {
        let drives: Vec<u32> = unusable.iter().filter(|stack| stack.why == why).map(|stack| stack.drive).collect();
        (!drives.is_empty()).then(|| {
            let noun = if drives.len() == 1 { "drive" } else { "drives" };
            format!("{noun} {} {why}", drives.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        })
    };
    let why: Vec<String> = ["failed", "away"].into_iter().filter_map(of).collect();
    let damaged = of("damaged").map(|drives| format!("stacks on {drives}"));
    let why = why.into_iter().chain(damaged).collect::<Vec<_>>().join("; ");
    let why = if why.is_empty() { "a read found too many damaged stacks".to_owned() } else { why };
    let away = unusable.iter().any(|stack| stack.why == "away");
    let fix = match (state, recalled) {
        ("lost", true) => "read it now from the recall in the spool, and put it again",
        ("lost", false) if away => "put the missing drives back; if they cannot return, put it again or delete it",
        ("lost", false) => {
            "put the object again from another copy, or delete it; `larder verify --deep --all` names all lost objects"
        }
        _ => "put the drives that are away back; nothing is lost if they return",
    };
    let state = if state == "lost" { "LOST" } else { state };
    format!("{state}: {why}, and the code can replace {}; {fix}", counted(u64::from(parity), "stack"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::report::DriveReport;

    fn explanation(place: PlaceReport) -> Explanation {
        Explanation {
            bucket: "b".into(),
            key: "k".into(),
            bytes: 1234,
            etag: "e".into(),
            modified_ms: 0,
            place,
            quarantined: None,
            temperature: None,
        }
    }

    #[test]
    fn a_cold_object_is_told_with_its_drives_and_its_wait() {
        let drive = DriveReport {
            missed_deadlines: 0,
            drive: 7,
            slot: [1, 2, 3],
            group: Some(4),
            state: "standby".into(),
            starts_today: 1,
            starts_per_day: 10,
            free_bytes: 5,
            reason: None,
            starts_total: 0,
            rated_starts: 0,
            health: None,
            habits: None,
            capacity_bytes: 10,
        };
        let place = PlaceReport::Rack(RackPlace {
            blob: "b9-00c0ffee00c0ffee".into(),
            members: 3,
            offset: 4096,
            group: 4,
            group_state: "asleep".into(),
            class: 2,
            code_data: 2,
            code_parity: 1,
            drives: vec![drive],
            state: "readable".into(),
            unusable: Vec::new(),
            wait_min_s: Some(13.5),
            wait_expected_s: Some(15.0),
            wait_max_s: Some(90.0),
            recalled: false,
        });
        let text = text(&explanation(place));
        for message in [
            "written   Thu, 01 Jan 1970 00:00:00 GMT",
            "place     rack, group 4 (asleep) of class 2",
            "blob      b9-00c0ffee00c0ffee, with 2 other objects, at byte 4,096, as 2 + 1 stacks",
            "wait      about 15 s until the first byte, 14 s to 1 min 30 s",
            "1,2,3",
        ] {
            assert!(text.contains(message), "{message:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_lost_object_is_told_with_its_drives_and_the_fix() {
        let stack = |stack, drive, why: &str| UnusableStack { stack, drive, why: why.into() };
        let failed = [stack(0, 7, "failed"), stack(1, 9, "damaged")];
        let message = trouble("lost", &failed, 1, false);
        assert!(
            message.starts_with("LOST: drive 7 failed; stacks on drive 9 damaged, and the code can replace 1 stack; ")
        );
        assert!(message.contains("put the object again from another copy, or delete it"), "{message}");
        assert!(trouble("lost", &failed, 1, true).contains("read it now"));
        let away = [stack(0, 7, "away"), stack(2, 8, "away")];
        let message = trouble("unavailable", &away, 1, false);
        assert!(
            message.starts_with("unavailable: drives 7, 8 away, ") && message.contains("nothing is lost"),
            "{message}"
        );
    }

    #[test]
    fn a_staged_object_has_no_wait() {
        let text = text(&explanation(PlaceReport::Workshop { slots: vec![3], age_s: 12.0, migrating: true }));
        assert!(text.contains("workshop, slot 3, for 12 s, on its way to the rack") && text.contains("wait      none"));
    }

    #[test]
    fn an_object_in_quarantine_says_why_and_what_to_do() {
        let place = PlaceReport::Workshop { slots: vec![3], age_s: 12.0, migrating: false };
        let explanation = Explanation { quarantined: Some("block 2 is damaged".into()), ..explanation(place) };
        let text = text(&explanation);
        assert!(
            text.contains("in quarantine: block 2 is damaged; write the object again")
                && text.contains("where it stays")
        );
    }
}
