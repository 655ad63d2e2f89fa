//! The distinct values of a column, numbered as they are met.

use crate::Error;
use crate::compare::with_offset;
use crate::hash::hash_rows;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::collections::HashMap;
use std::fmt::Write;

/// Hive's name for null, which DuckDB, Spark and Arrow read back as one.
const NULL_NAME: &str = "__HIVE_DEFAULT_PARTITION__";
/// The longest value in a name, in bytes as they are encoded.
const NAME_BYTES_MAX: usize = 200;

/// Values met so far.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Of each value its bytes, if it is of some length, else nothing: its hash tells it from others for certain.
    known: Vec<Option<Vec<u8>>>,
    names: Vec<String>,
    numbers: HashMap<u64, Vec<u32>>,
    null: Option<u32>,
}

impl Values {
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, column: &str, partition: usize) -> String {
        format!("{}={}", encoded(column), self.names.get(partition).map_or("", String::as_str))
    }

    /// The partition of each row; values not met before get the next numbers, below `limit`.
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
        // The name of null is its own, even if a text is written so.
        let name = if name == NULL_NAME { name.replacen('_', "%5F", 1) } else { name };
        // Two values may be written alike once they are shortened or formatted; their partitions stay two.
        let taken = self.names.contains(&name);
        self.names.push(if taken { format!("{name}~{number}") } else { name });
        self.known.push(value.map(<[u8]>::to_vec));
        self.numbers.entry(hash).or_default().push(number);
        number
    }
}

/// The values as bytes, of types whose hash is not one to one.
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

/// Letters, digits and a few signs as they are, other bytes percent-encoded, and not too long.
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
