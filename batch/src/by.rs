//! How records are told apart: `hash(a, b)`, `range(column, v1, v2, ...)`, `value(column)`.

use crate::words::{Literal, Word, Words, as_name};
use crate::{Error, Format, HEADER, quotes};
use arrow::datatypes::Schema;
use std::fmt;
use std::str::FromStr;

/// The most partitions of a job, and so the most values of `value(column)`.
pub const PARTITIONS_MAX: usize = 4096;

/// What decides upon the partition of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// [`crate::hash_rows`] of the values of some columns; the number of partitions is [`crate::Spec::partitions`].
    Hash {
        /// The columns, one or more.
        columns: Vec<String>,
    },
    /// n bounds make n + 1 partitions: below the first, from each bound to below the next, from the last on.
    /// Nulls go to the first partition, NaN to the last.
    Range {
        /// The column.
        column: String,
        /// Ascending.
        bounds: Vec<Literal>,
    },
    /// A partition for each distinct value, [`PARTITIONS_MAX`] at most, numbered as they are met. Null is a value of
    /// its own, and all NaN are one.
    Value {
        /// The column.
        column: String,
    },
}

impl By {
    /// The columns that decide.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Self::Hash { columns } => columns.iter().map(String::as_str).collect(),
            Self::Range { column, .. } | Self::Value { column } => vec![column],
        }
    }

    /// How many partitions there are, as far as that is known without any record.
    pub(crate) fn own_partitions(&self) -> Option<usize> {
        match self {
            Self::Range { bounds, .. } => Some(bounds.len() + 1),
            Self::Hash { .. } | Self::Value { .. } => None,
        }
    }
}

impl FromStr for By {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|error| quotes::advised(error, |quoted| Self::read(quoted).is_ok()))
    }
}

impl By {
    fn read(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text)?;
        let kind = match words.peek() {
            Word::Name(name) => name.to_ascii_lowercase(),
            _ => return Err(words.wrong("hash(...), range(...) or value(...)")),
        };
        if !["hash", "range", "value"].contains(&kind.as_str()) {
            return Err(words.wrong("hash(...), range(...) or value(...)"));
        }
        words.next()?;
        words.must("(", "an opening parenthesis")?;
        let column = words.name()?;
        let by = match kind.as_str() {
            "hash" => {
                let mut columns = vec![column];
                while words.takes(",")? {
                    columns.push(words.name()?);
                }
                Self::Hash { columns }
            }
            "range" => {
                let mut bounds = Vec::new();
                while words.takes(",")? {
                    bounds.push(words.literal()?);
                }
                Self::Range { column, bounds }
            }
            _ => Self::Value { column },
        };
        words.must(")", "a comma or a closing parenthesis")?;
        words.end()?;
        Ok(by)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash { columns } => {
                write!(f, "hash({})", columns.iter().map(|name| as_name(name)).collect::<Vec<_>>().join(", "))
            }
            Self::Range { column, bounds } => {
                write!(f, "range({}", as_name(column))?;
                bounds.iter().try_for_each(|bound| write!(f, ", {bound}"))?;
                f.write_str(")")
            }
            Self::Value { column } => write!(f, "value({})", as_name(column)),
        }
    }
}

/// What to do with a set of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// What the objects are.
    pub format: Format,
    /// What decides upon the partition of a record.
    pub by: By,
    /// How many partitions: needed for `hash`; 0 or the right number for `range`; for `value` the most there may be, or
    /// 0 for [`PARTITIONS_MAX`].
    pub partitions: usize,
    /// Which columns are kept, in this order; all of them if none are named.
    pub columns: Option<Vec<String>>,
    /// Which records are kept.
    pub filter: Option<crate::Filter>,
    /// What is written.
    pub output: Format,
}

impl Spec {
    /// How many partitions there are at most.
    ///
    /// # Errors
    /// [`Error::OnePartition`] if there is but one, [`Error::PartitionCount`] if the number contradicts the
    /// partitioner.
    pub fn partition_count(&self) -> Result<usize, Error> {
        let one = |mend| Error::OnePartition { by: self.by.to_string(), mend };
        match (&self.by, self.by.own_partitions(), self.partitions) {
            (By::Hash { .. }, _, 0 | 1) => Err(one("say into how many, two or more")),
            (By::Range { .. }, Some(1), _) => Err(one("give it bounds, as in range(year, 2000, 2010)")),
            (By::Value { .. }, _, 1) => Err(one("allow for more partitions")),
            (By::Range { .. }, Some(own), asked) if asked != 0 && asked != own => {
                Err(Error::PartitionCount { by: self.by.to_string(), own, asked })
            }
            (_, _, asked) if asked > PARTITIONS_MAX => Err(self.too_many()),
            (_, Some(own), _) if own > PARTITIONS_MAX => Err(self.too_many()),
            (_, Some(own), _) => Ok(own),
            (By::Value { .. }, None, 0) => Ok(PARTITIONS_MAX),
            (_, None, asked) => Ok(asked),
        }
    }

