//! Fits a text into the window of a terminal, where it is drawn repeatedly.
//!
//! Invariant: a fitted text has no line that is wider than the window, and fewer lines than the window is high, so the
//! cursor can return to the first line.

use console::Term;
use textwrap::{Options, wrap};

/// The width of the column of names.
const INDENT: &str = "          ";
/// A window with fewer rows or columns is treated as having this number.
const ROWS_MIN: usize = 3;
const COLUMNS_MIN: usize = 2 * INDENT.len();

/// The size of a window, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    rows: usize,
    columns: usize,
}

impl Window {
    /// The window of standard output; `None` if that is not a terminal, or does not report its size.
    pub fn of_stdout() -> Option<Self> {
        let (rows, columns) = Term::stdout().size_checked()?;
        Some(Self::new(rows.into(), columns.into()))
    }

    fn new(rows: usize, columns: usize) -> Self {
        Self { rows: rows.max(ROWS_MIN), columns: columns.max(COLUMNS_MIN) }
    }

    /// `text` with long lines broken after words and continued with an indent. Lines that do not fit into the window
    /// are left out at the end, and the last line gives their number and says how to see them.
    pub fn fit(self, text: &str, all: &str) -> String {
        let options = Options::new(self.columns).subsequent_indent(INDENT);
        let mut lines: Vec<_> = text.lines().flat_map(|line| wrap(line, &options)).collect();
        if lines.len() >= self.rows {
            let more = lines.len() - (self.rows - 2);
            lines.truncate(self.rows - 2);
            let said = format!("... and {more} more lines: {all}");
            lines.push(said.chars().take(self.columns).collect::<String>().into());
        }
        assert!(lines.len() < self.rows, "the cursor can go back to the first line");
        lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "`larder status` prints all";
    const TEXT: &str = "rack      nas8, up 12 min\n\
                        warning   drive 0 cannot be used: there is no directory /srv/larder/drives/0000; put it there\n\
                        \n\
                        class 0   group 1 is awake\n";

    #[test]
    fn long_lines_go_on_below_their_beginning() {
        let fitted = Window::new(40, 50).fit(TEXT, ALL);
        let lines: Vec<_> = fitted.lines().collect();
        assert_eq!(lines[0], "rack      nas8, up 12 min");
        assert_eq!(lines[1], "warning   drive 0 cannot be used: there is no");
        assert!(lines[2].starts_with("          directory"), "{fitted}");
        assert_eq!(lines[lines.len() - 2..], ["", "class 0   group 1 is awake"]);
        assert_eq!(Window::new(40, 200).fit(TEXT, ALL), TEXT, "what fits stays as it is");
    }

    #[test]
    fn nothing_is_larger_than_the_window() {
        for (rows, columns) in [(0, 0), (3, 20), (5, 30), (6, 80), (24, 25)] {
            let window = Window::new(rows, columns);
            let fitted = window.fit(TEXT, ALL);
            assert!(fitted.lines().count() < window.rows, "{rows}: {fitted}");
            assert!(fitted.lines().all(|line| line.chars().count() <= window.columns), "{columns}: {fitted}");
        }
        let said = "... and 3 more lines: `larder status` prints all";
        assert_eq!(Window::new(4, 60).fit(TEXT, ALL).lines().last(), Some(said));
    }
}
