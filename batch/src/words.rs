//! Words of partitioners and filters: names, numbers, texts in quotes, signs.
//!
//! Invariants:
//! - A word knows the character it begins at, so that every refusal can name it.

use crate::Error;
use std::borrow::Cow;

/// A value written in a partitioner or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A number, as it was written.
    Number(String),
    /// A text that stood in quotes.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => f.write_str(number),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// A bare word, which may be a keyword; with `[a..b]` behind it, if there is one.
    Name(String),
    /// A name in backticks, never a keyword.
    Quoted(String),
    Number(String),
    Text(String),
    Sign(&'static str),
    End,
}

/// Reads words one by one, with one word of foresight.
pub(crate) struct Words<'a> {
    text: &'a str,
    /// Byte at which the next word is looked for.
    at: usize,
    /// The next word, and the byte it begins at.
    ahead: (Word, usize),
}

const SIGNS: [&str; 10] = ["<=", ">=", "!=", "<>", "==", "<", ">", "=", "(", ")"];

impl<'a> Words<'a> {
    pub(crate) fn of(text: &'a str) -> Result<Self, Error> {
        let mut words = Self { text, at: 0, ahead: (Word::End, 0) };
        words.next()?;
        Ok(words)
    }

    pub(crate) fn peek(&self) -> &Word {
        &self.ahead.0
    }

    pub(crate) fn next(&mut self) -> Result<Word, Error> {
        let rest = self.text[self.at..].trim_start();
        let begin = self.text.len() - rest.len();
        let (word, bytes) = self.word(rest, begin)?;
        self.at = begin + bytes;
        Ok(std::mem::replace(&mut self.ahead, (word, begin)).0)
    }

    /// Takes the next word if it is this sign.
    pub(crate) fn takes(&mut self, sign: &'static str) -> Result<bool, Error> {
        let is = self.ahead.0 == Word::Sign(sign);
        if is {
            self.next()?;
        }
        Ok(is)
    }

    /// Takes the next word if it is this keyword, in any case.
    pub(crate) fn takes_keyword(&mut self, keyword: &str) -> Result<bool, Error> {
        let is = matches!(&self.ahead.0, Word::Name(name) if name.eq_ignore_ascii_case(keyword));
        if is {
            self.next()?;
        }
        Ok(is)
    }

    pub(crate) fn must(&mut self, sign: &'static str, wanted: &'static str) -> Result<(), Error> {
        if self.takes(sign)? { Ok(()) } else { Err(self.wrong(wanted)) }
    }

    pub(crate) fn name(&mut self) -> Result<String, Error> {
        if !matches!(self.ahead.0, Word::Name(_) | Word::Quoted(_)) {
            return Err(self.wrong("the name of a column"));
        }
        match self.next()? {
            Word::Name(name) | Word::Quoted(name) => Ok(name),
            _ => Err(self.wrong("the name of a column")),
        }
    }

    pub(crate) fn literal(&mut self) -> Result<Literal, Error> {
        let literal = match self.peek() {
            Word::Number(number) => Literal::Number(number.clone()),
            Word::Text(text) => Literal::Text(text.clone()),
            Word::Name(name) if name.eq_ignore_ascii_case("true") => Literal::Bool(true),
            Word::Name(name) if name.eq_ignore_ascii_case("false") => Literal::Bool(false),
            _ => return Err(self.wrong("a number, a text in quotes, true or false")),
        };
        self.next()?;
        Ok(literal)
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.ahead.0 == Word::End { Ok(()) } else { Err(self.wrong("the end")) }
    }

    /// The refusal of the word ahead.
    pub(crate) fn wrong(&self, wanted: &'static str) -> Error {
        let found = match &self.ahead.0 {
            Word::Name(name) | Word::Quoted(name) => format!("`{name}`"),
            Word::Number(number) => number.clone(),
            Word::Text(text) => format!("'{text}'"),
            Word::Sign(sign) => format!("`{sign}`"),
            Word::End => String::from("the end"),
        };
        self.refusal(self.ahead.1, wanted, found)
    }

    fn refusal(&self, byte: usize, wanted: &'static str, found: String) -> Error {
        let at = self.text[..byte].chars().count() + 1;
        Error::Syntax { text: self.text.to_owned(), at, wanted, found, mend: None }
    }

    /// The word at the beginning of `rest`, and its bytes.
    fn word(&self, rest: &str, begin: usize) -> Result<(Word, usize), Error> {
        let Some(first) = rest.chars().next() else { return Ok((Word::End, 0)) };
        if let Some(sign) = SIGNS.into_iter().chain([","]).find(|sign| rest.starts_with(*sign)) {
            return Ok((Word::Sign(sign), sign.len()));
        }
        match first {
            '\'' | '"' | '`' => {
                let (text, bytes) =
                    quoted(rest, first).ok_or_else(|| self.refusal(begin, "a closing quote", String::from("none")))?;
                Ok((if first == '`' { Word::Quoted(text) } else { Word::Text(text) }, bytes))
            }
            '0'..='9' | '-' | '+' | '.' => {
                let bytes = number_bytes(rest);
                rest[..bytes].parse::<f64>().map_err(|_| self.refusal(begin, "a number", rest[..bytes].to_owned()))?;
                Ok((Word::Number(rest[..bytes].to_owned()), bytes))
            }
            letter if letter.is_alphabetic() || letter == '_' => {
                let bytes = name_bytes(rest);
                Ok((Word::Name(rest[..bytes].to_owned()), bytes))
            }
            other => Err(self.refusal(begin, "a name, a value or a sign", format!("`{other}`"))),
        }
    }
}

/// A column's name as it is read again: in backticks, if it is no bare word.
pub(crate) fn as_name(name: &str) -> Cow<'_, str> {
    let begins = name.starts_with(|char: char| char.is_alphabetic() || char == '_');
    if begins && name_bytes(name) == name.len() {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("`{}`", name.replace('`', "``")))
}

/// A text in quotes, in which the quote is doubled; and its bytes, quotes included.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char != quote {
            text.push(char);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            return Some((text, at + quote.len_utf8()));
        }
    }
    None
}

fn number_bytes(rest: &str) -> usize {
    let mut before = ' ';
    let end = rest.char_indices().find(|(at, char)| {
        let sign = matches!(char, '+' | '-') && (*at == 0 || matches!(before, 'e' | 'E'));
        before = *char;
        !(sign || matches!(char, '0'..='9' | '.' | 'e' | 'E'))
    });
    end.map_or(rest.len(), |(at, _)| at)
}

fn name_bytes(rest: &str) -> usize {
    let plain = rest.find(|char: char| !(char.is_alphanumeric() || matches!(char, '_' | '.'))).unwrap_or(rest.len());
    let part = rest[plain..].starts_with('[').then(|| rest[plain..].find(']')).flatten();
    plain + part.map_or(0, |close| close + 1)
}
