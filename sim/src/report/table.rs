//! Tables, in readable form for people and with every digit for programs.

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading: `p99 TTFB (s)`.
    pub name: String,
    /// Its name in CSV: `ttfb_s_p99`.
    pub key: String,
    /// True if its cells are right-aligned, like numbers.
    pub right: bool,
}

impl Column {
    /// A column of words.
    pub fn words(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self { name: name.into(), key: key.into(), right: false }
    }

    /// A column of numbers.
    pub fn numbers(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self { name: name.into(), key: key.into(), right: true }
    }
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Words.
    Words(String),
    /// A number.
    Number {
        /// Its value.
        value: f64,
        /// Its text, with few digits.
        shown: String,
    },
    /// A verdict.
    Verdict {
        /// The words.
        words: String,
        /// True if the verdict is good.
        good: bool,
    },
}

impl Cell {
    /// Words.
    pub fn words(words: impl Into<String>) -> Self {
        Self::Words(words.into())
    }

    /// A number with few digits ([`short`](super::short)).
    pub fn number(value: f64) -> Self {
        Self::Number { value, shown: super::short(value) }
    }

    /// A number, or an empty cell.
    pub fn maybe(value: Option<f64>) -> Self {
        value.map_or(Self::Empty, Self::number)
    }

    /// A verdict.
    pub fn verdict(good: bool, words: impl Into<String>) -> Self {
        Self::Verdict { words: words.into(), good }
    }

    /// The text for people.
    pub fn shown(&self) -> &str {
        match self {
            Self::Empty => "-",
            Self::Words(words) | Self::Verdict { words, .. } => words,
            Self::Number { shown, .. } => shown,
        }
    }

    /// The text with every digit; empty for an empty cell.
    fn exact(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Words(words) | Self::Verdict { words, .. } => words.clone(),
            Self::Number { value, .. } => value.to_string(),
        }
    }
}

/// A column, and the function that returns its cell for an item.
pub type ColumnOf<T> = (Column, fn(&T) -> Cell);

/// Rows below headings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// A table with a row for each of `items`, made by the columns' functions.
    pub fn of<'a, T: 'a>(items: impl IntoIterator<Item = &'a T>, columns: &[ColumnOf<T>]) -> Self {
        let mut table = Self::new(columns.iter().map(|(column, _)| column.clone()).collect());
        for item in items {
            table.push(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    /// Adds a row, which must have a cell for every column.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(row);
    }

    /// The table as CSV (RFC 4180): the columns' keys, then each row with every digit.
    pub fn csv(&self) -> String {
        let line = |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\r\n";
        let head = line(self.columns.iter().map(|column| column.key.clone()).collect());
        self.rows.iter().fold(head, |csv, row| csv + &line(row.iter().map(Cell::exact).collect()))
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_every_digit_and_quotes_what_would_split() {
        let mut table = Table::new(vec![Column::words("name", "name"), Column::numbers("rate (1/s)", "rate_per_s")]);
        table.push(vec![Cell::words("a, \"b\""), Cell::number(1.0 / 3.0)]);
        table.push(vec![Cell::Empty, Cell::maybe(None)]);
        table.push(vec![Cell::verdict(true, "met"), Cell::maybe(Some(2e6))]);
        let expected = "name,rate_per_s\r\n\"a, \"\"b\"\"\",0.3333333333333333\r\n,\r\nmet,2000000\r\n";
        assert_eq!(table.csv(), expected);
        assert_eq!(table.rows[0][1].shown(), "0.3333");
    }
}
