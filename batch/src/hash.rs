//! A hash of rows that is the same in every version of Larder, and for every layout of the same values.
//!
//! 1. A value becomes 64 bits: a null `NULL`; false and true 0 and 1; an integer of any width itself, in two's
//!    complement; a float its bits as a double, where -0 is 0 and all NaN are one; text and bytes their `XXH3_64`; a
//!    date its days since 1970; times, timestamps and durations nanoseconds modulo 2^64; an interval the `XXH3_64` of
//!    its bytes in Arrow; a decimal the `XXH3_64` of its unscaled value, 32 bytes, little-endian. So a column hashes
//!    alike with 32 or 64 bits, as dictionary or plain. `5` and `'5'` are different values, and so are 5 and 5.0.
//! 2. A row begins with `SEED` and takes one value after another: `row = mix(row * FOLD ^ value)`, where `mix` is the
//!    finalizer of `SplitMix64`. A list begins with `mix` of its length, and takes its elements in the same way; a
//!    struct takes its fields like a row.
//! 3. The partition of a row is the upper word of `row * partitions`.
//!
//! Invariants:
//! - None of the above may change: the same key must stay in its partition.
//! - The hash resists no attacker, who can choose keys that all fall into one partition.

use crate::error::Error;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ByteArrayType, ByteViewType, Float16Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Decimal256Array, GenericByteArray, GenericByteViewArray, OffsetSizeTrait,
};
use arrow_buffer::{ArrowNativeType, i256};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;
use twox_hash::XxHash3_64;

const NULL: u64 = 0x6e75_6c6c_206e_756c;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;

/// Values that are converted to 64 bits at a time: few enough to be still in the first-level cache when they are
/// folded.
const ROWS_AT_A_TIME: usize = 2048;

/// The finalizer of Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: one-to-one, and
/// every bit of the result depends on every bit of `bits`.
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn folded(row: u64, value: u64) -> u64 {
    mix(row.wrapping_mul(FOLD) ^ value)
}

/// The hash of each row of these columns, which have equal length. It is the same in every version and for every layout
/// of the same values; the header of this file defines it.
///
/// # Errors
/// [`Error::NotAKey`] for a type without a hash: unions, run-end encoded arrays, views of lists.
pub fn hash_rows(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>, Error> {
    let mut hashes = vec![SEED; rows];
    for column in columns {
        assert_eq!(column.len(), rows, "columns of one batch are of equal length");
        if fold_plain(column, &mut hashes) {
            continue;
        }
        // A slice of a nested array or a dictionary would read all data that its rows share.
        let whole = column.data_type().is_nested() || matches!(column.data_type(), DataType::Dictionary(..));
        let step = if whole { rows.max(1) } else { ROWS_AT_A_TIME };
        for (chunk, hashes) in hashes.chunks_mut(step).enumerate() {
            fold(hashes, values(&column.slice(chunk * step, hashes.len()))?);
        }
    }
    Ok(hashes)
}

/// Folds the most common types without storing their values. For other types it does nothing and returns false.
fn fold_plain(column: &ArrayRef, hashes: &mut [u64]) -> bool {
    use DataType as T;
    if column.null_count() > 0 {
        return false;
    }
    match column.data_type() {
        T::Int64 => fold(hashes, column.as_primitive::<Int64Type>().values().iter().map(|value| *value as u64)),
        T::Int32 => fold(hashes, column.as_primitive::<Int32Type>().values().iter().map(|v| i64::from(*v) as u64)),
        T::Float64 => fold(hashes, column.as_primitive::<Float64Type>().values().iter().map(|value| double(*value))),
        T::Timestamp(TimeUnit::Microsecond, _) => {
            let moments = column.as_primitive::<TimestampMicrosecondType>().values();
            fold(hashes, moments.iter().map(|moment| moment.wrapping_mul(1000) as u64));
        }
        T::Utf8 => fold_bytes(hashes, column.as_string::<i32>()),
        T::Binary => fold_bytes(hashes, column.as_binary::<i32>()),
        T::Utf8View => fold_views(hashes, column.as_string_view()),
        T::BinaryView => fold_views(hashes, column.as_binary_view()),
        _ => return false,
    }
    true
}

fn fold(hashes: &mut [u64], values: impl IntoIterator<Item = u64>) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = folded(*hash, value);
    }
}

fn fold_bytes<T: ByteArrayType>(hashes: &mut [u64], column: &GenericByteArray<T>) {
    let values = column.value_data();
    let value = |ends: &[T::Offset]| XxHash3_64::oneshot(&values[ends[0].as_usize()..ends[1].as_usize()]);
    fold(hashes, column.value_offsets().windows(2).map(value));
}

fn fold_views<T: ByteViewType>(hashes: &mut [u64], column: &GenericByteViewArray<T>) {
    fold(hashes, column.bytes_iter().map(XxHash3_64::oneshot));
}

/// The partition of a row with this hash, below `partitions`.
pub fn partition_of(hash: u64, partitions: usize) -> usize {
    let partition = ((u128::from(hash) * partitions as u128) >> 64) as usize;
    assert!(partition < partitions, "there is a partition or more");
    partition
}

