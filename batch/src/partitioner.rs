//! From batches to pieces, each of one partition.
//!
//! 1. The filter leaves out rows, the projection columns.
//! 2. Each row gets its partition ([`crate::By`]).
//! 3. A counting sort brings the rows' numbers in order of partitions.
//! 4. The rows of each partition are taken into a piece of its own. One take for all and slices of it would be as
//!    fast, but a slice keeps the whole from being given back: what is held would be more than what is counted.
//!
//! Invariants:
//! - Every row that the filter keeps is in exactly one piece, in the order it came.
//! - Pieces share no memory with each other or with the batch.
//! - Many may split at once: only the numbering of values, and sums at the end of a batch, wait for one another.

use crate::compare::meet;
use crate::fields::{Fields, Projection};
use crate::hash::{hash_rows, partition_of};
use crate::tally::{Tally, tally_of};
use crate::values::Values;
use crate::{By, Error, Format, Literal, Spec, lock, same_columns};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, filter_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema};
use std::sync::Mutex;

/// Splits batches of one schema into partitions.
#[derive(Debug)]
pub struct Partitioner {
    by: By,
    schema: Schema,
    text_fields: bool,
    partitions_max: usize,
    filter: Option<crate::Filter>,
    filtered: Fields,
    keys: Fields,
    projection: Projection,
    values: Mutex<Values>,
    tally: Mutex<Tally>,
}

impl Partitioner {
    /// A partitioner of batches with this schema, which is that of a decoder's first batch.
    ///
    /// # Errors
    /// Whatever of the specification does not go with itself or with the schema.
    pub fn new(spec: &Spec, schema: &Schema) -> Result<Self, Error> {
        let partitions_max = spec.partition_count()?;
        if spec.format != spec.output {
            return Err(Error::Conversion { from: spec.format, to: spec.output });
        }
        let filter_columns = spec.filter.as_ref().map(crate::Filter::columns).unwrap_or_default();
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
        partitioner.keys_can_decide(spec.format, schema)?;
        Ok(partitioner)
    }

    /// The rows of a batch by partition, in ascending order of those that have any.
    ///
    /// # Errors
    /// [`Error::SchemasDiffer`] if its columns are others than those of [`Self::new`], of a record that is not what its
    /// format says, [`Error::NotANumber`], or [`Error::TooManyValues`].
    pub fn split(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>, Error> {
        same_columns(("the first object", &self.schema), ("this one", &batch.schema()))?;
        let kept = self.kept(batch)?;
        if kept.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let partitions = self.partitions_of(&kept)?;
        let kept = self.projection.apply(kept)?;
        let tally = tally_of(&kept)?;
        let count = lock(&self.values).count().max(self.partitions_max);
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
        *lock(&self.tally) += tally;
        Ok(pieces)
    }

    /// The tally of all that was split so far, after filter and projection, taken before any row was moved.
    pub fn tally(&self) -> Tally {
        *lock(&self.tally)
    }

    /// How many partitions there are: of `value(column)`, as far as its values are known.
    pub fn partitions(&self) -> usize {
        if matches!(self.by, By::Value { .. }) { lock(&self.values).count() } else { self.partitions_max }
    }

    /// The part of the output's keys that tells this partition from others: `year=2020` of `value(year)`, else its
    /// number in five digits. A null's is `year=__HIVE_DEFAULT_PARTITION__`; what would not do in a path is
    /// percent-encoded.
    pub fn name(&self, partition: usize) -> String {
        match &self.by {
            By::Value { column } => lock(&self.values).name(column, partition),
            By::Hash { .. } | By::Range { .. } => format!("{partition:05}"),
        }
    }

    /// To be asked when all records were split.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if a key of JSON was in no record, [`Error::OnePartition`] if a column had but one
    /// value.
    pub fn finish(&self) -> Result<(), Error> {
        self.filtered.finish()?;
        self.keys.finish()?;
        self.projection.finish()?;
        if matches!(self.by, By::Value { .. }) && self.tally().rows > 0 && self.partitions() < 2 {
            let mend = "it has but one value; choose another column";
            return Err(Error::OnePartition { by: self.by.to_string(), mend });
        }
        Ok(())
    }

    /// Refuses columns that cannot decide, and bounds that do not ascend or cannot be compared.
    fn keys_can_decide(&self, format: Format, schema: &Schema) -> Result<(), Error> {
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
        let (_, bounds_in_order) = meet(column, &arrow::array::new_empty_array(kind), bounds, self.text_fields)?;
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
            By::Value { column } => lock(&self.values).partitions(column, &keys[0], self.partitions_max),
        }
    }
}

type Comparator = Box<dyn Fn(usize, usize) -> std::cmp::Ordering + Send + Sync>;

fn comparator(left: &ArrayRef, right: &ArrayRef) -> Result<Comparator, Error> {
    let nulls_first = SortOptions { descending: false, nulls_first: true };
    arrow::array::make_comparator(left, right, nulls_first).map_err(Error::columns("comparing with bounds"))
}

/// How many bounds each value is not below; nulls are below all, NaN below none.
fn ranges(name: &str, column: &ArrayRef, bounds: &[Literal], text_fields: bool) -> Result<Vec<u32>, Error> {
    let (values, bounds) = meet(name, column, bounds, text_fields)?;
    let compare = comparator(&values, &bounds)?;
    let count = bounds.len() as u32;
    let below = |row| {
        let (mut low, mut high) = (0, bounds.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if compare(row, middle).is_ge() { low = middle + 1 } else { high = middle }
        }
        low as u32
    };
    let mut partitions: Vec<u32> = (0..values.len()).map(below).collect();
    for row in nan_rows(&values) {
        partitions[row] = count;
    }
    Ok(partitions)
}

fn nan_rows(values: &ArrayRef) -> Vec<usize> {
    fn nan<T>(values: impl Iterator<Item = Option<T>>, is: impl Fn(T) -> bool) -> Vec<usize> {
        values.enumerate().filter_map(|(row, value)| is(value?).then_some(row)).collect()
    }
    match values.data_type() {
        DataType::Float16 => nan(values.as_primitive::<Float16Type>().iter(), |value| value.to_f32().is_nan()),
        DataType::Float32 => nan(values.as_primitive::<Float32Type>().iter(), f32::is_nan),
        DataType::Float64 => nan(values.as_primitive::<Float64Type>().iter(), f64::is_nan),
        _ => Vec::new(),
    }
}

/// The rows' numbers in order of their partitions, and where each partition ends.
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
    // Each partition's beginning has moved to its end.
    ends.truncate(count);
    (order, ends)
}
