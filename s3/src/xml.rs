//! Characters in XML that parses: what becomes of those that XML 1.0 cannot hold as they are.
//!
//! S3's keys are any Unicode, and its documents are XML 1.0, which has no way to write most control characters, not
//! even as references. AWS writes references all the same (`&#x1;`), and expat, Go, Java and all others that keep to
//! the standard refuse the whole page for one such key. Here:
//!
//! - tab, line feed and carriage return become references, since a parser would turn a bare carriage return into a line
//!   feed, and some trim the others;
//! - what XML 1.0 has no character for ([`is_inexpressible`]) becomes U+FFFD, the replacement character. Such a key
//!   can be read, and told apart from all others, with `encoding-type=url`.

use std::borrow::Cow;

/// Whether XML 1.0 cannot hold `char`, not even as a reference (XML 1.0, section 2.2).
pub(super) fn is_inexpressible(char: char) -> bool {
    matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// A document whose values were escaped for `&`, `<` and `>`, with its characters as parsers give them back. It has
/// been written without white space of its own.
pub(super) fn carried(document: Vec<u8>) -> Vec<u8> {
    // U+FFFE and U+FFFF begin with this byte; so do some others, which come out as they are.
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0xef;
    if document.iter().all(is_plain) {
        return document;
    }
    let text = String::from_utf8_lossy(&document);
    let mut carried = String::with_capacity(text.len() + 64);
    for char in text.chars() {
        match char {
            '\t' => carried.push_str("&#9;"),
            '\n' => carried.push_str("&#10;"),
            '\r' => carried.push_str("&#13;"),
            _ if is_inexpressible(char) => carried.push(char::REPLACEMENT_CHARACTER),
            _ => carried.push(char),
        }
    }
    carried.into_bytes()
}

/// `text` with what means something in XML escaped.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(key: &str) -> String {
        let document = format!("<Key>{}</Key>", escaped(key));
        String::from_utf8_lossy(&carried(document.into_bytes())).into_owned()
    }

    #[test]
    fn white_space_becomes_references_and_comes_back() {
        assert_eq!(text_of("a\tb\nc\rd\r\n"), "<Key>a&#9;b&#10;c&#13;d&#13;&#10;</Key>");
    }

    #[test]
    fn what_xml_has_no_character_for_is_replaced_and_all_else_stays() {
        assert_eq!(text_of("\0\u{1}\u{1f}\u{fffe}\u{ffff}"), format!("<Key>{}</Key>", "\u{fffd}".repeat(5)));
        for key in ["plain", "a&b<c>d", "ü€😀", "\u{7f}\u{85}\u{2028}", "\u{f8ff}\u{fffd}\u{fefd}"] {
            assert_eq!(text_of(key), format!("<Key>{}</Key>", escaped(key)), "{key:?}");
        }
    }
}
