//! Splits batches into pieces, each of one partition.
//!
//! 1. The filter removes rows; the projection removes columns.
//! 2. Each row gets its partition ([`crate::By`]).
//! 3. A counting sort orders the row numbers by partition.
//! 4. The rows of each partition are copied into a separate piece. Copying all rows at once and slicing the copy would
//!    be as fast, but a slice keeps the whole copy alive, so more memory would be held than is counted.
//!
//! Invariants:
//! - Every row that passes the filter is in exactly one piece, in its original order.
//! - Pieces share no memory with each other or with the batch.
//! - Any number of threads may split at once. They wait for each other only to number values, and to add up checksums
//!   at the end of a batch.

use crate::by::{By, Spec, same_columns};
use crate::compare::comparable;
use crate::error::Error;
use crate::expression::Literal;
use crate::fields::{Fields, KnownKeys, Projection};
use crate::filter::Filter;
use crate::format::Format;
use crate::hash::{hash_rows, partition_of};
use crate::tally::{MultisetChecksum, multiset_checksum};
use crate::values::{KnownValue, Values};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SortOptions;
use arrow_schema::{DataType, Schema};
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The values and keys that a partitioner has found in the records it has split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// The values of `value(column)`, by their numbers.
    pub(crate) values: Vec<KnownValue>,
    /// The JSON keys that were found: of the filter, of the key, of the projection.
    pub(crate) keys: [Option<KnownKeys>; 3],
}

/// Splits batches of one schema into partitions.
#[derive(Debug)]
pub struct Partitioner {
    by: By,
    schema: Schema,
    text_fields: bool,
    partitions_max: usize,
    filter: Option<Filter>,
    filtered: Fields,
    keys: Fields,
    projection: Projection,
    values: Mutex<Values>,
    tally: Mutex<MultisetChecksum>,
}

impl Partitioner {
    /// A partitioner of batches with this schema, which is that of the first decoded batch.
    ///
    /// # Errors
    /// If the specification contradicts itself or the schema.
    pub fn new(spec: &Spec, schema: &Schema) -> Result<Self, Error> {
        let partitions_max = spec.partition_count()?;
        if spec.format != spec.output {
            return Err(Error::Conversion { from: spec.format, to: spec.output });
        }
        let filter_columns = spec.filter.as_ref().map(Filter::columns).unwrap_or_default();
        let partitioner = Self {
            by: spec.by.clone(),
            schema: schema.clone(),
            text_fields: spec.format.has_text_fields(),
            partitions_max,
            filter: spec.filter.clone(),
            filtered: Fields::find(spec.format, schema, &filter_columns)?,
            keys: Fields::find(spec.format, schema, &spec.by.columns())?,
            projection: Projection::of(spec.format, schema, spec.columns.as_deref())?,
            values: Mutex::default(),
            tally: Mutex::default(),
        };
        partitioner.check_keys(spec.format, schema)?;
        Ok(partitioner)
    }

