//! The disks that smartd wakes. With `-n standby,q` or `-n idle,q` it skips sleeping disks.

use super::finding::Finding;
use super::programs::Programs;
use crate::discover::Tree;

const CAUSE: &str = "smartd";
const FILES: [&str; 2] = ["/etc/smartd.conf", "/etc/smartmontools/smartd.conf"];
const FIX: &str = "add `-n standby,q` to the line, and restart smartd; where the kernel stops disks by runtime power \
                    management that has no effect: leave the disks out";

/// The findings about smartd, if it runs or starts with the machine.
pub fn findings(tree: &Tree, programs: &Programs) -> Vec<Finding> {
    let Some(place) = programs.place(&["smartd"], &["smartd.service", "smartmontools.service"]) else {
        return Vec::new();
    };
    let files: Vec<(&str, String)> = FILES.into_iter().filter_map(|file| Some((file, tree.text(file)?))).collect();
    if files.is_empty() {
        let found = "it has no configuration, and so reads SMART data of all disks, asleep or not";
        return vec![Finding::new(CAUSE, place, found, "write /etc/smartd.conf with `DEVICESCAN -n standby,q`")];
    }
    let lines = files.iter().flat_map(|(file, text)| waking_lines(text).into_iter().map(move |line| (file, line)));
    lines
        .map(|(file, (number, why))| {
            Finding::new(CAUSE, format!("{file}, line {number}"), format!("the line {why}"), FIX)
        })
        .collect()
}

/// The numbers of lines that wake disks, and the reason. A line applies the defaults before it; everything after
/// DEVICESCAN is ignored, as smartd does.
fn waking_lines(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut default: Option<String> = None;
    for (number, line) in joined(text) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(device) = words.next() else { continue };
        let words: Vec<&str> = words.collect();
        let own = words.iter().position(|word| *word == "-n").and_then(|at| words.get(at + 1));
        let mode = own.map(|mode| (*mode).to_owned());
        if device == "DEFAULT" {
            default = mode;
            continue;
        }
        found.extend(wakes(mode.or_else(|| default.clone()).as_deref()).map(|why| (number, why)));
        if device == "DEVICESCAN" {
            break;
        }
    }
    found
}

/// The way in which a line with this argument of `-n` wakes disks, if it does.
fn wakes(argument: Option<&str>) -> Option<&'static str> {
    let mut parts = argument.unwrap_or("never").split(',');
    let skips = matches!(parts.next(), Some("standby" | "idle"));
    match (skips, parts.any(|part| part.parse::<u32>().is_ok())) {
        (false, _) => Some("checks disks that sleep"),
        (true, true) => Some("checks disks that sleep after it skipped them so many times"),
        (true, false) => None,
    }
}

/// Lines with their numbers; a line that ends with a backslash continues on the next one.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => *last = format!("{last} {part}"),
            None => lines.push((at + 1, part.to_owned())),
        }
        goes_on = more;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::waking_lines;

    fn lines(text: &str) -> Vec<usize> {
        waking_lines(text).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn lines_that_skip_sleeping_disks_are_well() {
        assert_eq!(lines("# all\nDEVICESCAN -a -n standby,q -m root\n"), []);
        assert_eq!(lines("DEVICESCAN -d removable -n idle -m root"), []);
        assert_eq!(lines("/dev/sda -a \\\n  -n standby\n/dev/sdb -a # -n standby\n"), [3]);
    }

    #[test]
    fn lines_that_do_not_are_found() {
        assert_eq!(lines("DEVICESCAN -a\n"), [1]);
        assert_eq!(lines("/dev/sda -n never\n/dev/sdb -n sleep\n/dev/sdc -n standby,10,q\n/dev/sdd -n"), [1, 2, 3, 4]);
        assert_eq!(lines("DEVICESCAN -n standby\n/dev/sda -a\n"), [], "smartd ignores what follows");
    }

    #[test]
    fn defaults_hold_for_the_lines_behind_them() {
        assert_eq!(lines("/dev/sda\nDEFAULT -n standby\n/dev/sdb\n/dev/sdc -n never\nDEFAULT -a\n/dev/sdd"), [1, 4, 6]);
    }
}
