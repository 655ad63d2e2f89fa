//! Objects below the prefix of a job that are not part of its input: those that the user excludes, and the bookkeeping
//! files that Spark and similar programs write beside their data.
//!
//! Invariant: excluded objects are counted and reported, and are never removed with the input.

use glob::Pattern;

/// Files of Spark, Hadoop and Databricks that hold no records, by full name.
const BOOKKEEPING: [&str; 3] = ["_SUCCESS", "_metadata", "_common_metadata"];
/// The same, by the beginning of the name.
const BOOKKEEPING_BEGINS: [&str; 2] = ["_committed_", "_started_"];
/// Number of excluded objects that a report names.
const NAMED_MAX: usize = 3;

/// The rules of exclusion, and the objects excluded so far.
#[derive(Debug)]
pub(super) struct Excluded {
    /// The prefix that patterns are relative to. `None` if the input is a single object; nothing is excluded then.
    below: Option<String>,
    patterns: Vec<Pattern>,
    count: u64,
    first: Vec<String>,
}

impl Excluded {
    /// Excludes what `patterns` match below `prefix`, and bookkeeping files.
    ///
    /// # Errors
    /// An invalid pattern, in words.
    pub fn below(prefix: &str, patterns: &[String]) -> Result<Self, String> {
        let parsed = |pattern: &String| {
            Pattern::new(pattern).map_err(|error| {
                format!("--exclude `{pattern}`: {error}; write a pattern such as `*.crc` or `tmp/*`, below the prefix")
            })
        };
        let patterns = patterns.iter().map(parsed).collect::<Result<_, _>>()?;
        Ok(Self { below: Some(prefix.to_owned()), patterns, count: 0, first: Vec::new() })
    }

    /// Excludes nothing.
    pub fn nothing() -> Self {
        Self { below: None, patterns: Vec::new(), count: 0, first: Vec::new() }
    }

    /// True if the object `key` is excluded; counts it.
    pub fn takes(&mut self, key: &str) -> bool {
        let Some(below) = &self.below else { return false };
        let name = key.strip_prefix(below.as_str()).unwrap_or(key);
        let is_excluded = is_bookkeeping(name) || self.patterns.iter().any(|pattern| pattern.matches(name));
        if is_excluded {
            self.count += 1;
            if self.first.len() < NAMED_MAX {
                self.first.push(name.to_owned());
            }
        }
        is_excluded
    }

    /// Number of excluded objects.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The report of the excluded objects; `None` without any.
    pub fn said(&self) -> Option<String> {
        let more = if self.count > self.first.len() as u64 { ", ..." } else { "" };
        (self.count > 0).then(|| format!("{} excluded: {}{more}", objects(self.count), self.first.join(", ")))
    }
}

/// True for files that hold no records: bookkeeping files and Hadoop's checksum files.
fn is_bookkeeping(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    BOOKKEEPING.contains(&name)
        || BOOKKEEPING_BEGINS.iter().any(|begin| name.starts_with(begin))
        || name.strip_prefix('.').is_some_and(|name| name.strip_suffix(".crc").is_some())
}

/// A count of objects, in words.
pub(super) fn objects(count: u64) -> String {
    format!("{count} object{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bookkeeping_and_what_the_user_names_is_excluded_and_named() {
        let patterns = ["tmp/*".to_owned(), "*.bak".to_owned()];
        let mut excluded = Excluded::below("in/", &patterns).unwrap();
        let keys = [
            ("in/a.parquet", false),
            ("in/_SUCCESS", true),
            ("in/x=1/.a.parquet.crc", true),
            ("in/x=1/_common_metadata", true),
            ("in/_committed_77", true),
            ("in/_x=1/a.parquet", false),
            ("in/tmp/deep/b.parquet", true),
            ("in/c.bak", true),
            ("in/a.crc", false),
        ];
        for (key, expected) in keys {
            assert_eq!(excluded.takes(key), expected, "{key}");
        }
        let said = "6 objects excluded: _SUCCESS, x=1/.a.parquet.crc, x=1/_common_metadata, ...";
        assert_eq!((excluded.count(), excluded.said().as_deref()), (6, Some(said)));
        let mut single = Excluded::nothing();
        assert!(!single.takes("in/_SUCCESS") && single.said().is_none());
        assert!(Excluded::below("", &["a**b".to_owned()]).unwrap_err().contains("--exclude `a**b`"));
    }
}
