//! The help of the command line: commands grouped by task, and examples for each.
//!
//! Invariants, which tests check: each command is in one group; each command that does something has an example, and
//! the command line accepts it.

use crate::args::Arguments;
use clap::{Command, CommandFactory};
use std::fmt::Write;

/// The commands by task, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Try Larder", &["demo", "quickstart"]),
    ("Size a rack", &["plan", "simulate", "reproduce", "torture"]),
    ("Serve", &["init", "serve", "user", "status", "explain"]),
    ("Move data", &["recall", "repartition"]),
    ("Check and repair", &["verify", "scrub", "drive", "catalog", "recover", "take-over"]),
    ("Ceph clusters", &["ceph"]),
];

/// Examples, by the words of their command.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("demo", &["larder demo", "larder demo --plain"]),
    ("quickstart", &["larder quickstart", "larder quickstart --rack nas8 --time-scale 20 --data ./try"]),
    ("plan", &["larder plan pelican", "larder plan my-rack.toml --svg rack.svg --awake 0"]),
    (
        "simulate",
        &["larder simulate scenarios/home.toml --out report", "larder simulate scenarios/home.toml --seeds 1"],
    ),
    ("reproduce pelican", &["larder reproduce pelican --quick", "larder reproduce pelican --cross-validate"]),
    ("reproduce partition", &["larder reproduce partition --quick"]),
    ("reproduce shifting", &["larder reproduce shifting --quick"]),
    ("reproduce soho", &["larder reproduce soho --quick"]),
    ("reproduce serviceable", &["larder reproduce serviceable --quick"]),
    ("torture", &["larder torture --seed 7", "larder torture --hours 8 --jobs 4"]),
    ("init", &["larder init --rack nas8 --data /srv/larder", "larder init --discover --data /srv/larder"]),
    ("serve", &["larder serve --data /srv/larder"]),
    ("user add", &["larder user add alice"]),
    ("user list", &["larder user list"]),
    ("user remove", &["larder user remove alice"]),
    ("user rotate", &["larder user rotate alice"]),
    ("status", &["larder status", "larder status --watch", "larder status --json"]),
    ("explain", &["larder explain s3://attic/2019/photo.tif", "larder explain --dry-run s3://attic"]),
    ("recall", &["larder recall s3://attic/2019/ --dry-run", "larder recall s3://attic --keys keys.txt"]),
    (
        "repartition",
        &["larder repartition s3://lake/events --to s3://lake/by-user --by hash(user_id) --partitions 12 --dry-run"],
    ),
    ("repartition list", &["larder repartition list"]),
    ("repartition show", &["larder repartition show 3"]),
    ("repartition follow", &["larder repartition follow 3"]),
    ("repartition pause", &["larder repartition pause 3"]),
    ("repartition resume", &["larder repartition resume 3"]),
    ("repartition cancel", &["larder repartition cancel 3"]),
    ("verify", &["larder verify", "larder verify --deep --all"]),
    ("scrub status", &["larder scrub status"]),
    ("scrub pause", &["larder scrub pause"]),
    ("scrub resume", &["larder scrub resume"]),
    ("scrub start", &["larder scrub start", "larder scrub start --group 3"]),
    ("drive list", &["larder drive list"]),
    ("drive fail", &["larder drive fail 7"]),
    ("drive retire", &["larder drive retire 7"]),
    ("drive lost", &["larder drive lost"]),
    ("drive replace", &["larder drive replace 7 --path /dev/disk/by-id/wwn-0x5000c500a1b2c3d4"]),
    ("drive discover", &["larder drive discover"]),
    ("drive power", &["larder drive power /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 test"]),
    ("drive measure", &["larder drive measure --dry-run", "larder drive measure --drive 7"]),
    ("drive doctor", &["larder drive doctor"]),
    ("catalog backup", &["larder catalog backup /mnt/backup/catalog.db"]),
    ("recover", &["larder recover", "larder recover --from /mnt/backup/catalog.db", "larder recover --replace"]),
    ("take-over", &["larder take-over --data /srv/larder"]),
    ("ceph plan", &["larder ceph plan", "larder ceph plan --dumps ./dumps"]),
    ("ceph convert", &["larder ceph convert osd.3 --db /dev/vg/db3", "larder ceph convert pool/attic --apply"]),
    ("ceph revert", &["larder ceph revert osd.3 --apply"]),
    ("ceph agent", &["larder ceph agent", "larder ceph agent --status"]),
    ("ceph migrate", &["larder ceph migrate --rules larder.toml --endpoint http://127.0.0.1:7480"]),
];

/// The command line with its help.
pub fn command() -> Command {
    let command = with_examples(Arguments::command(), "");
    let examples = "`larder COMMAND --help` has examples.";
    let template = "{about}\n\n{usage-heading} {usage}\n\n";
    let template = format!("{template}{}Options:\n{{options}}\n\n{examples}", grouped(&command));
    command.help_template(template)
}

/// The commands with the first sentence about each, group by group.
fn grouped(command: &Command) -> String {
    let mut text = String::new();
    let columns = console::Term::stdout().size_checked().map_or(80, |(_, columns)| columns.clamp(40, 100));
    for (task, names) in GROUPS {
        let _ = writeln!(text, "{task}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let options =
                textwrap::Options::new(columns.into()).initial_indent("  ").subsequent_indent("               ");
            let _ = writeln!(text, "{}", textwrap::fill(&format!("{name:<12} {about}"), options));
        }
        text.push('\n');
    }
    text
}

/// Adds the examples to the commands below the one whose words are `path`.
fn with_examples(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let below = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |command| with_examples(command, &below));
    }
    match EXAMPLES.iter().find(|(of, _)| *of == path) {
        None => command,
        Some((_, [line])) => command.after_help(format!("Example:\n  {line}")),
        Some((_, lines)) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The words of all commands that do something.
    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let words = format!("{path} {}", below.get_name()).trim().to_owned();
            if !below.is_subcommand_required_set() {
                found.push(words.clone());
            }
            leaves(below, &words, found);
        }
    }

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Arguments::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = super::command().render_help().to_string();
        assert!(all.iter().all(|name| help.contains(&format!("\n  {name} "))), "{help}");
        assert!(help.contains("Size a rack:\n  plan ") && help.contains("--log <FILTER>"), "{help}");
    }

    #[test]
    fn each_command_has_examples_that_the_command_line_accepts() {
        let mut found = Vec::new();
        leaves(&Arguments::command(), "", &mut found);
        let documented: Vec<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        found.sort_unstable();
        assert_eq!(found, {
            let mut all = documented.clone();
            all.sort_unstable();
            all
        });
        for (words, lines) in EXAMPLES {
            for line in *lines {
                assert!(line.starts_with(&format!("larder {words}")), "{line}");
                let parsed = command().try_get_matches_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
        let mut drive = command().find_subcommand("drive").unwrap().find_subcommand("fail").unwrap().clone();
        assert!(drive.render_help().to_string().contains("Example:\n  larder drive fail 7"));
    }

    #[test]
    fn a_misspelt_command_is_answered_with_the_right_one() {
        let error = command().try_get_matches_from(["larder", "stauts"]).unwrap_err().to_string();
        assert!(error.contains("'status'"), "{error}");
    }
}
