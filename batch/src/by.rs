//! The key by which records are assigned to partitions: `hash(a, b)`, `range(column, v1, v2, ...)`, `value(column)`.

use crate::error::Error;
use crate::expression::{ExpectedSyntax, Literal, Parsed, as_name, keyword, literal, must, name, sign};
use crate::filter::Filter;
use crate::format::{Format, HEADER};
use crate::hint::read_or_hint;
use crate::notes::logical_name;
use arrow_schema::{Field, Schema};
use std::fmt;
use std::str::FromStr;
use winnow::combinator::{alt, cut_err, delimited, preceded, repeat, separated};
use winnow::error::ErrMode;
use winnow::prelude::*;

/// The maximum number of partitions of a job, and so of values of `value(column)`.
pub const PARTITIONS_MAX: usize = 4096;

/// The key that determines the partition of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// [`crate::hash_rows`] of the values of some columns; the number of partitions is [`crate::Spec::partitions`].
    Hash {
        /// The columns, one or more.
        columns: Vec<String>,
    },
    /// n bounds make n + 1 partitions: below the first bound, from each bound to below the next, and from the last on.
    /// Nulls go to the first partition, NaN to the last.
    Range {
        /// The column.
        column: String,
        /// Ascending.
        bounds: Vec<Literal>,
    },
    /// A partition for each distinct value, [`PARTITIONS_MAX`] at most, numbered in the order in which values are
    /// found. Null counts as a separate value, and all NaN are one value.
    Value {
        /// The column.
        column: String,
    },
}

impl By {
    /// The columns of the key.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Self::Hash { columns } => columns.iter().map(String::as_str).collect(),
            Self::Range { column, .. } | Self::Value { column } => vec![column],
        }
    }

    /// The number of partitions, if the key alone determines it.
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
        read_or_hint(text, by)
    }
}

fn by(input: &mut &str) -> Parsed<By> {
    let bounds = (name, repeat(0.., preceded(sign(","), literal)));
    cut_err(alt((
        call("hash", separated(1.., name, sign(","))).map(|columns| By::Hash { columns }),
        call("range", bounds).map(|(column, bounds)| By::Range { column, bounds }),
        call("value", name).map(|column| By::Value { column }),
    )))
    .context("hash(...), range(...) or value(...)")
    .parse_next(input)
}

/// `function(arguments)`.
fn call<'a, T>(
    function: &'static str,
    arguments: impl Parser<&'a str, T, ErrMode<ExpectedSyntax>>,
) -> impl Parser<&'a str, T, ErrMode<ExpectedSyntax>> {
    let end = must(")", "a comma or a closing parenthesis");
    preceded(keyword(function), delimited(must("(", "an opening parenthesis"), arguments, end))
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

/// The specification of a repartition of some objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The format of the objects.
    pub format: Format,
    /// The key that determines the partition of a record.
    pub by: By,
    /// The number of partitions: required for `hash`; 0 or the right number for `range`; for `value` the maximum
    /// number, or 0 for [`PARTITIONS_MAX`].
    pub partitions: usize,
    /// The columns to keep, in this order; all of them if `None`.
    pub columns: Option<Vec<String>>,
    /// The records to keep; all of them if `None`.
    pub filter: Option<Filter>,
    /// The format of the output.
    pub output: Format,
}

impl Spec {
    /// The largest number of partitions.
    ///
    /// # Errors
    /// [`Error::OnePartition`] if there is only one, [`Error::PartitionCount`] if the number contradicts the key.
    pub fn partition_count(&self) -> Result<usize, Error> {
        let one = |hint| Error::OnePartition { by: self.by.to_string(), hint };
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

    /// The columns to read, without repetition; all of them if `None`.
    pub(crate) fn needed(&self) -> Option<Vec<&str>> {
        let mut needed: Vec<&str> = self.columns.as_ref()?.iter().map(String::as_str).collect();
        let also = self.by.columns().into_iter().chain(self.filter.iter().flat_map(Filter::columns));
        for column in also {
            if !needed.contains(&column) {
                needed.push(column);
            }
        }
        Some(needed)
    }
}

/// Checks that two objects have the same columns (names, types, nulls and order), and for CSV the same header.
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
        let kind = |f: &Field| logical_name(f).map_or_else(|| f.data_type().to_string(), str::to_owned);
        let columns = columns.map(|f| format!("`{}` {}{}", f.name(), kind(f), null(f.is_nullable())));
        columns.chain(schema.metadata().get(HEADER).map(|header| format!("`{header}`"))).collect()
    };
    let (ours, theirs) = (described(first.1), described(second.1));
    let differ = (0..ours.len().max(theirs.len())).find(|index| ours.get(*index) != theirs.get(*index));
    let Some(index) = differ else { return Ok(()) };
    let described = |columns: &[String]| columns.get(index).map_or_else(|| String::from("nothing"), Clone::clone);
    let difference = format!("one has {} where the other has {}", described(&ours), described(&theirs));
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
    fn an_error_names_the_character_and_what_is_expected_there() {
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
