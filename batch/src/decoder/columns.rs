//! Decodes Parquet: the footer, then one row group after another, each with the required columns only.
//!
//! 1. The footer has the position of every column chunk. Row groups that do not fit are refused before any of them is
//!    read.
//! 2. The chunks of a row group are requested one by one, and read some rows at a time.
//! 3. These rows are cut into batches, see [`super::rows`].
//!
//! Invariants:
//! - Batches have no dictionaries and no views, whose memory pieces would share without counting it.
//! - If the library panics over a damaged object, that is an error like any other.

use super::int96::{self, Timestamps};
use super::logical;
use super::need::Need;
use super::rows::Rows;
use super::schemas::{not_parquet, not_this, plain_schema, views_schema};
use crate::by::Spec;
use crate::error::{Error, caught};
use crate::format::CODEC;
use crate::held::COLUMN_BYTES;
use crate::limits::BATCH_ROWS_MAX;
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::basic::{Compression, ConvertedType, Encoding, Type as PhysicalType};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder, RowGroupMetaData,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Rows read at a time of a column with prefix-compressed values, unless all of them fit into a batch.
const ROWS_OF_PREFIXES: u64 = 64;
/// The factor by which lists may be longer in one place than on average.
const LIST_HEADROOM: u64 = 4;
/// The size of a view of a text.
const VIEW_BYTES: u64 = 16;
/// The number of buffers that elements of lists may take, although only some rows are held at a time.
const LIST_BUFFERS_MAX: u64 = 16;
/// The shortest possible file: two magic numbers and a length.
const FILE_BYTES_MIN: u64 = 12;

pub(super) struct Columns {
    needed: Option<Vec<String>>,
    object_bytes: u64,
    buffer_bytes: u64,
    batch_bytes: u64,
    state: ColumnsState,
    wanted: VecDeque<Range<u64>>,
    ranges: Vec<Range<u64>>,
    given: Vec<Bytes>,
    /// Bytes of the row group being read.
    held: u64,
    rows: Option<Rows>,
    timestamps: Option<Timestamps>,
    /// True if batches are returned as they are read.
    views: bool,
    /// Set to read a single row group: (place, number of evenly spaced places in the object).
    place: Option<(usize, usize)>,
    row_bytes: Option<f64>,
}

enum ColumnsState {
    Footer(Option<ParquetMetaDataPushDecoder>),
    Groups(Box<ParquetPushDecoder>),
    End,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Columns").field("wanted", &self.wanted).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Columns {
    pub(super) fn open(spec: &Spec, object_bytes: u64, buffer_bytes: u64, batch_bytes: u64) -> Self {
        let needed = spec.needed().map(|names| names.into_iter().map(str::to_owned).collect());
        Self {
            needed,
            object_bytes,
            buffer_bytes,
            batch_bytes,
            state: ColumnsState::Footer(None),
            wanted: VecDeque::new(),
            ranges: Vec::new(),
            given: Vec::new(),
            held: 0,
            rows: None,
            timestamps: None,
            views: false,
            place: None,
            row_bytes: None,
        }
    }

    /// Returns batches as they are read, with views of shared memory.
    pub(super) fn with_views(&mut self) {
        self.views = true;
    }

    /// Reads a single row group: that of place `place` of `of` places.
    pub(super) fn in_place(&mut self, place: usize, of: usize) {
        self.place = Some((place, of));
    }

