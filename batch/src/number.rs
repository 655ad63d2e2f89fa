//! Numbers as texts, compared by value, with any number of digits.
//!
//! A number becomes a key of bytes that sort like the numbers: a sign, the place of the first digit, the digits.
//! Infinities are at the ends, and NaN is above all.

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, StringArray};
use std::sync::Arc;

/// Doubles distinguish numbers of up to this many decimal digits.
const DIGITS_IN_DOUBLE: usize = 15;

/// True if a double distinguishes this number from all others of at most this length.
pub(crate) fn fits_a_double(text: &str) -> bool {
    text.len() <= DIGITS_IN_DOUBLE && !text.contains(['e', 'E'])
}

/// The keys of numbers, given both as texts and as doubles.
pub(crate) fn keys(texts: &StringArray, doubles: &ArrayRef) -> ArrayRef {
    let doubles = doubles.as_primitive::<Float64Type>();
    let mut keys = BinaryBuilder::with_capacity(texts.len(), 0);
    for (row, text) in texts.iter().enumerate() {
        keys.append_option(text.map(|text| key(text, doubles.value(row))));
    }
    Arc::new(keys.finish())
}

fn key(text: &str, double: f64) -> Vec<u8> {
    if double.is_nan() {
        return vec![5];
    }
    let (negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    match place_and_digits(magnitude.strip_prefix('+').unwrap_or(magnitude)) {
        Some((_, digits)) if digits.is_empty() => vec![2],
        Some((place, digits)) => {
            let mut key = vec![3];
            key.extend_from_slice(&(place.cast_unsigned() ^ (1 << 63)).to_be_bytes());
            key.extend_from_slice(&digits);
            if negative {
                // Negative numbers sort in reverse: a longer one is lower.
                for byte in &mut key {
                    *byte = !*byte;
                }
                key[0] = 1;
                key.push(u8::MAX);
            }
            key
        }
        None if double == 0.0 => vec![2],
        None => vec![if negative { 0 } else { 4 }],
    }
}

/// The digits without zeros at either end, and the number of digits before the point; `None` if the number is not
/// finite or its exponent is absurd.
fn place_and_digits(magnitude: &str) -> Option<(i64, Vec<u8>)> {
    let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeroes = digits.iter().take_while(|digit| **digit == b'0').count();
    let end = digits.iter().rposition(|digit| *digit != b'0').map_or(zeroes, |last| last + 1);
    let exponent = exponent.parse::<i64>().ok().filter(|exponent| exponent.abs() < 1 << 40)?;
    let (before, zeroes_before) = (i64::try_from(whole.len()).ok()?, i64::try_from(zeroes).ok()?);
    Some((exponent + before - zeroes_before, digits[zeroes..end].to_vec()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_numbers() {
        let ascending = [
            "-inf",
            "-1e400",
            "-9007199254740993",
            "-9007199254740992.5",
            "-1.25",
            "-1.2",
            "-1e-400",
            "0",
            "1e-400",
            "0.09",
            "0.1",
            "0.12",
            "9007199254740992",
            "9007199254740992.5",
            "9007199254740993",
            "1e400",
            "inf",
            "NaN",
        ];
        let keys = ascending.map(|text| key(text, text.parse().unwrap()));
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
        for alike in [["1", "+01.0"], ["-0", "0.0e5"], ["1500", "1.5e3"], ["-0.5", "-.50"], ["NaN", "-NaN"]] {
            let [one, other] = alike.map(|text| key(text, text.parse().unwrap()));
            assert_eq!(one, other, "{alike:?}");
        }
    }
}
