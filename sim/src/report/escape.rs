//! Text inside HTML and SVG.

/// `text` for the inside of an element or attribute of HTML or SVG; control characters, which XML cannot carry, become
/// question marks.
pub(super) fn escaped(text: &str) -> String {
    let forbidden = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    quick_xml::escape::escape(text.replace(forbidden, "?")).into_owned()
}
