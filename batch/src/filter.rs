//! Conditions on records: `year >= 2020 and (kind in ('x', 'y') or kind is null)`.
//!
//! A comparison with null is neither true nor false, as in SQL, and a record is kept only if its condition is true. NaN
//! equals itself and is above every number.

use crate::compare::comparable;
use crate::error::Error;
use crate::expression::{Literal, Parsed, keyword, literal, must, name, refuse, sign};
use crate::hint::read_or_hint;
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, Scalar};
use arrow_buffer::BooleanBuffer;
use arrow_ord::cmp;
use arrow_schema::ArrowError;
use std::collections::HashMap;
use std::str::FromStr;
use winnow::combinator::{alt, cut_err, delimited, opt, preceded, separated, terminated};
use winnow::prelude::*;

/// The deepest nesting of parentheses and `not`.
const DEPTH_MAX: usize = 64;

/// A condition on the columns of a record, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Compare {
        column: String,
        sign: Sign,
        literal: Literal,
    },
    IsNull {
        column: String,
        negated: bool,
    },
    /// One or more. A chain is a list, since nesting would need a stack as deep as the chain is long.
    All(Vec<Condition>),
    /// One or more.
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Filter {
    /// The columns that it reads, each once.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        self.condition.columns(&mut columns);
        columns
    }

    /// True for each record that is kept. `columns` has all of [`Self::columns`]; with `text_fields`, numbers are read
    /// from texts.
    pub(crate) fn keeps(&self, columns: &HashMap<&str, ArrayRef>, text_fields: bool) -> Result<BooleanArray, Error> {
        Ok(BooleanArray::new(self.condition.truth(columns, text_fields)?.holds, None))
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let condition = read_or_hint(text, |input| any(input, 0))?;
        Ok(Self { text: text.to_owned(), condition })
    }
}

fn any(input: &mut &str, depth: usize) -> Parsed<Condition> {
    let all = |input: &mut &str| all(input, depth);
    separated(1.., all, keyword("or")).map(Condition::Any).parse_next(input)
}

fn all(input: &mut &str, depth: usize) -> Parsed<Condition> {
    let single = |input: &mut &str| single(input, depth);
    separated(1.., single, keyword("and")).map(Condition::All).parse_next(input)
}

fn single(input: &mut &str, depth: usize) -> Parsed<Condition> {
    if depth > DEPTH_MAX {
        return refuse("a condition that is nested less deeply");
    }
    if opt(keyword("not")).parse_next(input)?.is_some() {
        return Ok(Condition::Not(Box::new(single(input, depth + 1)?)));
    }
    if opt(sign("(")).parse_next(input)?.is_some() {
        let inner = any(input, depth + 1)?;
        must(")", "a closing parenthesis, and, or or").parse_next(input)?;
        return Ok(inner);
    }
    let column = name(input)?;
    cut_err(alt((
        null.map(|negated| Condition::IsNull { column: column.clone(), negated }),
        literals.map(|literals| Condition::Any(literals.into_iter().map(|literal| equals(&column, literal)).collect())),
        (comparison, literal).map(|(sign, literal)| Condition::Compare { column: column.clone(), sign, literal }),
    )))
    .context("a comparison, in, is null or is not null")
    .parse_next(input)
}

/// `is null` or `is not null`; true for the latter.
fn null(input: &mut &str) -> Parsed<bool> {
    let not = opt(keyword("not")).map(|not| not.is_some());
    preceded(keyword("is"), terminated(not, cut_err(keyword("null")).context("null"))).parse_next(input)
}

/// The literals after `in`.
fn literals(input: &mut &str) -> Parsed<Vec<Literal>> {
    let begin = (keyword("in"), must("(", "an opening parenthesis"));
    let end = must(")", "a comma or a closing parenthesis");
    delimited(begin, separated(1.., literal, sign(",")), end).parse_next(input)
}

fn equals(column: &str, literal: Literal) -> Condition {
    Condition::Compare { column: column.to_owned(), sign: Sign::Equal, literal }
}

