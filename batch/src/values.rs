//! The distinct values of a column, numbered in the order in which they are found.

use crate::compare::with_offset;
use crate::error::Error;
use crate::hash::hash_rows;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Write;

/// Hive's name for null, which DuckDB, Spark and Arrow read as null.
const NULL_NAME: &str = "__HIVE_DEFAULT_PARTITION__";
/// The longest value in a name, in encoded bytes.
const NAME_BYTES_MAX: usize = 200;

/// A value in its persisted form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownValue {
    name: String,
    /// `None` for null.
    hash: Option<u64>,
    bytes: Option<Vec<u8>>,
}

/// The values found so far.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The bytes of each value, or `None` if its type has a one-to-one hash.
    known: Vec<Option<Vec<u8>>>,
    names: Vec<String>,
    numbers: HashMap<u64, Vec<u32>>,
    null: Option<u32>,
}

impl Values {
    /// All values, by their numbers.
    pub(crate) fn known(&self) -> Vec<KnownValue> {
        let mut hashes = vec![None; self.count()];
        for (hash, numbers) in &self.numbers {
            for number in numbers {
                hashes[*number as usize] = Some(*hash);
            }
        }
        let values = self.names.iter().zip(hashes).zip(&self.known);
        values.map(|((name, hash), bytes)| KnownValue { name: name.clone(), hash, bytes: bytes.clone() }).collect()
    }

    /// Values with the numbers that they had in `known`.
    pub(crate) fn of_known(known: &[KnownValue]) -> Self {
        let mut values = Self::default();
        for (number, value) in (0..).zip(known) {
            values.names.push(value.name.clone());
            values.known.push(value.bytes.clone());
            match value.hash {
                Some(hash) => values.numbers.entry(hash).or_default().push(number),
                None => values.null = Some(number),
            }
        }
        values
    }

    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, column: &str, partition: usize) -> String {
        format!("{}={}", encoded(column), self.names.get(partition).map_or("", String::as_str))
    }

    /// The partition of each row. New values get the next numbers, below `limit`.
    pub(crate) fn partitions(&mut self, name: &str, column: &ArrayRef, limit: usize) -> Result<Vec<u32>, Error> {
        let hashes = hash_rows(std::slice::from_ref(column), column.len())?;
        let bytes = bytes_of(column)?;
        let nulls = column.logical_nulls();
        let mut partitions = Vec::with_capacity(hashes.len());
        let mut last = None;
        for (row, hash) in hashes.into_iter().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                partitions.push(self.of_null(name, limit)?);
                continue;
            }
            let value = bytes.as_ref().map(|bytes| bytes.as_binary::<i32>().value(row));
            if let Some((before, partition)) = last
                && before == (hash, value)
            {
                partitions.push(partition);
                continue;
            }
            let partition = match self.number(hash, value) {
                Some(number) => number,
                None if self.count() == limit => return Err(Error::TooManyValues { column: name.to_owned(), limit }),
                None => self.add(hash, value, text(column, row)?),
            };
            assert!((partition as usize) < limit, "values are numbered below the limit");
            last = Some(((hash, value), partition));
            partitions.push(partition);
        }
        Ok(partitions)
    }

    fn of_null(&mut self, column: &str, limit: usize) -> Result<u32, Error> {
        if let Some(number) = self.null {
            return Ok(number);
        }
        if self.count() == limit {
            return Err(Error::TooManyValues { column: column.to_owned(), limit });
        }
        let number = self.count() as u32;
        self.names.push(NULL_NAME.to_owned());
        self.known.push(None);
        self.null = Some(number);
        Ok(number)
    }

    fn number(&self, hash: u64, value: Option<&[u8]>) -> Option<u32> {
        let numbers = self.numbers.get(&hash)?;
        numbers.iter().copied().find(|number| self.known[*number as usize].as_deref() == value)
    }

    fn add(&mut self, hash: u64, value: Option<&[u8]>, name: String) -> u32 {
        let number = self.count() as u32;
        // No text takes the name of null.
        let name = if name == NULL_NAME { name.replacen('_', "%5F", 1) } else { name };
        // Two values may be formatted or shortened to the same name; their partitions stay distinct.
        let taken = self.names.contains(&name);
        self.names.push(if taken { format!("{name}~{number}") } else { name });
        self.known.push(value.map(<[u8]>::to_vec));
        self.numbers.entry(hash).or_default().push(number);
        assert_eq!(self.names.len(), self.known.len(), "every value has a name");
        number
    }
}

/// The values as bytes, for types with a hash that is not one-to-one.
fn bytes_of(column: &ArrayRef) -> Result<Option<ArrayRef>, Error> {
    use DataType as T;
    let plain = match column.data_type() {
        T::Dictionary(_, values) => (**values).clone(),
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => T::Utf8,
        T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => {
            return cast(column, &T::Binary).map(Some).map_err(Error::columns("reading values"));
        }
        _ => return Ok(None),
    };
    bytes_of(&cast(column, &plain).map_err(Error::columns("reading values"))?)
}

fn text(column: &ArrayRef, row: usize) -> Result<String, Error> {
    let column = &with_offset(column)?;
    let texts = match column.data_type() {
        DataType::Binary => return Ok(encoded(&String::from_utf8_lossy(column.as_binary::<i32>().value(row)))),
        _ => ArrayFormatter::try_new(column, &FormatOptions::default()),
    };
    let texts = texts.map_err(Error::columns("naming values"))?;
    Ok(encoded(&texts.value(row).to_string()))
}

/// The text with all but letters, digits and a few signs percent-encoded, cut if it is too long.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:+ ".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        if encoded.len() >= NAME_BYTES_MAX {
            break;
        }
    }
    encoded
}
