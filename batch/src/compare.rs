//! Converts a column and literals to one type, so that they can be compared.
//!
//! - A number is compared with integers, floats and decimals by value, without rounding. Floats of any width are
//!   compared as doubles; a whole number that no double represents is refused with them.
//! - A text is compared with texts, bytes, and dates and times in their notation, for example `'2020-02-29'`.
//! - Fields of CSV and JSON are texts. To be compared with a number, all of them must be numbers; they are compared by
//!   value, regardless of their length ([`crate::number`]). Empty fields are null.
//! - -0 is 0, and all NaN are one.
//! - A time without an offset has the column's offset; if the column's zone is named, it is in UTC.

use crate::error::Error;
use crate::expression::Literal;
use crate::number;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray, make_array};
use arrow_cast::display::FormatOptions;
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::DataType;
use std::sync::Arc;

/// Column and literals as arrays of one type.
pub(crate) fn comparable(
    name: &str,
    column: &ArrayRef,
    literals: &[Literal],
    text_fields: bool,
) -> Result<(ArrayRef, ArrayRef), Error> {
    use DataType as T;
    let flat = flattened(column)?;
    let kind = flat.data_type().clone();
    let texts = written(literals);
    let numbers = literals.iter().all(|literal| matches!(literal, Literal::Number(_)));
    let quoted = literals.iter().all(|literal| matches!(literal, Literal::Text(_)));
    let refusal = |hint| refusal(name, &kind, literals, hint);
    match &kind {
        T::Utf8 if text_fields && numbers => numbers_of_texts(name, &flat, &texts),
        T::Utf8 if text_fields || quoted => Ok((flat, texts)),
        T::Binary if quoted => Ok((flat, strict(&texts, &T::Binary).ok_or_else(|| refusal(""))?)),
        T::Utf8 | T::Binary => Err(refusal("; put it in quotes")),
        T::Boolean => {
            let truths = literals.iter().map(|literal| match literal {
                Literal::Bool(value) => Some(*value),
                Literal::Number(_) | Literal::Text(_) => None,
            });
            let truths: BooleanArray = truths.collect();
            if truths.null_count() > 0 { Err(refusal("; it is true or false")) } else { Ok((flat, Arc::new(truths))) }
        }
        kind if kind.is_numeric() && numbers => numeric(&flat, &texts).ok_or_else(|| refusal("")),
        kind if kind.is_numeric() => Err(refusal("; write it without quotes")),
        kind if kind.is_temporal() && quoted => {
            Ok((Arc::clone(&flat), strict(&texts, kind).ok_or_else(|| refusal("; write it as '2020-02-29 23:59:00'"))?))
        }
        kind if kind.is_temporal() => Err(refusal("; write it as '2020-02-29', in quotes")),
        kind => Err(Error::NotAKey { column: name.to_owned(), kind: kind.to_string() }),
    }
}

/// The column converted to one of a few plain types.
fn flattened(column: &ArrayRef) -> Result<ArrayRef, Error> {
    use DataType as T;
    let plain = match column.data_type() {
        T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Dictionary(_, values) => (**values).clone(),
        _ => return with_offset(column),
    };
    let reading = Error::columns("comparing");
    let flat = cast(column, &plain).map_err(reading)?;
    if flat.data_type() == column.data_type() { Ok(flat) } else { flattened(&flat) }
}

/// Converts timestamps with a named zone to timestamps in UTC: they mean the same moments, and names would need a table
/// of all zones. Other columns stay as they are.
pub(crate) fn with_offset(column: &ArrayRef) -> Result<ArrayRef, Error> {
    let DataType::Timestamp(unit, Some(zone)) = column.data_type() else { return Ok(Arc::clone(column)) };
    if zone.starts_with(['+', '-']) {
        return Ok(Arc::clone(column));
    }
    let kind = DataType::Timestamp(*unit, Some(Arc::from("+00:00")));
    let moments = column.to_data().into_builder().data_type(kind).build();
    moments.map(make_array).map_err(Error::columns("comparing"))
}

fn refusal(name: &str, kind: &DataType, literals: &[Literal], hint: &'static str) -> Error {
    let literal = literals.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Error::Incomparable { column: name.to_owned(), kind: kind.to_string(), literal, hint }
}