    /// The object's bytes per row that is read; `None` if no rows are read.
    pub(super) fn row_bytes(&self) -> Option<f64> {
        self.row_bytes
    }

    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.rows.as_ref().map(Rows::schema)
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held + self.rows.as_ref().map_or(0, Rows::held_bytes)
    }

    pub(super) fn next(&mut self, given: Option<Bytes>) -> Result<Need, Error> {
        if let (Some(bytes), Some(range)) = (given, self.wanted.pop_front()) {
            assert_eq!(range.end - range.start, bytes.len() as u64, "these are the bytes of the range");
            self.held += bytes.len() as u64;
            self.ranges.push(range);
            self.given.push(bytes);
        }
        loop {
            if let Some(range) = self.wanted.front() {
                return Ok(Need::Bytes(range.clone()));
            }
            let (ranges, bytes) = (std::mem::take(&mut self.ranges), std::mem::take(&mut self.given));
            // After a panic the state is not used again, because the error ends the object.
            let need = caught("reading Parquet", || self.advance(ranges, bytes))?;
            if let Some(need) = need {
                return Ok(need);
            }
        }
    }

    /// One step; `None` if another one must follow.
    fn advance(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<Option<Need>, Error> {
        match &mut self.state {
            ColumnsState::Footer(_) => self.footer(ranges, bytes).map(|()| None),
            ColumnsState::Groups(decoder) => {
                let Some(rows) = &mut self.rows else { return Err(not_this("it has no columns")) };
                if let Some(batch) = rows.next()? {
                    return Ok(Some(Need::Batch(batch)));
                }
                if !ranges.is_empty() {
                    self.timestamps.iter_mut().try_for_each(|timestamps| timestamps.check(&ranges, &bytes))?;
                    decoder.push_ranges(ranges, bytes).map_err(not_parquet)?;
                }
                match decoder.try_decode().map_err(not_parquet)? {
                    DecodeResult::NeedsData(ranges) => {
                        self.held = 0;
                        self.want(ranges)?;
                        Ok(None)
                    }
                    DecodeResult::Data(read) if self.views => Ok(Some(Need::Batch(read))),
                    DecodeResult::Data(read) => {
                        rows.push(read);
                        Ok(None)
                    }
                    DecodeResult::Finished => {
                        self.timestamps.iter().try_for_each(Timestamps::finish)?;
                        self.held = 0;
                        self.state = ColumnsState::End;
                        Ok(rows.rest()?.map(Need::Batch))
                    }
                }
            }
            ColumnsState::End => Ok(Some(Need::End)),
        }
    }

    fn want(&mut self, ranges: Vec<Range<u64>>) -> Result<(), Error> {
        let inside = |range: &Range<u64>| range.start < range.end && range.end <= self.object_bytes;
        if ranges.is_empty() || !ranges.iter().all(inside) {
            return Err(not_this("its footer names bytes that are not there"));
        }
        self.wanted.extend(ranges);
        Ok(())
    }

    fn footer(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<(), Error> {
        if self.object_bytes < FILE_BYTES_MIN {
            return Err(not_this("it is too short"));
        }
        let ColumnsState::Footer(footer) = &mut self.state else { return Ok(()) };
        let mut decoder = match footer.take() {
            Some(decoder) => decoder,
            None => ParquetMetaDataPushDecoder::try_new(self.object_bytes)
                .map_err(not_parquet)?
                .with_page_index_policy(PageIndexPolicy::Skip),
        };
        if !ranges.is_empty() {
            decoder.push_ranges(ranges, bytes).map_err(not_parquet)?;
        }
        match decoder.try_decode().map_err(not_parquet)? {
            DecodeResult::NeedsData(ranges) => {
                self.state = ColumnsState::Footer(Some(decoder));
                if let Some(large) = ranges.iter().find(|range| range.end - range.start > self.buffer_bytes) {
                    let needed_bytes = large.end - large.start;
                    return Err(Error::BufferTooSmall { buffer_bytes: self.buffer_bytes, needed_bytes });
                }
                self.want(ranges)
            }
            DecodeResult::Data(metadata) => self.groups(&Arc::new(metadata)),
            DecodeResult::Finished => Err(not_this("it has no footer")),
        }
    }

    fn groups(&mut self, metadata: &Arc<ParquetMetaData>) -> Result<(), Error> {
        self.held = 0;
        let options = ArrowReaderOptions::new();
        let found = ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone()).map_err(not_parquet)?;
        let plain = int96::microseconds(&plain_schema(found.schema()), metadata);
        let options = options.with_schema(Arc::new(views_schema(&plain)));
        let found = ArrowReaderMetadata::try_new(Arc::clone(metadata), options).map_err(not_parquet)?;
        let columns = self.column_indices(found.schema())?;
        let mask = ProjectionMask::roots(metadata.file_metadata().schema_descr(), columns.iter().copied());
        readable(metadata, &mask)?;
        let plain = logical::noted(&plain, metadata);
        logical::are_kept(&plain, metadata, &mask)?;
        self.timestamps = Some(Timestamps::find(metadata, &mask));
        let rows = self.rows_at_a_time(metadata, &mask)?;
        let mut with_codec = plain.project(&columns).map_err(Error::columns("choosing columns"))?;
        with_codec.metadata.insert(CODEC.to_owned(), codec(metadata).to_owned());
        self.rows = Some(Rows::new(Arc::new(with_codec), self.batch_bytes));
        let mut decoder =
            ParquetPushDecoderBuilder::new_with_metadata(found).with_projection(mask).with_batch_size(rows as usize);
        if let Some(row_groups) = self.row_groups(metadata) {
            decoder = decoder.with_row_groups(row_groups);
        }
        self.state = ColumnsState::Groups(Box::new(decoder.build().map_err(not_parquet)?));
        Ok(())
    }

    /// The row group that is read alone, if only one is read; empty if it is that of the place before. Stores the bytes
    /// per row.
    fn row_groups(&mut self, metadata: &ParquetMetaData) -> Option<Vec<usize>> {
        let row_groups = metadata.row_groups();
        let stored = |groups: &[RowGroupMetaData]| {
            let columns = groups.iter().flat_map(RowGroupMetaData::columns);
            columns.map(|column| counted(column.compressed_size())).fold(0, u64::saturating_add)
        };
        let at = |place: usize, of: usize| row_groups.len() * place / of;
        let own = |(place, of)| place == 0 || at(place, of) > at(place - 1, of);
        let chosen = self.place.map(|(place, of)| at(place, of)..at(place, of) + usize::from(own((place, of))));
        let read = match &chosen {
            Some(chosen) => row_groups.get(chosen.clone()).unwrap_or_default(),
            None => row_groups,
        };
        let rows: u64 = read.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum();
        let whole = self.object_bytes as f64 * (stored(read) as f64 / stored(row_groups).max(1) as f64);
        self.row_bytes = (rows > 0).then(|| whole / rows as f64);
        chosen.map(|chosen| chosen.filter(|row_group| *row_group < row_groups.len()).collect())
    }

    /// The columns to read, in the order they have in the file.
    fn column_indices(&self, schema: &Schema) -> Result<Vec<usize>, Error> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let Some(needed) = &self.needed else { return Ok((0..schema.fields().len()).collect()) };
        for name in needed {
            match names().filter(|column| column == name).count() {
                0 => return Err(Error::missing(name, names())),
                1 => {}
                _ => return Err(Error::AmbiguousColumn(name.clone())),
            }
        }
        Ok((0..schema.fields().len()).filter(|index| needed.contains(schema.field(*index).name())).collect())
    }

    /// The number of rows that make about a batch, by the footer. Refuses row groups that do not fit.
    fn rows_at_a_time(&self, metadata: &ParquetMetaData, mask: &ProjectionMask) -> Result<u64, Error> {
        let mut rows_at_a_time = BATCH_ROWS_MAX;
        for (row_group, group) in metadata.row_groups().iter().enumerate() {
            let buffer_bytes = self.buffer_bytes;
            let sum = |of: &dyn Fn(&ColumnChunkMetaData) -> u64| -> u64 {
                chosen(group, mask).map(of).fold(0, u64::saturating_add)
            };
            let bytes = sum(&|column| counted(column.compressed_size()));
            if bytes > buffer_bytes {
                return Err(Error::RowGroupTooLarge { row_group, bytes, buffer_bytes });
            }
            let rows = u64::try_from(group.num_rows()).map_err(|_| not_this("a row group has fewer than no rows"))?;
            let unpacked = sum(&|column| counted(column.uncompressed_size()));
            let in_lists =
                sum(&|column| if column.column_descr().max_rep_level() > 0 { read_bytes(column) } else { 0 });
            // Pages are decompressed one by one, in memory that is stated in addition to the buffer and does not count
            // against it.
            let pages = COLUMN_BYTES.saturating_mul(chosen(group, mask).count() as u64);
            for (plain_bytes, limit) in [
                (unpacked, buffer_bytes.saturating_add(pages)),
                (in_lists, buffer_bytes.saturating_mul(LIST_BUFFERS_MAX)),
            ] {
                if plain_bytes > limit {
                    return Err(Error::RowGroupExpands { row_group, bytes, plain_bytes, buffer_bytes });
                }
            }
            let row_bytes = sum(&read_bytes).checked_div(rows).unwrap_or(0).max(1);
            let headroom = if in_lists > self.batch_bytes { LIST_HEADROOM } else { 1 };
            rows_at_a_time = rows_at_a_time.min((self.batch_bytes / headroom / row_bytes).max(1));
            if chosen(group, mask).any(|column| self.is_of_prefixes(column)) {
                rows_at_a_time = rows_at_a_time.min(ROWS_OF_PREFIXES);
            }
        }
        assert!((1..=BATCH_ROWS_MAX).contains(&rows_at_a_time), "a batch has a row, and not too many");
        Ok(rows_at_a_time)
    }

    /// True if values are encoded without the prefix that they share with the value before, and may be large when read.
    fn is_of_prefixes(&self, column: &ColumnChunkMetaData) -> bool {
        let read = column.unencoded_byte_array_data_bytes().map_or(u64::MAX, counted);
        read > self.batch_bytes && column.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY)
    }
}

