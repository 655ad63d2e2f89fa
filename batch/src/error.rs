//! Errors of a specification, an object or a record.
//!
//! Invariants:
//! - Each message names the fault and, if the user can do something, the remedy.
//! - Records are counted from 1, without the header of a CSV.

use crate::format::{Format, UnknownFormat};

/// The reason why records could not be read, partitioned or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A partitioner or filter that cannot be read.
    #[error("`{text}`: {wanted} expected at character {at}, found {found}{}", with_quotes(.hint.as_deref()))]
    Syntax {
        /// The expression.
        text: String,
        /// The character, from 1.
        at: usize,
        /// The expected text.
        wanted: &'static str,
        /// The text found there.
        found: String,
        /// The expression with its values in quotes, if that is valid.
        hint: Option<String>,
    },
    /// An unknown format.
    #[error(transparent)]
    UnknownFormat(#[from] UnknownFormat),
    /// A partitioner that makes a single partition.
    #[error("`{by}` makes one partition of everything; {hint}")]
    OnePartition {
        /// The partitioner.
        by: String,
        /// The remedy.
        hint: &'static str,
    },
    /// A number of partitions that contradicts the partitioner.
    #[error("`{by}` has {own} partitions, not {asked}; leave the number out")]
    PartitionCount {
        /// The partitioner.
        by: String,
        /// The number that follows from it.
        own: usize,
        /// The number requested.
        asked: usize,
    },
    /// Bounds of a range that do not ascend.
    #[error("bounds of a range must ascend: `{second}` follows `{first}`")]
    Bounds {
        /// A bound.
        first: String,
        /// The next one, which is not above it.
        second: String,
    },
    /// More partitions than are supported.
    #[error("`{by}`: there can be {limit} partitions at most")]
    TooManyPartitions {
        /// The partitioner.
        by: String,
        /// The limit.
        limit: usize,
    },
    /// More distinct values than partitions.
    #[error("column `{column}` has more than {limit} values; partition by hash({column}) or by ranges of it")]
    TooManyValues {
        /// The column.
        column: String,
        /// The maximum number of partitions.
        limit: usize,
    },
    /// A column that does not exist.
    #[error("there is no column `{column}`; {}", nearest(.near.as_deref()))]
    MissingColumn {
        /// The name requested.
        column: String,
        /// The column with the most similar name.
        near: Option<String>,
    },
    /// A header that names a needed column twice.
    #[error("the header names column `{0}` more than once; rename one of them")]
    AmbiguousColumn(String),
    /// A column that cannot be compared or hashed.
    #[error("column `{column}` is a {kind}, by which nothing is partitioned or filtered")]
    NotAKey {
        /// The column.
        column: String,
        /// Its type.
        kind: String,
    },
    /// A literal that cannot be compared with its column.
    #[error("column `{column}` is {kind}, with which `{literal}` cannot be compared{hint}")]
    Incomparable {
        /// The column.
        column: String,
        /// Its type.
        kind: String,
        /// The literal.
        literal: String,
        /// The remedy, with its punctuation, or nothing.
        hint: &'static str,
    },
    /// A text where a number is needed.
    #[error("record {record}: `{text}` in column `{column}` is no number; compare with a text in quotes instead")]
    NotANumber {
        /// The record.
        record: u64,
        /// Its column.
        column: String,
        /// The text.
        text: String,
    },
    /// A conversion that is not supported.
    #[error(
        "{from} cannot be written as {to}: records come out as what they went in; leave the output's format out, and \
         convert objects before or after"
    )]
    Conversion {
        /// The input's format.
        from: Format,
        /// The output's.
        to: Format,
    },
    /// Less memory than one batch needs.
    #[error("a buffer of {buffer_bytes} bytes does not hold one batch; give at least {needed_bytes}")]
    BufferTooSmall {
        /// The buffer.
        buffer_bytes: u64,
        /// The smallest buffer that suffices.
        needed_bytes: u64,
    },
    /// A row group that does not fit.
    #[error(
        "row group {row_group} has {bytes} bytes and the buffer {buffer_bytes}; give a larger buffer, \
         name fewer columns, or write the object with smaller row groups"
    )]
    RowGroupTooLarge {
        /// The number of the row group, from 0.
        row_group: usize,
        /// The bytes of it that have to be read.
        bytes: u64,
        /// The buffer.
        buffer_bytes: u64,
    },
    /// A row group that does not fit after decompression.
    #[error(
        "row group {row_group} has {bytes} bytes, {plain_bytes} unpacked, and the buffer {buffer_bytes}; give a larger \
         buffer, name fewer columns, or write the object with smaller row groups"
    )]
    RowGroupExpands {
        /// The number of the row group, from 0.
        row_group: usize,
        /// The bytes of it that have to be read.
        bytes: u64,
        /// The bytes after decompression.
        plain_bytes: u64,
        /// The buffer.
        buffer_bytes: u64,
    },
    /// A column that cannot be read as it was written.
    #[error("column `{column}` is {kind}; {hint}")]
    Unreadable {
        /// The column.
        column: String,
        /// Its type, and the consequence.
        kind: &'static str,
        /// The remedy.
        hint: &'static str,
    },
    /// A record that does not fit.
    #[error("record {record} is longer than {limit_bytes} bytes, the most a batch of this buffer holds")]
    RecordTooLong {
        /// The record.
        record: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// Bytes that are not UTF-8.
    #[error("record {record} is not UTF-8; convert the object, or take it as lines, which may be any bytes")]
    NotUtf8 {
        /// The record.
        record: u64,
    },
    /// A record that violates its format.
    #[error("record {record} is not {format}: {reason}")]
    Malformed {
        /// The record.
        record: u64,
        /// The format.
        format: Format,
        /// The fault.
        reason: String,
    },
    /// An object that does not have the format that its name or the job states.
    #[error("this is not {format}: {reason}")]
    NotThisFormat {
        /// The format.
        format: Format,
        /// The fault.
        reason: String,
    },
    /// Fixed records that do not fill the object.
    #[error("{object_bytes} bytes are not whole records of {record_bytes}: {rest} are left over")]
    TruncatedRecord {
        /// The object.
        object_bytes: u64,
        /// A record.
        record_bytes: usize,
        /// The bytes left over.
        rest: u64,
    },
    /// Objects of one set with different columns.
    #[error("{first} and {second} have different columns: {difference}; partition them apart")]
    SchemasDiffer {
        /// An object.
        first: String,
        /// Another.
        second: String,
        /// The first difference.
        difference: String,
    },
    /// An encoded object that does not decode to the rows that were encoded.
    #[error("what was encoded as {format} does not decode to the same records; nothing of it may be kept")]
    VerificationFailed {
        /// The format.
        format: String,
    },
    /// An error of Arrow or Parquet.
    #[error("{doing}: {reason}")]
    Columns {
        /// The operation.
        doing: &'static str,
        /// Their message.
        reason: String,
    },
    /// Any of these errors, in a certain object.
    #[error("{object}: {source}")]
    In {
        /// The object.
        object: String,
        /// The error.
        source: Box<Self>,
    },
}

