//! The CRUSH rule of a pool whose first copy, the primary, is on hot drives and whose others are on cold ones.
//!
//! `ceph osd crush rule create-...` cannot express it, since this rule takes twice. The documented way is to decompile
//! the map, add the rule, compile and set it. [`inserted`] is the middle part; text in, text out.

use crate::cluster::{Rule, Take};

/// Device classes and places of a hot-primary rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPrimary {
    /// The rule's name.
    pub name: String,
    /// The root below which it chooses OSDs.
    pub root: String,
    /// The device class of the first copy.
    pub hot_class: String,
    /// The device class of all others.
    pub cold_class: String,
    /// The type of bucket; each copy of a class is in another one.
    pub domain: String,
}

/// Reasons why a rule cannot be added to a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// No rule number is left.
    #[error("all 256 rule numbers are taken; remove a rule that no pool uses (`ceph osd crush rule rm`)")]
    NoNumber,
    /// The text does not end like the output of `crushtool -d`.
    #[error("the decompiled CRUSH map has no line `# end crush map`")]
    NotAMap,
    /// Another rule of that name exists.
    #[error("there is a rule {0} that says something else; rename or remove it")]
    Taken(String),
}

/// Maximum number of rules in a map (CRUSH_MAX_RULES).
const RULES_MAX: u32 = 256;

impl HotPrimary {
    /// True if `rule` is this one.
    pub fn is(&self, rule: &Rule) -> bool {
        let take = |class: &str, count: i64| Take {
            root: self.root.clone(),
            class: Some(class.to_owned()),
            count,
            domain: self.domain.clone(),
        };
        rule.takes.as_deref() == Some(&[take(&self.hot_class, 1), take(&self.cold_class, -1)])
    }

    /// The rule in the language of `crushtool`, with number `id`. Releases up to 16 need two more lines (`with_sizes`).
    pub fn text(&self, id: u32, with_sizes: bool) -> String {
        let Self { name, root, hot_class, cold_class, domain } = self;
        let sizes = if with_sizes { "\tmin_size 1\n\tmax_size 10\n" } else { "" };
        format!(
            "rule {name} {{\n\tid {id}\n\ttype replicated\n{sizes}\
             \tstep take {root} class {hot_class}\n\tstep chooseleaf firstn 1 type {domain}\n\tstep emit\n\
             \tstep take {root} class {cold_class}\n\tstep chooseleaf firstn -1 type {domain}\n\tstep emit\n}}\n"
        )
    }
}

/// The decompiled map `text` with `rule` as its last one.
pub fn inserted(text: &str, rule: &HotPrimary) -> Result<String, InsertError> {
    const END: &str = "# end crush map";
    if text.lines().any(|line| line.trim_end() == format!("rule {} {{", rule.name)) {
        return Err(InsertError::Taken(rule.name.clone()));
    }
    let (map, end) = text.rsplit_once(END).ok_or(InsertError::NotAMap)?;
    let taken: Vec<u32> = rule_numbers(map).collect();
    let id = (0..RULES_MAX).find(|id| !taken.contains(id)).ok_or(InsertError::NoNumber)?;
    let with_sizes = map.lines().any(|line| line.trim_start().starts_with("min_size "));
    Ok(format!("{map}{}\n{END}{end}", rule.text(id, with_sizes)))
}

/// The numbers of the rules of a decompiled map. Buckets have numbers below 0.
fn rule_numbers(map: &str) -> impl Iterator<Item = u32> {
    let rules = map.split("# rules").nth(1).unwrap_or(map);
    rules.lines().filter_map(|line| line.trim().strip_prefix("id ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The end of the output of `crushtool -d` in 16.2.
    const MAP: &str = "# buckets\nhost host-0 {\n\tid -2\n\tid -5 class ssd\n}\n# rules\n\
        rule replicated_rule {\n\tid 0\n\ttype replicated\n\tmin_size 1\n\tmax_size 10\n\tstep take default\n\
        \tstep chooseleaf firstn 0 type host\n\tstep emit\n}\n\n# end crush map\n";

    fn rule() -> HotPrimary {
        let text = str::to_owned;
        let (name, root, domain) = (text("hot-primary"), text("default"), text("host"));
        HotPrimary { name, root, hot_class: text("ssd"), cold_class: text("cold"), domain }
    }

    #[test]
    fn the_rule_is_the_last_one_and_has_a_number_of_its_own() {
        let map = inserted(MAP, &rule()).unwrap();
        let added = map.strip_prefix(MAP.strip_suffix("# end crush map\n").unwrap()).unwrap();
        assert_eq!(
            added,
            "rule hot-primary {\n\tid 1\n\ttype replicated\n\tmin_size 1\n\tmax_size 10\n\
             \tstep take default class ssd\n\tstep chooseleaf firstn 1 type host\n\tstep emit\n\
             \tstep take default class cold\n\tstep chooseleaf firstn -1 type host\n\tstep emit\n}\n\n# end crush map\n"
        );
        assert_eq!(inserted(&map, &rule()), Err(InsertError::Taken("hot-primary".to_owned())));
    }

    #[test]
    fn a_map_of_a_release_without_sizes_gets_a_rule_without_them() {
        let map = inserted(&MAP.replace("\tmin_size 1\n\tmax_size 10\n", ""), &rule()).unwrap();
        assert!(!map.contains("_size"), "{map}");
    }

    #[test]
    fn what_is_no_map_is_refused() {
        assert_eq!(inserted("rule x {\n}\n", &rule()), Err(InsertError::NotAMap));
        let full: Vec<String> = (0..256).map(|id| format!("rule r{id} {{\n\tid {id}\n}}\n")).collect();
        let full = full.concat();
        assert_eq!(inserted(&format!("# rules\n{full}# end crush map\n"), &rule()), Err(InsertError::NoNumber));
    }
}