fn counted(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The size of all values of a column when read; the bytes of dictionaries count once.
fn read_bytes(column: &ColumnChunkMetaData) -> u64 {
    let width = match column.column_type() {
        PhysicalType::BOOLEAN => 1,
        PhysicalType::INT32 | PhysicalType::FLOAT => 4,
        PhysicalType::INT64 | PhysicalType::DOUBLE => 8,
        PhysicalType::INT96 => 12,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => counted(column.column_descr().type_length().into()),
        PhysicalType::BYTE_ARRAY => {
            let views = counted(column.num_values()).saturating_mul(VIEW_BYTES);
            return views.saturating_add(counted(column.uncompressed_size()));
        }
    };
    counted(column.num_values()).saturating_mul(width)
}

/// Refuses columns that the library cannot read, or reads as other values than were written.
fn readable(metadata: &ParquetMetaData, mask: &ProjectionMask) -> Result<(), Error> {
    let leaves = metadata.file_metadata().schema_descr().columns().iter().enumerate();
    let mut leaves = leaves.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, leaf)| leaf);
    let months = leaves.find(|leaf| leaf.converted_type() == ConvertedType::INTERVAL).map(|leaf| leaf.path().string());
    let packed =
        |column: &&ColumnChunkMetaData| matches!(column.compression(), Compression::BROTLI(_) | Compression::LZO);
    let mut chunks = metadata.row_groups().iter().flat_map(|group| chosen(group, mask));
    let packed = chunks.find(packed).map(|column| column.column_path().string());
    let (column, kind, hint) = match (months, packed) {
        (Some(column), _) => (
            column,
            "an INTERVAL, of which months would be lost",
            "write it as numbers, or name the other columns alone",
        ),
        (None, Some(column)) => {
            let kind = "compressed with brotli or LZO, which are not read";
            (column, kind, "write it with zstd, snappy, gzip or lz4, or name the other columns alone")
        }
        (None, None) => return Ok(()),
    };
    Err(Error::Unreadable { column, kind, hint })
}

fn chosen<'a>(group: &'a RowGroupMetaData, mask: &'a ProjectionMask) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    let columns = group.columns().iter().enumerate();
    columns.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, column)| column)
}

/// The name of the first compression of any column, for the output to have the same.
fn codec(metadata: &ParquetMetaData) -> &'static str {
    let columns = metadata.row_groups().first().map_or(&[][..], |group| group.columns());
    let plain = Compression::UNCOMPRESSED;
    match columns.iter().map(ColumnChunkMetaData::compression).find(|codec| *codec != plain) {
        None if !columns.is_empty() => "none",
        Some(Compression::GZIP(_)) => "gzip",
        Some(Compression::ZSTD(_)) => "zstd",
        Some(Compression::LZ4 | Compression::LZ4_RAW) => "lz4",
        _ => "snappy",
    }
}
