//! The grammar that partitioners and filters share: names, literals, signs, and the positions of errors.
//!
//! Invariants:
//! - If a parser fails permanently, its input begins at the wrong word, so that the error can name the word.

use crate::error::Error;
use std::borrow::Cow;
use std::fmt;
use winnow::combinator::{alt, cut_err, delimited, eof, not, opt, peek, preceded, repeat, terminated};
use winnow::error::{AddContext, ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::Stream;
use winnow::token::{none_of, one_of, take_till, take_while};

/// A value written in a partitioner or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A number, as it was written.
    Number(String),
    /// A text in quotes.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => f.write_str(number),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// The description of a missing literal.
pub(crate) const LITERAL: &str = "a number, a text in quotes, true or false";
const CLOSING_QUOTE: &str = "a closing quote";

/// The innermost description of what was expected.
#[derive(Debug)]
pub(crate) struct ExpectedSyntax(Option<&'static str>);

pub(crate) type Parsed<T> = ModalResult<T, ExpectedSyntax>;

impl ParserError<&str> for ExpectedSyntax {
    type Inner = Self;

    fn from_input(_: &&str) -> Self {
        Self(None)
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl<'a> AddContext<&'a str, &'static str> for ExpectedSyntax {
    fn add_context(self, _: &&'a str, _: &<&'a str as Stream>::Checkpoint, wanted: &'static str) -> Self {
        Self(self.0.or(Some(wanted)))
    }
}

/// A permanent failure at the beginning of the rest.
pub(crate) fn refuse<T>(wanted: &'static str) -> Parsed<T> {
    Err(ErrMode::Cut(ExpectedSyntax(Some(wanted))))
}

/// Reads all of `text`.
pub(crate) fn read<'a, T>(text: &'a str, expression: fn(&mut &'a str) -> Parsed<T>) -> Result<T, Error> {
    delimited(space, expression, eof.context("the end")).parse(text).map_err(|error| {
        let wanted = error.inner().0.unwrap_or("something else");
        let (before, rest) = text.split_at(error.offset());
        let found = if wanted == CLOSING_QUOTE { String::from("none") } else { shown(rest) };
        Error::Syntax { text: text.to_owned(), at: before.chars().count() + 1, wanted, found, hint: None }
    })
}

/// The word at the beginning of `rest`, for messages.
fn shown(rest: &str) -> String {
    let mut input = rest;
    let word: Parsed<String> = alt((
        eof.value(String::from("the end")),
        preceded(peek(number), take_while(1.., in_value)).map(str::to_owned),
        bare.map(|name| format!("`{name}`")),
        quoted('`').map(|name| format!("`{name}`")),
        quoted('\'').map(|text| format!("'{text}'")),
        quoted('"').map(|text| format!("'{text}'")),
    ))
    .parse_next(&mut input);
    word.unwrap_or_else(|_| format!("`{}`", rest.chars().next().unwrap_or_default()))
}

fn space(input: &mut &str) -> Parsed<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

/// This sign, and the space after it.
pub(crate) fn sign<'a>(sign: &'static str) -> impl Parser<&'a str, (), ErrMode<ExpectedSyntax>> {
    (sign, space).void()
}

/// This sign; anything else is refused.
pub(crate) fn must<'a>(text: &'static str, wanted: &'static str) -> impl Parser<&'a str, (), ErrMode<ExpectedSyntax>> {
    cut_err(sign(text)).context(wanted)
}

/// This keyword in any case, and the space after it.
pub(crate) fn keyword<'a>(word: &'static str) -> impl Parser<&'a str, (), ErrMode<ExpectedSyntax>> {
    terminated(bare.verify(move |name: &str| name.eq_ignore_ascii_case(word)), space).void()
}

/// The name of a column; anything else is refused.
pub(crate) fn name(input: &mut &str) -> Parsed<String> {
    let name = alt((bare.map(str::to_owned), quoted('`')));
    cut_err(terminated(name, space)).context("the name of a column").parse_next(input)
}

/// A value; anything else is refused.
pub(crate) fn literal(input: &mut &str) -> Parsed<Literal> {
    let literal = alt((
        terminated(number.verify(|text: &str| text.parse::<f64>().is_ok()), not(attached))
            .map(|number| Literal::Number(number.to_owned())),
        alt((quoted('\''), quoted('"'))).map(Literal::Text),
        keyword("true").value(Literal::Bool(true)),
        keyword("false").value(Literal::Bool(false)),
    ));
    cut_err(terminated(literal, space)).context(LITERAL).parse_next(input)
}

/// A character after a number that makes it a date, a time or a text.
fn attached(input: &mut &str) -> Parsed<()> {
    (not(alt((keyword("and"), keyword("or")))), one_of(|char| in_value(char) && char != '.')).void().parse_next(input)
}

/// The characters of a number. Not every sequence of them is a number.
fn number<'a>(input: &mut &'a str) -> Parsed<&'a str> {
    let number = take_while(1.., ('0'..='9', '.', '+', '-', 'e', 'E'));
    number.verify(|text: &str| !text.starts_with(['e', 'E'])).parse_next(input)
}

/// A character of dates, times and texts that should have been quoted.
pub(crate) fn in_value(char: char) -> bool {
    char.is_alphanumeric() || "-+:./_".contains(char)
}

fn in_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '.')
}

/// A bare name, with `[a..b]` after it if it has such a range.
fn bare<'a>(input: &mut &'a str) -> Parsed<&'a str> {
    let first = one_of(|char: char| char.is_alphabetic() || char == '_');
    (first, take_while(0.., in_name), opt(('[', take_till(0.., ']'), ']'))).take().parse_next(input)
}

/// A text in quotes; a doubled quote is a quote in the text. A quote that is not closed is refused at its opening.
fn quoted<'a>(quote: char) -> impl Parser<&'a str, String, ErrMode<ExpectedSyntax>> {
    move |input: &mut &'a str| {
        let start = *input;
        let inner = repeat(0.., alt((none_of(quote), (quote, quote).value(quote))));
        let closed = cut_err(terminated(inner, quote)).context(CLOSING_QUOTE);
        let text: Parsed<String> = preceded(quote, closed).parse_next(input);
        text.inspect_err(|_| *input = start)
    }
}

/// A column's name as the parser reads it: in backticks unless it is a bare word.
pub(crate) fn as_name(name: &str) -> Cow<'_, str> {
    if bare.parse(name).is_ok() { Cow::Borrowed(name) } else { Cow::Owned(format!("`{}`", name.replace('`', "``"))) }
}