/// Each value as 64 bits.
fn values(array: &ArrayRef) -> Result<Vec<u64>, Error> {
    let mut values = plain_values(array)?;
    if let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        for (row, value) in values.iter_mut().enumerate() {
            if nulls.is_null(row) {
                *value = NULL;
            }
        }
    }
    Ok(values)
}

/// Each value as 64 bits; any bits for a null.
fn plain_values(array: &ArrayRef) -> Result<Vec<u64>, Error> {
    use DataType as T;
    let kind = array.data_type();
    Ok(match kind {
        T::Null => vec![NULL; array.len()],
        T::Boolean => array.as_boolean().values().iter().map(u64::from).collect(),
        T::UInt64 => array.as_primitive::<UInt64Type>().values().to_vec(),
        kind if kind.is_integer() => {
            let wide = cast(array, &T::Int64).map_err(Error::columns("reading integers"))?;
            wide.as_primitive::<Int64Type>().values().iter().map(|value| *value as u64).collect()
        }
        T::Float16 => array.as_primitive::<Float16Type>().values().iter().map(|v| double(v.to_f64())).collect(),
        T::Float32 => array.as_primitive::<Float32Type>().values().iter().map(|v| double(f64::from(*v))).collect(),
        T::Float64 => array.as_primitive::<Float64Type>().values().iter().map(|v| double(*v)).collect(),
        kind if kind.is_temporal() => moments(array)?,
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => decimals(array)?,
        T::Utf8 => array.as_string::<i32>().iter().map(|v| bytes(v.map(str::as_bytes))).collect(),
        T::LargeUtf8 => array.as_string::<i64>().iter().map(|v| bytes(v.map(str::as_bytes))).collect(),
        T::Utf8View => array.as_string_view().iter().map(|v| bytes(v.map(str::as_bytes))).collect(),
        T::Binary => array.as_binary::<i32>().iter().map(bytes).collect(),
        T::LargeBinary => array.as_binary::<i64>().iter().map(bytes).collect(),
        T::BinaryView => array.as_binary_view().iter().map(bytes).collect(),
        T::FixedSizeBinary(_) => array.as_fixed_size_binary().iter().map(bytes).collect(),
        T::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return Ok(vec![NULL; array.len()]);
            }
            let distinct = values(dictionary.values())?;
            let keys = dictionary.normalized_keys();
            keys.into_iter().map(|key| distinct.get(key).copied().unwrap_or(NULL)).collect()
        }
        T::Struct(_) => hash_rows(array.as_struct().columns(), array.len())?,
        _ => {
            let (elements, offsets) = elements(array).ok_or_else(|| no_hash(kind))?;
            lists(&elements, &offsets)?
        }
    })
}

fn no_hash(kind: &DataType) -> Error {
    Error::NotAKey { column: String::from("of a record"), kind: kind.to_string() }
}

fn bytes(value: Option<&[u8]>) -> u64 {
    value.map_or(NULL, XxHash3_64::oneshot)
}

fn double(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

fn moments(array: &ArrayRef) -> Result<Vec<u64>, Error> {
    use DataType as T;
    let scaled = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    let factor = match array.data_type() {
        T::Timestamp(unit, _) | T::Time32(unit) | T::Time64(unit) | T::Duration(unit) => scaled(unit),
        T::Date32 | T::Date64 => 1,
        T::Interval(_) => return Ok(raw(array)),
        kind => return Err(no_hash(kind)),
    };
    let narrow = matches!(array.data_type(), T::Date32 | T::Time32(_));
    let is_ms = matches!(array.data_type(), T::Date64);
    let plain = cast(array, if narrow { &T::Int32 } else { &T::Int64 }).map_err(Error::columns("reading times"))?;
    Ok(if narrow {
        let moments = plain.as_primitive::<Int32Type>().values();
        moments.iter().map(|moment| i64::from(*moment).wrapping_mul(factor) as u64).collect()
    } else if is_ms {
        plain.as_primitive::<Int64Type>().values().iter().map(|ms| ms.div_euclid(86_400_000) as u64).collect()
    } else {
        plain.as_primitive::<Int64Type>().values().iter().map(|moment| moment.wrapping_mul(factor) as u64).collect()
    })
}

/// The hashes of the bytes of fixed-width values.
fn raw(array: &ArrayRef) -> Vec<u64> {
    let data = array.to_data();
    let width = data.data_type().primitive_width().unwrap_or(0);
    let kept = &data.buffers()[0].as_slice()[data.offset() * width..];
    (0..data.len()).map(|row| XxHash3_64::oneshot(&kept[row * width..(row + 1) * width])).collect()
}

fn decimals(array: &ArrayRef) -> Result<Vec<u64>, Error> {
    let of = |value: i256| XxHash3_64::oneshot(&value.to_le_bytes());
    let wide: ArrayRef = match array.data_type() {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => cast(array, &DataType::Decimal128(38, *scale)),
        _ => Ok(Arc::clone(array)),
    }
    .map_err(Error::columns("reading decimals"))?;
    if let Some(decimals) = wide.as_any().downcast_ref::<Decimal128Array>() {
        return Ok(decimals.values().iter().map(|value| of(i256::from_i128(*value))).collect());
    }
    let decimals = wide.as_any().downcast_ref::<Decimal256Array>().ok_or_else(|| no_hash(wide.data_type()))?;
    Ok(decimals.values().iter().map(|value| of(*value)).collect())
}

/// The elements of an array of lists of any kind, and the positions at which those of each row begin; `None` for other
/// arrays.
pub(crate) fn elements(array: &ArrayRef) -> Option<(ArrayRef, Vec<usize>)> {
    fn offsets<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<usize> {
        offsets.iter().map(|offset| offset.as_usize()).collect()
    }
    Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (Arc::clone(list.values()), offsets(list.value_offsets()))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (Arc::clone(list.values()), offsets(list.value_offsets()))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            (Arc::new(map.entries().clone()), offsets(map.value_offsets()))
        }
        DataType::FixedSizeList(_, length) => {
            let (list, length) = (array.as_fixed_size_list(), usize::try_from(*length).ok()?);
            (Arc::clone(list.values()), (0..=list.len()).map(|row| row * length).collect())
        }
        _ => return None,
    })
}

