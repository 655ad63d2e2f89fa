//! A lifecycle rule in the XML of S3.

use engine::thermometer::Rule;
use quick_xml::escape::escape;
use std::fmt::Write;

/// Prefix of the IDs of Larder's rules.
pub const ID_PREFIX: &str = "larder-";

/// The transition of `rule`, which has this number in larder.toml, to `class` after `days`.
pub fn transition(number: usize, rule: &Rule, days: u32, class: &str) -> String {
    assert!(days >= 1, "S3 knows no shorter time");
    assert!(rule.larger_than_bytes.is_none() && rule.smaller_than_bytes.is_none(), "RGW drops sizes");
    let class = escape(class);
    format!(
        "<Rule><ID>{ID_PREFIX}{number}</ID><Filter>{}</Filter><Status>Enabled</Status><Transition><Days>{days}</Days>\
         <StorageClass>{class}</StorageClass></Transition></Rule>",
        filter(rule)
    )
}

fn filter(rule: &Rule) -> String {
    let mut parts = String::new();
    if !rule.prefix.is_empty() || rule.tags.is_empty() {
        let _ = write!(parts, "<Prefix>{}</Prefix>", escape(&rule.prefix));
    }
    for (key, value) in &rule.tags {
        let _ = write!(parts, "<Tag><Key>{}</Key><Value>{}</Value></Tag>", escape(key), escape(value));
    }
    let conditions = rule.tags.len() + usize::from(!rule.prefix.is_empty());
    if conditions > 1 { format!("<And>{parts}</And>") } else { parts }
}
