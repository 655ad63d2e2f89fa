//! Which records are kept: `year >= 2020 and (kind in ('x', 'y') or kind is null)`.
//!
//! A comparison with null is neither true nor false, as in SQL, and what is not true is not kept. NaN equals itself
//! and is above every number.

use crate::compare::meet;
use crate::words::{Literal, Words};
use crate::{Error, quotes};
use arrow::array::{ArrayRef, BooleanArray, Datum, Scalar};
use arrow::compute::kernels::cmp;
use arrow::compute::{and_kleene, is_not_null, is_null, not, or_kleene};
use arrow::error::ArrowError;
use std::collections::HashMap;
use std::str::FromStr;

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
    /// One or more. Chains of any length lie side by side: nested, they would need as deep a stack.
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
    /// The columns it looks at, each once.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        self.condition.columns(&mut columns);
        columns
    }

    /// Whether each record is kept. `columns` has all of [`Self::columns`]; in formats with texts for fields, numbers
    /// are read from them.
    pub(crate) fn keeps(&self, columns: &HashMap<&str, ArrayRef>, text_fields: bool) -> Result<BooleanArray, Error> {
        self.condition.holds(columns, text_fields)
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
        Self::read(text).map_err(|error| quotes::advised(error, |quoted| Self::read(quoted).is_ok()))
    }
}

impl Filter {
    fn read(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text)?;
        let condition = either(&mut words, 0)?;
        words.end()?;
        Ok(Self { text: text.to_owned(), condition })
    }
}

fn either(words: &mut Words<'_>, depth: usize) -> Result<Condition, Error> {
    let mut conditions = vec![both(words, depth)?];
    while words.takes_keyword("or")? {
        conditions.push(both(words, depth)?);
    }
    Ok(Condition::Any(conditions))
}

fn both(words: &mut Words<'_>, depth: usize) -> Result<Condition, Error> {
    let mut conditions = vec![single(words, depth)?];
    while words.takes_keyword("and")? {
        conditions.push(single(words, depth)?);
    }
    Ok(Condition::All(conditions))
}

fn single(words: &mut Words<'_>, depth: usize) -> Result<Condition, Error> {
    if depth > DEPTH_MAX {
        return Err(words.wrong("a condition that is nested less deeply"));
    }
    if words.takes_keyword("not")? {
        return Ok(Condition::Not(Box::new(single(words, depth + 1)?)));
    }
    if words.takes("(")? {
        let inner = either(words, depth + 1)?;
        words.must(")", "a closing parenthesis, and, or or")?;
        return Ok(inner);
    }
    let column = words.name()?;
    if words.takes_keyword("is")? {
        let negated = words.takes_keyword("not")?;
        return if words.takes_keyword("null")? {
            Ok(Condition::IsNull { column, negated })
        } else {
            Err(words.wrong("null"))
        };
    }
    if words.takes_keyword("in")? {
        return one_of(words, &column);
    }
    let signs = [
        ("=", Sign::Equal),
        ("==", Sign::Equal),
        ("!=", Sign::Unequal),
        ("<>", Sign::Unequal),
        ("<", Sign::Below),
        ("<=", Sign::AtMost),
        (">", Sign::Above),
        (">=", Sign::AtLeast),
    ];
    for (text, sign) in signs {
        if words.takes(text)? {
            return Ok(Condition::Compare { column, sign, literal: words.literal()? });
        }
    }
    Err(words.wrong("a comparison, in, is null or is not null"))
}

/// The literals behind `in`: the column equals one of them.
fn one_of(words: &mut Words<'_>, column: &str) -> Result<Condition, Error> {
    words.must("(", "an opening parenthesis")?;
    let mut conditions = Vec::new();
    loop {
        let literal = words.literal()?;
        conditions.push(Condition::Compare { column: column.to_owned(), sign: Sign::Equal, literal });
        if !words.takes(",")? {
            break;
        }
    }
    words.must(")", "a comma or a closing parenthesis")?;
    Ok(Condition::Any(conditions))
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

    fn holds(&self, columns: &HashMap<&str, ArrayRef>, text_fields: bool) -> Result<BooleanArray, Error> {
        let kernel = Error::columns("filtering");
        let column = |name: &str| columns.get(name).ok_or_else(|| Error::missing(name, columns.keys().copied()));
        match self {
            Self::Compare { column: name, sign, literal } => {
                let (left, right) = meet(name, column(name)?, std::slice::from_ref(literal), text_fields)?;
                sign.compares(&left, &Scalar::new(right)).map_err(kernel)
            }
            Self::IsNull { column: name, negated: false } => is_null(column(name)?).map_err(kernel),
            Self::IsNull { column: name, negated: true } => is_not_null(column(name)?).map_err(kernel),
            Self::All(conditions) => joined(conditions, columns, text_fields, and_kleene),
            Self::Any(conditions) => joined(conditions, columns, text_fields, or_kleene),
            Self::Not(inner) => not(&inner.holds(columns, text_fields)?).map_err(kernel),
        }
    }
}

/// What all of these, of which there is one, are together.
fn joined(
    conditions: &[Condition],
    columns: &HashMap<&str, ArrayRef>,
    text_fields: bool,
    join: fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>,
) -> Result<BooleanArray, Error> {
    let mut whole = conditions[0].holds(columns, text_fields)?;
    for condition in &conditions[1..] {
        whole = join(&whole, &condition.holds(columns, text_fields)?).map_err(Error::columns("filtering"))?;
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
