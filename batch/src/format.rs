//! The formats of objects, and the columns of batches that have the records of each format.

use std::fmt;
use std::str::FromStr;

/// The column of CSV, NDJSON and fixed records that has each record byte for byte.
pub(crate) const RECORD: &str = "record";
/// The column of plain lines.
pub(crate) const LINE: &str = "line";
/// The key of a schema's metadata with the header of a CSV.
pub(crate) const HEADER: &str = "larder.header";
/// The key of a schema's metadata with the compression of a Parquet file.
pub(crate) const CODEC: &str = "larder.codec";

/// The longest fixed record, in bytes.
pub const FIXED_RECORD_BYTES_MAX: usize = 64 << 10;

/// A text that names no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no format; there are parquet, csv, ndjson, lines and fixed:BYTES")]
pub struct UnknownFormat(pub String);

/// The format of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Apache Parquet, not encrypted; snappy, gzip, zstd, lz4 or no compression.
    Parquet,
    /// RFC 4180 with commas and a header line. Records are carried byte for byte, fields are texts.
    Csv,
    /// A JSON object on each line. Records are carried byte for byte; a key's value is read as text.
    Ndjson,
    /// Lines of any bytes, separated by line feeds. The one column is `line`.
    Lines,
    /// Records of equal length. The columns are `record` and any part of it, for example `record[0..10]`.
    Fixed {
        /// Bytes of a record, 1 to [`FIXED_RECORD_BYTES_MAX`].
        record_bytes: usize,
    },
}

impl Format {
    /// The format of the extension of an object's name: `.parquet`, `.csv`, `.ndjson`, `.jsonl`, `.txt`, `.log`,
    /// `.lines`.
    pub fn of_key(key: &str) -> Option<Self> {
        let (_, extension) = key.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "txt" | "log" | "lines" => Some(Self::Lines),
            _ => None,
        }
    }

    /// The extension of output objects, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Lines => "txt",
            Self::Fixed { .. } => "bin",
        }
    }

    /// True if fields are texts, which are read as numbers if a filter or a bound has a number.
    pub(crate) fn has_text_fields(self) -> bool {
        matches!(self, Self::Csv | Self::Ndjson)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parquet => f.write_str("parquet"),
            Self::Csv => f.write_str("csv"),
            Self::Ndjson => f.write_str("ndjson"),
            Self::Lines => f.write_str("lines"),
            Self::Fixed { record_bytes } => write!(f, "fixed:{record_bytes}"),
        }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let fixed = |bytes: &str| {
            let record_bytes = bytes.parse().ok().filter(|bytes| (1..=FIXED_RECORD_BYTES_MAX).contains(bytes))?;
            Some(Self::Fixed { record_bytes })
        };
        let found = match text {
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            "ndjson" => Some(Self::Ndjson),
            "lines" => Some(Self::Lines),
            other => other.strip_prefix("fixed:").and_then(fixed),
        };
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_format_reads_what_it_writes() {
        let fixed = Format::Fixed { record_bytes: 100 };
        for format in [Format::Parquet, Format::Csv, Format::Ndjson, Format::Lines, fixed] {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        for wrong in ["", "xml", "fixed:", "fixed:0", "fixed:65537", "fixed:-1"] {
            assert_eq!(wrong.parse::<Format>(), Err(UnknownFormat(wrong.to_owned())));
        }
    }

    #[test]
    fn a_known_extension_gives_the_format() {
        assert_eq!(Format::of_key("a/b.c/part-0.PARQUET"), Some(Format::Parquet));
        assert_eq!(Format::of_key("x.jsonl"), Some(Format::Ndjson));
        assert_eq!(Format::of_key("x.csv.gz"), None);
        assert_eq!(Format::of_key("csv"), None);
    }
}
