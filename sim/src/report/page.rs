//! A page: one HTML file with text, tables and pictures, without external references.

use super::escape::escaped;
use super::figure::Figure;
use super::table::{Cell, Table};
use std::fmt::Write;

/// A section of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Words(String),
    /// Names and values: parameters, versions, hashes.
    Facts(Vec<(String, String)>),
    /// A command or a file, verbatim.
    Verbatim(String),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Figure),
    /// A picture that Larder itself has drawn: SVG, which is not escaped.
    Picture(String),
}

/// A document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Its title, which is also its first heading.
    pub title: String,
    /// Its sections, from top to bottom.
    pub sections: Vec<Section>,
}

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --faint: #636363; --line: #dedede;
  --good: #00724f; --bad: #b33c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181d; --ink: #e8e8e8; --faint: #a9a9a9; --line: #34383f;
  --good: #2cc79a; --bad: #ff8a3d; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1120px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
p { max-width: 75ch; }
svg { max-width: 100%; height: auto; display: block; margin: 1em 0; }
pre { border: 1px solid var(--line); border-radius: 4px; padding: .8em; overflow-x: auto; font-size: 13px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .7em; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { border-bottom: 2px solid var(--faint); vertical-align: bottom; }
td { min-width: 6ch; } .right { text-align: right; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content auto; gap: .2em 1.2em; } dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
";

impl Page {
    /// The page as HTML that is also well-formed XML.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n"
        );
        for section in &self.sections {
            section.write(&mut html);
        }
        html.push_str("</body>\n</html>\n");
        html
    }
}

impl Section {
    fn write(&self, html: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Heading(words) => writeln!(html, "<h2>{}</h2>", escaped(words)),
            Self::Words(words) => writeln!(html, "<p>{}</p>", escaped(words)),
            Self::Verbatim(text) => writeln!(html, "<pre>{}</pre>", escaped(text)),
            Self::Figure(figure) => writeln!(html, "{}", figure.svg()),
            Self::Picture(svg) => writeln!(html, "{svg}"),
            Self::Facts(facts) => {
                let row = |(name, value): &(String, String)| {
                    format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value))
                };
                writeln!(html, "<dl>\n{}</dl>", facts.iter().map(row).collect::<String>())
            }
            Self::Table(table) => {
                html.push_str("<div class=\"wide\">\n");
                write_table(table, html);
                writeln!(html, "</div>")
            }
        };
    }
}

fn write_table(table: &Table, html: &mut String) {
    let class = |right: bool| if right { " class=\"right\"" } else { "" };
    html.push_str("<table>\n<thead><tr>");
    for column in &table.columns {
        let _ = write!(html, "<th{}>{}</th>", class(column.right), escaped(&column.name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            let attribute = match cell {
                Cell::Verdict { good: true, .. } => " class=\"good\"",
                Cell::Verdict { good: false, .. } => " class=\"bad\"",
                _ => class(column.right),
            };
            let _ = write!(html, "<td{attribute}>{}</td>", escaped(cell.shown()));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
}
