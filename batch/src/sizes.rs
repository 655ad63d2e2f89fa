//! The sizes of rows when they are written out without dictionaries, views and compression, as in Parquet's plain
//! encoding, except that a null takes as much as a value of fixed width.

use crate::hash::elements;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;

/// The size of a text without its characters, or of a list without its elements.
const OFFSET_BYTES: u64 = 4;

/// The end of each row if all are written out one after another.
pub(crate) fn row_ends(batch: &RecordBatch) -> Vec<u64> {
    let mut ends = vec![0; batch.num_rows()];
    let same: u64 = batch.columns().iter().map(|column| add_bytes(column, &mut ends)).sum();
    let mut end = 0_u64;
    for row in &mut ends {
        end = end.saturating_add(*row + same);
        *row = end;
    }
    ends
}

/// Adds the size of each value to its row. A size that all values share is returned instead.
fn add_bytes(column: &ArrayRef, rows: &mut [u64]) -> u64 {
    use DataType as T;
    match column.data_type() {
        T::Utf8View => add_views(column.as_string_view().views(), rows),
        T::BinaryView => add_views(column.as_binary_view().views(), rows),
        T::Utf8 => add_lengths(column.as_string::<i32>().value_offsets(), rows),
        T::Binary => add_lengths(column.as_binary::<i32>().value_offsets(), rows),
        T::LargeUtf8 => add_lengths(column.as_string::<i64>().value_offsets(), rows),
        T::LargeBinary => add_lengths(column.as_binary::<i64>().value_offsets(), rows),
        T::Struct(_) => column.as_struct().columns().iter().map(|field| add_bytes(field, rows)).sum(),
        T::FixedSizeBinary(width) => u64::from(width.unsigned_abs()),
        T::Boolean | T::Null => 1,
        kind => match (elements(column), kind.primitive_width()) {
            (Some((elements, offsets)), _) => add_lists(&elements, &offsets, rows),
            (None, Some(width)) => width as u64,
            // No reader returns this kind: rows get an equal share of its size.
            (None, None) => (column.get_array_memory_size() / column.len().max(1)) as u64,
        },
    }
}

fn add_views(views: &[u128], rows: &mut [u64]) -> u64 {
    // The lower 32 bits of a view are its length.
    rows.iter_mut().zip(views).for_each(|(row, view)| *row += u64::from(*view as u32));
    OFFSET_BYTES
}

fn add_lengths<O: OffsetSizeTrait>(offsets: &[O], rows: &mut [u64]) -> u64 {
    for (row, ends) in rows.iter_mut().zip(offsets.windows(2)) {
        *row += (ends[1].as_usize() - ends[0].as_usize()) as u64;
    }
    OFFSET_BYTES
}

fn add_lists(elements: &ArrayRef, offsets: &[usize], rows: &mut [u64]) -> u64 {
    // A slice of lists refers to the elements of all of them.
    let (first, last) = (offsets[0], offsets[rows.len()]);
    assert!(first <= last, "the offsets of lists ascend");
    let mut each = vec![0; last - first];
    let same = add_bytes(&elements.slice(first, last - first), &mut each);
    for (row, ends) in rows.iter_mut().zip(offsets.windows(2)) {
        let elements = &each[ends[0] - first..ends[1] - first];
        *row += elements.iter().sum::<u64>() + elements.len() as u64 * same;
    }
    OFFSET_BYTES
}
