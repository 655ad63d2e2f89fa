//! OpenMetrics text in the older text format of Prometheus (0.0.4), for clients that know no other.
//!
//! In that format, the family of a counter has the name of its samples, with `_total`; an `info` is a gauge whose name
//! ends with `_info`; and there are neither units nor an end mark. Samples are the same in both.

use std::fmt::Write;

/// The text format 0.0.4 of the OpenMetrics text `open`.
pub(super) fn text(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    // The help of a family comes before its type, on which its name depends.
    let mut help = None;
    for line in open.lines() {
        match words(line) {
            Some(("HELP", name, told)) => help = Some((name, told)),
            Some(("TYPE", name, kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, told)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(text, "# HELP {name}{suffix} {told}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            Some(_) => {}
            None if line.starts_with('#') => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// The keyword of a line of metadata, the family, and the rest.
fn words(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next().unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_and_types_of_the_older_format() {
        let open = "# HELP larder_starts Starts of drives.\n# TYPE larder_starts counter\nlarder_starts_total 7\n\
                    # HELP larder_build What runs.\n# TYPE larder_build info\nlarder_build_info{version=\"1\"} 1\n\
                    # HELP larder_power_watts Power.\n# TYPE larder_power_watts gauge\n\
                    # UNIT larder_power_watts watts\nlarder_power_watts 2.5\n# EOF\n";
        let classic = "# HELP larder_starts_total Starts of drives.\n# TYPE larder_starts_total counter\n\
                       larder_starts_total 7\n# HELP larder_build_info What runs.\n# TYPE larder_build_info gauge\n\
                       larder_build_info{version=\"1\"} 1\n# HELP larder_power_watts Power.\n\
                       # TYPE larder_power_watts gauge\nlarder_power_watts 2.5\n";
        assert_eq!(text(open), classic);
    }
}
