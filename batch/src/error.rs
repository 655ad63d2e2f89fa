//! What can be wrong with a specification, an object or a record; the only errors of this crate.
//!
//! Invariants:
//! - Each sentence says what is wrong and, where the user can do something, what to do.
//! - Records are counted from 1; a CSV's header is none.

use crate::Format;
use crate::quotes::written;

/// Why records could not be read, partitioned or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A partitioner or filter that cannot be read.
    #[error("`{text}`: {wanted} expected at character {at}, found {found}{}", written(.mend.as_deref()))]
    Syntax {
        /// What was written.
        text: String,
        /// Character, from 1.
        at: usize,
        /// What should stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
        /// The same with its values in quotes, where that can be read.
        mend: Option<String>,
    },
    /// A format nobody knows.
    #[error("`{0}` is no format; there are parquet, csv, ndjson, lines and fixed:BYTES")]
    UnknownFormat(String),
    /// A partitioner that cannot separate anything.
    #[error("`{by}` makes one partition of everything; {mend}")]
    OnePartition {
        /// The partitioner.
        by: String,
        /// What to write instead.
        mend: &'static str,
    },
    /// The number of partitions does not go with the partitioner.
    #[error("`{by}` has {own} partitions, not {asked}; leave the number out")]
    PartitionCount {
        /// The partitioner.
        by: String,
        /// How many it has of itself.
        own: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// Bounds of a range that do not ascend.
    #[error("bounds of a range must ascend: `{second}` follows `{first}`")]
    Bounds {
        /// A bound.
        first: String,
        /// The one after it, which is not above it.
        second: String,
    },
    /// More partitions than are kept apart.
    #[error("`{by}`: there can be {limit} partitions at most")]
    TooManyPartitions {
        /// The partitioner.
        by: String,
        /// The limit.
        limit: usize,
    },
    /// More distinct values than partitions are made for.
    #[error("column `{column}` has more than {limit} values; partition by hash({column}) or by ranges of it")]
    TooManyValues {
        /// The column.
        column: String,
        /// How many partitions at most.
        limit: usize,
    },
    /// A column that is not there.
    #[error("there is no column `{column}`; {}", nearest(.near.as_deref()))]
    MissingColumn {
        /// What was asked for.
        column: String,
        /// The column whose name is nearest.
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
    #[error("column `{column}` is {kind}, with which `{literal}` cannot be compared{mend}")]
    Incomparable {
        /// The column.
        column: String,
        /// Its type.
        kind: String,
        /// What it should be compared with.
        literal: String,
        /// A hint, with its punctuation, or nothing.
        mend: &'static str,
    },
    /// A text where a number is needed.
    #[error("record {record}: `{text}` in column `{column}` is no number; compare with a text in quotes instead")]
    NotANumber {
        /// The record.
        record: u64,
        /// Its column.
        column: String,
        /// What stands there.
        text: String,
    },
    /// A conversion that is not offered.
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
        /// The least there has to be.
        needed_bytes: u64,
    },
    /// A row group that does not fit.
    #[error(
        "row group {row_group} has {bytes} bytes and the buffer {buffer_bytes}; give a larger buffer, \
         name fewer columns, or write the object with smaller row groups"
    )]
    RowGroupTooLarge {
        /// Which, from 0.
        row_group: usize,
        /// What has to be read of it.
        bytes: u64,
        /// The buffer.
        buffer_bytes: u64,
    },
    /// A row group that does not fit once it is unpacked.
    #[error(
        "row group {row_group} has {bytes} bytes, {plain_bytes} unpacked, and the buffer {buffer_bytes}; give a larger \
         buffer, name fewer columns, or write the object with smaller row groups"
    )]
    RowGroupExpands {
        /// Which, from 0.
        row_group: usize,
        /// What has to be read of it.
        bytes: u64,
        /// What becomes of that.
        plain_bytes: u64,
        /// The buffer.
        buffer_bytes: u64,
    },
    /// A column of a kind that is not read as it was written.
    #[error("column `{column}` is {kind}; {mend}")]
    Unreadable {
        /// The column.
        column: String,
        /// Its kind, and what would happen.
        kind: &'static str,
        /// What to do.
        mend: &'static str,
    },
    /// A record that does not fit.
    #[error("record {record} is longer than {limit_bytes} bytes, the most a batch of this buffer holds")]
    RecordTooLong {
        /// The record.
        record: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// Bytes that are not text.
    #[error("record {record} is not UTF-8; convert the object, or take it as lines, which may be any bytes")]
    NotUtf8 {
        /// The record.
        record: u64,
    },
    /// A record that is not what its format says.
    #[error("record {record} is not {format}: {reason}")]
    Malformed {
        /// The record.
        record: u64,
        /// What it should be.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// An object that is not what its name or the job says.
    #[error("this is not {format}: {reason}")]
    NotThisFormat {
        /// What it should be.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// Fixed records that do not fill the object.
    #[error("{object_bytes} bytes are not whole records of {record_bytes}: {rest} are left over")]
    TruncatedRecord {
        /// The object.
        object_bytes: u64,
        /// A record.
        record_bytes: usize,
        /// What is left over.
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
    /// What was written does not read back as what it was made of.
    #[error("what was encoded as {format} does not decode to the same records; nothing of it may be kept")]
    NotProven {
        /// The format.
        format: String,
    },
    /// Arrow or Parquet would not do it.
    #[error("{doing}: {reason}")]
    Columns {
        /// What was tried.
        doing: &'static str,
        /// What they say.
        reason: String,
    },
    /// Any of these, in a certain object.
    #[error("{object}: {source}")]
    In {
        /// The object.
        object: String,
        /// What is wrong with it.
        source: Box<Self>,
    },
}

impl Error {
    /// The same error, said of `object`; the records of the batch it arose in began after `records_before` others.
    #[must_use]
    pub fn at(mut self, object: &str, records_before: u64) -> Self {
        if let Self::NotANumber { record, .. } | Self::Malformed { record, .. } | Self::NotUtf8 { record } = &mut self {
            *record += records_before;
        }
        Self::In { object: object.to_owned(), source: Box::new(self) }
    }

    /// The same error, its record counted from the one after `records_before` others.
    pub(crate) fn counted_from(mut self, records_before: u64) -> Self {
        if let Self::Malformed { record, .. } | Self::NotUtf8 { record } = &mut self {
            *record -= records_before;
        }
        self
    }

    pub(crate) fn columns(doing: &'static str) -> impl FnOnce(arrow::error::ArrowError) -> Self {
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

fn nearest(near: Option<&str>) -> String {
    near.map_or_else(|| String::from("there is no column at all"), |name| format!("the nearest name is `{name}`"))
}

/// Runs what belongs to a library, which may panic over bytes that nobody would write; a panic is an error then.
pub(crate) fn caught<T>(doing: &'static str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let reason = format!("the bytes are damaged ({})", said.unwrap_or("without a reason"));
        Err(Error::Columns { doing, reason })
    })
}