impl Error {
    /// The same error, in `object`. The batch in which it occurred began after `records_before` other records.
    #[must_use]
    pub fn at(mut self, object: &str, records_before: u64) -> Self {
        if let Self::NotANumber { record, .. } | Self::Malformed { record, .. } | Self::NotUtf8 { record } = &mut self {
            *record += records_before;
        }
        Self::In { object: object.to_owned(), source: Box::new(self) }
    }

    /// The same error, with its record counted from the one after `records_before` others.
    pub(crate) fn counted_from(mut self, records_before: u64) -> Self {
        if let Self::Malformed { record, .. } | Self::NotUtf8 { record } = &mut self {
            *record -= records_before;
        }
        self
    }

    pub(crate) fn columns(doing: &'static str) -> impl FnOnce(arrow_schema::ArrowError) -> Self {
        move |error| Self::Columns { doing, reason: error.to_string() }
    }

    pub(crate) fn missing<'a>(column: &str, columns: impl IntoIterator<Item = &'a str>) -> Self {
        let near = columns
            .into_iter()
            .map(|name| (strsim::damerau_levenshtein(&name.to_lowercase(), &column.to_lowercase()), name))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name.to_owned());
        Self::MissingColumn { column: column.to_owned(), near }
    }
}

fn with_quotes(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("; dates, times and texts stand in quotes: {hint}"))
}

fn nearest(near: Option<&str>) -> String {
    near.map_or_else(|| String::from("there is no column at all"), |name| format!("the nearest name is `{name}`"))
}

/// Runs `work` of a library that may panic over damaged bytes; a panic becomes an error.
pub(crate) fn caught<T>(doing: &'static str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let reason = format!("the bytes are damaged ({})", message.unwrap_or("without a reason"));
        Err(Error::Columns { doing, reason })
    })
}