fn written(literals: &[Literal]) -> ArrayRef {
    let texts = literals.iter().map(|literal| match literal {
        Literal::Number(text) | Literal::Text(text) => text.clone(),
        Literal::Bool(value) => value.to_string(),
    });
    Arc::new(texts.map(Some).collect::<StringArray>())
}

/// A cast that fails if any value cannot be converted.
fn strict(array: &ArrayRef, kind: &DataType) -> Option<ArrayRef> {
    cast_with_options(array, kind, &CastOptions { safe: false, format_options: FormatOptions::default() }).ok()
}

/// Numbers and literals in the column's type, else as the widest decimals, else as doubles.
fn numeric(column: &ArrayRef, texts: &ArrayRef) -> Option<(ArrayRef, ArrayRef)> {
    if column.data_type().is_floating() {
        return Some((doubles(column)?, doubles_of(texts)?));
    }
    if !column.data_type().is_decimal()
        && let Some(literals) = strict(texts, column.data_type())
    {
        return Some((Arc::clone(column), literals));
    }
    let digits = fraction_digits(texts);
    let scale = match column.data_type() {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => digits.max(*scale),
        _ => digits,
    };
    let wide = DataType::Decimal256(76, scale);
    match (strict(column, &wide), strict(texts, &wide)) {
        (Some(column), Some(texts)) => Some((column, texts)),
        _ => Some((doubles(column)?, doubles_of(texts)?)),
    }
}

/// Numbers as doubles, with -0 as 0 and every NaN as the one above all numbers.
fn doubles(numbers: &ArrayRef) -> Option<ArrayRef> {
    let numbers = strict(numbers, &DataType::Float64)?;
    let plain = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
    Some(Arc::new(numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(plain)))
}

/// Literals as doubles, if each is in range and whole numbers are exact.
fn doubles_of(texts: &ArrayRef) -> Option<ArrayRef> {
    let doubles = doubles(texts)?;
    let mut pairs =
        doubles.as_primitive::<Float64Type>().values().iter().zip(texts.as_string::<i32>().iter().flatten());
    let kept = |(double, text): (&f64, &str)| {
        let whole = text.strip_prefix('+').unwrap_or(text).parse::<i128>();
        double.is_finite() && whole.map_or(!text.bytes().all(|b| b.is_ascii_digit()), |whole| same(*double, whole))
    };
    pairs.all(kept).then_some(doubles)
}

/// True if the double equals the whole number.
#[allow(clippy::cast_possible_truncation)]
fn same(double: f64, whole: i128) -> bool {
    double.abs() < 1e38 && double as i128 == whole
}

/// Digits after the point, at most 37; 37 for a number with an exponent.
fn fraction_digits(texts: &ArrayRef) -> i8 {
    let digits = texts.as_string::<i32>().iter().flatten().map(|text| match text.split_once('.') {
        _ if text.contains(['e', 'E']) => 37,
        Some((_, fraction)) => fraction.len().min(37),
        None => 0,
    });
    digits.max().unwrap_or(0) as i8
}

/// Texts as doubles if doubles distinguish all of them, else as keys that sort like numbers. Both give the same order,
/// so the partition of a record does not depend on its neighbours.
fn numbers_of_texts(name: &str, column: &ArrayRef, texts: &ArrayRef) -> Result<(ArrayRef, ArrayRef), Error> {
    let reading = || Error::columns("reading numbers");
    let numbers = cast(column, &DataType::Float64).map_err(reading())?;
    if numbers.null_count() != column.null_count() {
        let row = (0..column.len()).find(|row| column.is_valid(*row) && numbers.is_null(*row)).unwrap_or(0);
        let text = column.as_string::<i32>().value(row).to_owned();
        return Err(Error::NotANumber { record: row as u64 + 1, column: name.to_owned(), text });
    }
    let literals = cast(texts, &DataType::Float64).map_err(reading())?;
    let (column, texts) = (column.as_string::<i32>(), texts.as_string::<i32>());
    if column.iter().chain(texts).flatten().all(number::fits_a_double) {
        let plain = |numbers: &ArrayRef| doubles(numbers).unwrap_or_else(|| Arc::clone(numbers));
        return Ok((plain(&numbers), plain(&literals)));
    }
    Ok((number::keys(column, &numbers), number::keys(texts, &literals)))
}
