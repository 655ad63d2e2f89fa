//! Text in HTML and SVG.

/// `text` for the content of an element or attribute of HTML or SVG; control characters, which XML does not allow,
/// become question marks.
pub(super) fn escaped(text: &str) -> String {
    let forbidden = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    quick_xml::escape::escape(text.replace(forbidden, "?")).into_owned()
}