fn lists(elements: &ArrayRef, offsets: &[usize]) -> Result<Vec<u64>, Error> {
    // A slice of lists refers to the elements of all of them.
    let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
    let elements = values(&elements.slice(first, last - first))?;
    let list = |ends: &[usize]| {
        let list = &elements[ends[0] - first..ends[1] - first];
        list.iter().fold(mix(list.len() as u64), |list, element| folded(list, *element))
    };
    Ok(offsets.windows(2).map(list).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{
        DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, StringArray, StringViewArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, UInt8Array,
    };
    use std::sync::Arc;

    fn hashes(array: impl Array + 'static) -> Vec<u64> {
        let rows = array.len();
        hash_rows(&[Arc::new(array)], rows).unwrap()
    }

    #[test]
    fn hashes_are_those_of_every_version() {
        // From the definition above, computed with Python's integers and its `xxhash`.
        assert_eq!(hashes(Int64Array::from(vec![Some(0), Some(1), Some(-1), None])), GOLDEN_INTEGERS);
        assert_eq!(hashes(StringArray::from(vec![Some(""), Some("a"), Some("larder")])), GOLDEN_TEXTS);
        let both: [ArrayRef; 2] =
            [Arc::new(Int64Array::from(vec![7])), Arc::new(StringArray::from(vec![Some("seven")]))];
        assert_eq!(hash_rows(&both, 1).unwrap(), [GOLDEN_BOTH]);
        assert_eq!([0, u64::MAX / 2, u64::MAX].map(|hash| partition_of(hash, 12)), [0, 5, 11]);
    }

    const GOLDEN_INTEGERS: [u64; 4] =
        [0x6ae4_947e_cd40_6822, 0x5b21_c719_2825_ca5e, 0xf134_c99f_928d_c162, 0xb2e1_d871_d7de_7afa];
    const GOLDEN_TEXTS: [u64; 3] = [0x4e72_a10c_5db7_f254, 0x7047_dd37_8583_cabf, 0x66ba_0d87_3e47_d04b];
    const GOLDEN_BOTH: u64 = 0xe295_558f_63bc_f215;

    #[test]
    fn the_same_values_hash_alike_in_every_layout() {
        let texts = [Some("b"), None, Some("a"), Some("b")];
        let plain = hashes(StringArray::from_iter(texts));
        assert_eq!(hashes(StringViewArray::from_iter(texts)), plain);
        assert_eq!(hashes(texts.into_iter().collect::<DictionaryArray<Int32Type>>()), plain);
        assert_eq!(hashes(StringArray::from_iter(texts).slice(1, 3)), plain[1..]);

        assert_eq!(hashes(UInt8Array::from(vec![5])), hashes(Int64Array::from(vec![5])));
        assert_eq!(hashes(Int32Array::from(vec![-5])), hashes(Int64Array::from(vec![-5])));
        assert_eq!(hashes(Float32Array::from(vec![0.5])), hashes(Float64Array::from(vec![0.5])));
        assert_eq!(
            hashes(TimestampMillisecondArray::from(vec![3])),
            hashes(TimestampMicrosecondArray::from(vec![3000]))
        );
    }

    #[test]
    fn all_nan_are_one_and_so_are_both_zeroes() {
        let found = hashes(Float64Array::from(vec![f64::NAN, -f64::NAN, 0.0, -0.0, 1.0]));
        assert_eq!((found[0], found[2]), (found[1], found[3]));
        assert_ne!(found[2], found[4]);
    }

    #[test]
    fn lists_with_other_ends_have_other_hashes() {
        let list = |rows: [Vec<i32>; 2]| {
            let rows = rows.into_iter().map(|row| Some(row.into_iter().map(Some)));
            hash_rows(&[Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows))], 2).unwrap()
        };
        assert_ne!(list([vec![1], vec![2, 3]])[0], list([vec![1, 2], vec![3]])[0]);
        assert_eq!(list([vec![1], vec![2]])[1], list([vec![2], vec![1]])[0]);
    }
}
