//! The layout of columns in Parquet: dictionaries and compression by column.
//!
//! 1. A column whose sample has mostly distinct values gets no dictionary, because the library would abandon it after
//!    most of the work.
//! 2. A column whose sample does not shrink is not compressed, because that would cost time in writing, verifying and
//!    every read.

use crate::error::Error;
use crate::format::CODEC;
use crate::hash::hash_rows;
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// Rows of a sample for dictionaries.
const SAMPLE_ROWS: usize = 4096;
/// Rows of a sample for compression, the number of pieces they come from, and the fewest rows worth a sample.
const PACKED_ROWS: usize = 2048;
const PACKED_PIECES: usize = 4;
const ROWS_MIN: usize = 8 * PACKED_ROWS;
/// A column is compressed if that saves at least one part in this many.
const LEAST_SAVING: i64 = 32;

/// The properties for writing `pieces`, not all of them empty, to a file with this schema.
pub(super) fn of(schema: &Schema, pieces: &[RecordBatch]) -> Result<WriterPropertiesBuilder, Error> {
    let codec = match schema.metadata().get(CODEC).map(String::as_str) {
        Some("none") => Compression::UNCOMPRESSED,
        Some("gzip") => Compression::GZIP(GzipLevel::default()),
        Some("zstd") => Compression::ZSTD(ZstdLevel::try_new(1).map_err(writing)?),
        Some("lz4") => Compression::LZ4_RAW,
        _ => Compression::SNAPPY,
    };
    let mut properties = WriterProperties::builder().set_compression(codec);
    for column in without_dictionary(schema, pieces)? {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(vec![column]), false);
    }
    if codec == Compression::UNCOMPRESSED || pieces.iter().map(RecordBatch::num_rows).sum::<usize>() < ROWS_MIN {
        return Ok(properties);
    }
    for column in incompressible(properties.clone().build(), pieces)? {
        properties = properties.set_column_compression(column, Compression::UNCOMPRESSED);
    }
    Ok(properties)
}

#[allow(clippy::needless_pass_by_value)]
pub(super) fn writing(error: ParquetError) -> Error {
    Error::Columns { doing: "writing Parquet", reason: error.to_string() }
}

fn without_dictionary(schema: &Schema, pieces: &[RecordBatch]) -> Result<Vec<String>, Error> {
    let Some(piece) = pieces.last() else { return Ok(Vec::new()) };
    let sample = piece.slice(0, piece.num_rows().min(SAMPLE_ROWS));
    let mut columns = Vec::new();
    for (field, column) in schema.fields().iter().zip(sample.columns()) {
        let mut hashes = hash_rows(std::slice::from_ref(column), sample.num_rows())?;
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.len() * 4 > sample.num_rows() * 3 {
            columns.push(field.name().clone());
        }
    }
    Ok(columns)
}

/// The columns whose sample hardly shrinks when compressed.
fn incompressible(properties: WriterProperties, pieces: &[RecordBatch]) -> Result<Vec<ColumnPath>, Error> {
    let Some(first) = pieces.first() else { return Ok(Vec::new()) };
    let schema = first.schema().as_ref().clone().with_metadata(std::collections::HashMap::new());
    let schema = Arc::new(schema);
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties)).map_err(writing)?;
    for piece in pieces.iter().step_by(pieces.len().div_ceil(PACKED_PIECES)) {
        let sample = piece.slice(0, piece.num_rows().min(PACKED_ROWS / PACKED_PIECES));
        let sample = RecordBatch::try_new(Arc::clone(&schema), sample.columns().to_vec());
        writer.write(&sample.map_err(Error::columns("writing Parquet"))?).map_err(writing)?;
    }
    let written = writer.finish().map_err(writing)?;
    let columns = written.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let longer = columns.filter(|column| {
        let saved = column.uncompressed_size() - column.compressed_size();
        saved * LEAST_SAVING < column.uncompressed_size()
    });
    Ok(longer.map(|column| column.column_path().clone()).collect())
}