fn comparison(input: &mut &str) -> Parsed<Sign> {
    alt((
        alt((sign("=="), sign("="))).value(Sign::Equal),
        alt((sign("!="), sign("<>"))).value(Sign::Unequal),
        sign("<=").value(Sign::AtMost),
        sign("<").value(Sign::Below),
        sign(">=").value(Sign::AtLeast),
        sign(">").value(Sign::Above),
    ))
    .parse_next(input)
}

impl Condition {
    fn columns<'a>(&'a self, found: &mut Vec<&'a str>) {
        match self {
            Self::Compare { column, .. } | Self::IsNull { column, .. } => {
                if !found.contains(&column.as_str()) {
                    found.push(column);
                }
            }
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().for_each(|inner| inner.columns(found)),
            Self::Not(inner) => inner.columns(found),
        }
    }

    fn truth(&self, columns: &HashMap<&str, ArrayRef>, text_fields: bool) -> Result<TruthBits, Error> {
        let column = |name: &str| columns.get(name).ok_or_else(|| Error::missing(name, columns.keys().copied()));
        match self {
            Self::Compare { column: name, sign, literal } => {
                let (left, right) = comparable(name, column(name)?, std::slice::from_ref(literal), text_fields)?;
                let compared = sign.compares(&left, &Scalar::new(right)).map_err(Error::columns("filtering"))?;
                let known = known(&compared);
                Ok(TruthBits { holds: compared.values() & &known, fails: &!compared.values() & &known })
            }
            Self::IsNull { column: name, negated } => {
                let known = known(column(name)?);
                let null = TruthBits { holds: !&known, fails: known };
                Ok(if *negated { null.negated() } else { null })
            }
            Self::All(conditions) => joined(conditions, columns, text_fields, TruthBits::and),
            Self::Any(conditions) => joined(conditions, columns, text_fields, TruthBits::or),
            Self::Not(inner) => Ok(inner.truth(columns, text_fields)?.negated()),
        }
    }
}

/// The truth of a condition for each record: it holds, it fails, or, if neither bit is set, a null hides it.
struct TruthBits {
    holds: BooleanBuffer,
    fails: BooleanBuffer,
}

impl TruthBits {
    fn and(&self, other: &Self) -> Self {
        Self { holds: &self.holds & &other.holds, fails: &self.fails | &other.fails }
    }

    fn or(&self, other: &Self) -> Self {
        Self { holds: &self.holds | &other.holds, fails: &self.fails & &other.fails }
    }

    fn negated(self) -> Self {
        Self { holds: self.fails, fails: self.holds }
    }
}

/// A bit for each value that is not null.
fn known(values: &dyn Array) -> BooleanBuffer {
    let nulls = values.logical_nulls();
    nulls.map_or_else(|| BooleanBuffer::new_set(values.len()), |nulls| nulls.inner().clone())
}

/// The conjunction or disjunction of one or more conditions.
fn joined(
    conditions: &[Condition],
    columns: &HashMap<&str, ArrayRef>,
    text_fields: bool,
    join: fn(&TruthBits, &TruthBits) -> TruthBits,
) -> Result<TruthBits, Error> {
    let (first, rest) = conditions.split_first().expect("a chain has one condition or more");
    let mut whole = first.truth(columns, text_fields)?;
    for condition in rest {
        whole = join(&whole, &condition.truth(columns, text_fields)?);
    }
    Ok(whole)
}

impl Sign {
    fn compares(self, left: &ArrayRef, right: &dyn Datum) -> Result<BooleanArray, ArrowError> {
        match self {
            Self::Equal => cmp::eq(left, right),
            Self::Unequal => cmp::neq(left, right),
            Self::Below => cmp::lt(left, right),
            Self::AtMost => cmp::lt_eq(left, right),
            Self::Above => cmp::gt(left, right),
            Self::AtLeast => cmp::gt_eq(left, right),
        }
    }
}