    /// The rows of a batch by partition, in ascending order of the partitions that have rows.
    ///
    /// # Errors
    /// [`Error::SchemasDiffer`] if its columns differ from those of [`Self::new`], [`Error::NotANumber`],
    /// [`Error::TooManyValues`], or the error of a record that violates its format.
    pub fn split(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>, Error> {
        same_columns(("the first object", &self.schema), ("this one", &batch.schema()))?;
        let kept = self.kept(batch)?;
        if kept.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let partitions = self.partitions_of(&kept)?;
        assert_eq!(partitions.len(), kept.num_rows(), "every row has its partition");
        let kept = self.projection.apply(kept)?;
        let tally = multiset_checksum(&kept)?;
        let count = self.values.lock().count().max(self.partitions_max);
        let (order, ends) = sorted(&partitions, count);
        let order = UInt32Array::from(order);
        let mut pieces = Vec::new();
        let mut begin = 0;
        for (partition, end) in ends.into_iter().enumerate() {
            if end > begin {
                let rows = order.slice(begin, end - begin);
                pieces.push((partition, take_record_batch(&kept, &rows).map_err(Error::columns("taking rows"))?));
            }
            begin = end;
        }
        let rows: usize = pieces.iter().map(|(_, piece)| piece.num_rows()).sum();
        assert_eq!(rows as u64, tally.rows, "every row is in one piece");
        *self.tally.lock() += tally;
        Ok(pieces)
    }

    /// The multiset checksum of all batches split so far, after filter and projection, taken before any row was moved.
    pub fn tally(&self) -> MultisetChecksum {
        *self.tally.lock()
    }

    /// The values and keys found so far, for another partitioner of the same specification and schema.
    pub fn learned(&self) -> Learned {
        let keys = [self.filtered.known_keys(), self.keys.known_keys(), self.projection.known_keys()];
        Learned { values: self.values.lock().known(), keys }
    }

    /// Continues from the state of a partitioner that has learned this and has split records of this checksum. To be
    /// called before any other method.
    pub fn go_on_from(&self, learned: &Learned, tally: MultisetChecksum) {
        let [filtered, keys, projection] = &learned.keys;
        self.filtered.know_keys(filtered.as_ref());
        self.keys.know_keys(keys.as_ref());
        self.projection.know_keys(projection.as_ref());
        *self.values.lock() = Values::of_known(&learned.values);
        *self.tally.lock() = tally;
    }

    /// The number of partitions; of `value(column)`, the number of values found so far.
    pub fn partitions(&self) -> usize {
        if matches!(self.by, By::Value { .. }) { self.values.lock().count() } else { self.partitions_max }
    }

    /// The name of a partition in the keys of the output: `year=2020` for `value(year)`, otherwise its number in five
    /// digits. That of a null is `year=__HIVE_DEFAULT_PARTITION__`. Characters unfit for a path are percent-encoded.
    pub fn name(&self, partition: usize) -> String {
        match &self.by {
            By::Value { column } => self.values.lock().name(column, partition),
            By::Hash { .. } | By::Range { .. } => format!("{partition:05}"),
        }
    }

    /// Called after the last record was split.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if a JSON key was in no record, [`Error::OnePartition`] if a column had only one value.
    pub fn finish(&self) -> Result<(), Error> {
        self.filtered.finish()?;
        self.keys.finish()?;
        self.projection.finish()?;
        if matches!(self.by, By::Value { .. }) && self.tally().rows > 0 && self.partitions() < 2 {
            let hint = "it has but one value; choose another column";
            return Err(Error::OnePartition { by: self.by.to_string(), hint });
        }
        Ok(())
    }

    /// Refuses columns that cannot be a key, and bounds that do not ascend or cannot be compared.
    fn check_keys(&self, format: Format, schema: &Schema) -> Result<(), Error> {
        if format == Format::Parquet {
            for name in self.by.columns() {
                let kind = schema.field_with_name(name).map_err(Error::columns("finding a column"))?.data_type();
                if kind.is_nested() {
                    return Err(Error::NotAKey { column: name.to_owned(), kind: kind.to_string() });
                }
            }
        }
        let By::Range { column, bounds } = &self.by else { return Ok(()) };
        let kind = match format {
            Format::Parquet => schema.field_with_name(column).map_err(Error::columns("finding a column"))?.data_type(),
            Format::Csv | Format::Ndjson => &DataType::Utf8,
            Format::Lines | Format::Fixed { .. } => &DataType::Binary,
        };
        let (_, bounds_in_order) = comparable(column, &arrow_array::new_empty_array(kind), bounds, self.text_fields)?;
        let compare = comparator(&bounds_in_order, &bounds_in_order)?;
        match (1..bounds.len()).find(|index| compare(index - 1, *index).is_ge()) {
            Some(index) => {
                Err(Error::Bounds { first: bounds[index - 1].to_string(), second: bounds[index].to_string() })
            }
            None => Ok(()),
        }
    }

    fn kept(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let Some(filter) = &self.filter else { return Ok(batch.clone()) };
        let keeps = filter.keeps(&self.filtered.named(batch)?, self.text_fields)?;
        assert_eq!(keeps.len(), batch.num_rows(), "a filter judges every row");
        filter_record_batch(batch, &keeps).map_err(Error::columns("filtering"))
    }

    fn partitions_of(&self, batch: &RecordBatch) -> Result<Vec<u32>, Error> {
        let keys = self.keys.columns(batch)?;
        match &self.by {
            By::Hash { .. } => {
                let count = self.partitions_max;
                let hashes = hash_rows(&keys, batch.num_rows())?;
                Ok(hashes.into_iter().map(|hash| partition_of(hash, count) as u32).collect())
            }
            By::Range { column, bounds } => ranges(column, &keys[0], bounds, self.text_fields),
            By::Value { column } => self.values.lock().partitions(column, &keys[0], self.partitions_max),
        }
    }
}

type Comparator = Box<dyn Fn(usize, usize) -> std::cmp::Ordering + Send + Sync>;

fn comparator(left: &ArrayRef, right: &ArrayRef) -> Result<Comparator, Error> {
    let nulls_first = SortOptions { descending: false, nulls_first: true };
    arrow_ord::ord::make_comparator(left, right, nulls_first).map_err(Error::columns("comparing with bounds"))
}

/// The number of bounds at or below each value. Nulls are below all bounds, NaN above all.
fn ranges(name: &str, column: &ArrayRef, bounds: &[Literal], text_fields: bool) -> Result<Vec<u32>, Error> {
    let (values, bounds) = comparable(name, column, bounds, text_fields)?;
    let compare = comparator(&values, &bounds)?;
    let count = bounds.len() as u32;
    let indices: Vec<usize> = (0..bounds.len()).collect();
    let below = |row| indices.partition_point(|bound| compare(row, *bound).is_ge()) as u32;
    let mut partitions: Vec<u32> = (0..values.len()).map(below).collect();
    // Columns of floats are compared as doubles. No bound is above NaN.
    if let Some(doubles) = values.as_primitive_opt::<Float64Type>() {
        for (partition, double) in partitions.iter_mut().zip(doubles) {
            if double.is_some_and(f64::is_nan) {
                *partition = count;
            }
        }
    }
    Ok(partitions)
}

/// The row numbers ordered by partition, and the end of each partition.
fn sorted(partitions: &[u32], count: usize) -> (Vec<u32>, Vec<usize>) {
    let mut ends = vec![0; count + 1];
    for partition in partitions {
        ends[*partition as usize + 1] += 1;
    }
    for partition in 0..count {
        ends[partition + 1] += ends[partition];
    }
    let mut order = vec![0; partitions.len()];
    for (row, partition) in partitions.iter().enumerate() {
        let next = &mut ends[*partition as usize];
        order[*next] = row as u32;
        *next += 1;
    }
    // The beginning of each partition has moved to its end.
    ends.truncate(count);
    assert_eq!(ends.last().copied().unwrap_or(0), partitions.len(), "every row is in one partition");
    (order, ends)
}
