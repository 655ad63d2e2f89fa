//! `[thermometer]` in `larder.toml`: the operator's rules about hot and cold.
//!
//! A rule on a command line has the same form, as the inside of a TOML table.

use super::{ConfigError, text};
use engine::thermometer::{Rule, Temperature, Thermometer};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The rules about hot and cold, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThermometerConfig {
    /// The temperature of objects for which no rule holds. If not set: hot if there are rules, and cold without rules.
    pub default: Option<Temperature>,
    /// The rules.
    #[serde(rename = "rule")]
    pub rules: Vec<RuleConfig>,
}

/// A rule as it is written: see [`Rule`]. Ages are wall time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleConfig {
    /// Its name, for people.
    pub name: String,
    /// The temperature of the objects for which it holds; cold if not set.
    pub is: Temperature,
    /// The bucket.
    pub bucket: Option<String>,
    /// The prefix of the key.
    pub prefix: String,
    /// Tags, which the object must all have.
    pub tag: BTreeMap<String, String>,
    /// It has more bytes.
    #[serde(rename = "larger_than", deserialize_with = "text::size")]
    pub larger_than_bytes: Option<u64>,
    /// It has fewer bytes.
    #[serde(rename = "smaller_than", deserialize_with = "text::size")]
    pub smaller_than_bytes: Option<u64>,
    /// Minimum time since its bytes were created.
    #[serde(deserialize_with = "text::duration")]
    pub older_than: Duration,
    /// Minimum time since it was last read or written.
    #[serde(deserialize_with = "text::duration")]
    pub unread_for: Duration,
    /// Minimum number of reads.
    pub reads_at_least: u32,
    /// Every byte of it was read.
    pub read_through: bool,
}

impl RuleConfig {
    fn rule(&self) -> Rule {
        Rule {
            name: self.name.clone(),
            is: self.is,
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            tags: self.tag.clone().into_iter().collect(),
            larger_than_bytes: self.larger_than_bytes,
            smaller_than_bytes: self.smaller_than_bytes,
            older_than: self.older_than,
            unread_for: self.unread_for,
            reads_at_least: self.reads_at_least.into(),
            read_through: self.read_through,
        }
    }

    /// The reason that it can never hold, if so.
    fn contradiction(&self) -> Option<String> {
        if self.bucket.as_deref().is_some_and(|bucket| bucket.is_empty() || bucket.contains('/')) {
            return Some("`bucket` is not the name of a bucket; write the beginning of keys as `prefix`".to_owned());
        }
        let none = self.larger_than_bytes.zip(self.smaller_than_bytes);
        none.filter(|(larger, smaller)| smaller.saturating_sub(1) <= *larger).map(|(larger, smaller)| {
            format!("no object is larger than {larger} and smaller than {smaller} bytes; write a larger `smaller_than`")
        })
    }
}

impl ThermometerConfig {
    /// The engine's rules.
    pub fn thermometer(&self) -> Thermometer {
        let usual = if self.rules.is_empty() { Temperature::Cold } else { Temperature::Hot };
        let rules = self.rules.iter().map(RuleConfig::rule).collect();
        Thermometer { rules, default: self.default.unwrap_or(usual) }
    }

    /// The mistake in its rules, if any.
    pub(super) fn contradiction(&self) -> Option<String> {
        let wrong = |(number, rule): (usize, &RuleConfig)| {
            let what = rule.contradiction()?;
            Some(format!("`thermometer.rule` number {number}{}: {what}", named(&rule.name)))
        };
        (1..).zip(&self.rules).find_map(wrong)
    }
}

/// ` ("name")`, or nothing.
fn named(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" (\"{name}\")") }
}

/// The form of a rule on a command line.
const AS_WRITTEN: &str = "write a rule as in larder.toml: 'larger_than = \"10 kB\", older_than = \"2 min\"'";

/// A rule as written on a command line: `larger_than = "10 kB", older_than = "2 min"`, for example.
///
/// # Errors
/// Those of [`Config::parse`](super::Config::parse).
pub fn parse_rule(written: &str) -> Result<Rule, ConfigError> {
    #[derive(Deserialize)]
    struct Written {
        rule: RuleConfig,
    }
    let path = Path::new("--rule");
    let inside = written.trim().trim_start_matches('{').trim_end_matches('}');
    let table = format!("rule = {{ {inside} }}");
    let Written { rule } = toml::from_str(&table).map_err(|error| {
        let value = error.span().and_then(|span| table.get(span)).unwrap_or_default();
        let what = text::plainly(error.message(), value);
        ConfigError::at(path, "", None, &format!("{what}; {AS_WRITTEN}"))
    })?;
    match rule.contradiction() {
        Some(what) => Err(ConfigError::at(path, "", None, &what)),
        None => Ok(rule.rule()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("larder.toml"), text)
    }

    #[test]
    fn without_a_rule_all_is_cold_and_with_one_the_rest_is_hot() {
        let of = |text: &str| parse(text).unwrap().thermometer.thermometer();
        assert!(!of("").is_used());
        assert_eq!(of("[[thermometer.rule]]\n").default, Temperature::Hot);
        assert_eq!(of("[thermometer]\ndefault = \"cold\"\n[[thermometer.rule]]\n").default, Temperature::Cold);
        assert_eq!(of("[thermometer]\ndefault = \"hot\"\n").default, Temperature::Hot);
    }

    #[test]
    fn a_rule_says_all_that_the_engine_knows_and_is_written_alike_everywhere() {
        let keys = [
            "name = \"line\"",
            "is = \"hot\"",
            "bucket = \"images\"",
            "prefix = \"a/\"",
            "tag = { kind = \"raw\", x = \"\" }",
            "larger_than = \"10 kB\"",
            "smaller_than = \"1 GB\"",
            "older_than = \"2 min\"",
            "unread_for = \"1 d\"",
            "reads_at_least = 2",
            "read_through = true",
        ];
        let configured = parse(&format!("[[thermometer.rule]]\n{}\n", keys.join("\n"))).unwrap();
        let configured = configured.thermometer.thermometer().rules;
        assert_eq!(configured, [parse_rule(&keys.join(", ")).unwrap()]);
        assert_eq!(configured, [parse_rule(&format!("{{{}}}", keys.join(", "))).unwrap()]);
        let Rule { larger_than_bytes, older_than, tags, .. } = &configured[0];
        assert_eq!((*larger_than_bytes, *older_than, tags.len()), (Some(10_000), Duration::from_mins(2), 2));
    }

    #[test]
    fn a_wrong_rule_is_refused_with_what_to_write() {
        let complaint = |text: &str| parse(text).unwrap_err().to_string();
        for (text, what) in [
            ("[[thermometer.rule]]\nolder_then = \"2 min\"", "write `older_than`"),
            ("[[thermometer.rule]]\nolder_than = 2", "write \"2 s\" if seconds are meant"),
            (
                "[[thermometer.rule]]\n[[thermometer.rule]]\nname = \"x\"\nlarger_than = 9\nsmaller_than = 10",
                "number 2 (\"x\")",
            ),
            ("[[thermometer.rule]]\nbucket = \"a/b\"", "write the beginning of keys as `prefix`"),
            ("[[thermometer.rule]]\nis = \"warm\"", "warm"),
        ] {
            assert!(complaint(text).contains(what), "{}", complaint(text));
        }
        let message = parse_rule("older_than = \"2 min\", size = 3").unwrap_err().to_string();
        assert!(message.contains("there is no key `size` here"), "{message}");
        assert!(parse_rule("larger_than = ").is_err());
    }
}