    fn too_many(&self) -> Error {
        Error::TooManyPartitions { by: self.by.to_string(), limit: PARTITIONS_MAX }
    }

    /// The columns that have to be read, without repetition; all of them if `None`.
    pub(crate) fn needed(&self) -> Option<Vec<&str>> {
        let mut needed: Vec<&str> = self.columns.as_ref()?.iter().map(String::as_str).collect();
        let also = self.by.columns().into_iter().chain(self.filter.iter().flat_map(crate::Filter::columns));
        for column in also {
            if !needed.contains(&column) {
                needed.push(column);
            }
        }
        Some(needed)
    }
}

/// Checks that two objects of a set have the same columns, by names, types, nulls and order; of a CSV, the same header.
///
/// # Errors
/// [`Error::SchemasDiffer`], naming both objects and the first column in which they differ.
pub fn same_columns(first: (&str, &Schema), second: (&str, &Schema)) -> Result<(), Error> {
    if first.1.fields() == second.1.fields() && first.1.metadata().get(HEADER) == second.1.metadata().get(HEADER) {
        return Ok(());
    }
    let described = |schema: &Schema| -> Vec<String> {
        let null = |nullable| if nullable { "" } else { ", never null" };
        let columns = schema.fields().iter();
        let columns = columns.map(|f| format!("`{}` {}{}", f.name(), f.data_type(), null(f.is_nullable())));
        columns.chain(schema.metadata().get(HEADER).map(|header| format!("`{header}`"))).collect()
    };
    let (ours, theirs) = (described(first.1), described(second.1));
    let differ = (0..ours.len().max(theirs.len())).find(|index| ours.get(*index) != theirs.get(*index));
    let Some(index) = differ else { return Ok(()) };
    let said = |columns: &[String]| columns.get(index).map_or_else(|| String::from("nothing"), Clone::clone);
    let difference = format!("one has {} where the other has {}", said(&ours), said(&theirs));
    Err(Error::SchemasDiffer { first: first.0.to_owned(), second: second.0.to_owned(), difference })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(by: &str, partitions: usize) -> Spec {
        let by = by.parse().unwrap();
        Spec { format: Format::Csv, by, partitions, columns: None, filter: None, output: Format::Csv }
    }

    #[test]
    fn a_partitioner_reads_what_it_writes() {
        for text in [
            "hash(a, b.c)",
            "range(year, 2000, 2010.5, -3)",
            "range(d, 'it''s', true)",
            "value(kind)",
            "hash(`a b`, `c``,`, record[0..2])",
        ] {
            assert_eq!(text.parse::<By>().unwrap().to_string(), text);
        }
        assert_eq!("HASH( `a b` )".parse::<By>().unwrap(), By::Hash { columns: vec![String::from("a b")] });
    }

    #[test]
    fn a_refusal_names_the_character_and_what_should_stand_there() {
        for (text, at) in [
            ("", 1),
            ("hsh(a)", 1),
            ("hash", 5),
            ("hash()", 6),
            ("hash(a", 7),
            ("hash(a b)", 8),
            ("hash(é,)", 8),
            ("value(a, b)", 8),
            ("range(a, b)", 10),
            ("range(a, 1) x", 13),
            ("range(a, 1.2.3)", 10),
            ("range(a, 'x)", 10),
        ] {
            match text.parse::<By>() {
                Err(Error::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn partitions_are_counted_before_anything_is_read() {
        assert_eq!(spec("hash(a)", 12).partition_count(), Ok(12));
        assert_eq!(spec("range(a, 1, 2)", 0).partition_count(), Ok(3));
        assert_eq!(spec("range(a, 1, 2)", 3).partition_count(), Ok(3));
        assert_eq!(spec("value(a)", 0).partition_count(), Ok(PARTITIONS_MAX));
        assert!(matches!(spec("range(a, 1, 2)", 4).partition_count(), Err(Error::PartitionCount { own: 3, .. })));
        for (by, partitions) in [("hash(a)", 0), ("hash(a)", 1), ("range(a)", 0), ("value(a)", 1)] {
            assert!(matches!(spec(by, partitions).partition_count(), Err(Error::OnePartition { .. })), "{by}");
        }
        assert!(matches!(spec("hash(a)", 5000).partition_count(), Err(Error::TooManyPartitions { .. })));
    }
}
