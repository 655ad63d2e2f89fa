//! XML documents in both directions, and the characters that XML 1.0 cannot hold.
//!
//! The protocol library's reader and writer (quick-xml) do the work. S3's keys are any Unicode, and its documents are
//! XML 1.0, which has no way to write most control characters, not even as references. AWS writes references all the
//! same (`&#x1;`), and expat, Go, Java and all other conforming parsers refuse the whole page for one such key. Here:
//!
//! - tab, line feed and carriage return become references, since a parser would turn a bare carriage return into a line
//!   feed, and some trim the others;
//! - what XML 1.0 has no character for ([`is_inexpressible`]) becomes U+FFFD, the replacement character. Such a key
//!   can be read, and told apart from all others, with `encoding-type=url`.

use bytes::Bytes;
use s3s::xml::{Deserialize, Deserializer, SerError, Serialize, Serializer};

/// True if XML 1.0 cannot hold `char`, not even as a reference (XML 1.0, section 2.2).
pub(crate) fn is_inexpressible(char: char) -> bool {
    matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// `value` as a document.
///
/// # Errors
/// A value that cannot be written.
pub(crate) fn write<T: Serialize>(value: &T) -> Result<Bytes, SerError> {
    let mut document = Vec::with_capacity(1024);
    let mut writer = Serializer::new(&mut document);
    writer.decl()?;
    value.serialize(&mut writer)?;
    Ok(conforming(document).into())
}

/// The value that `document` holds, or `None` if it is malformed or of another schema.
pub(crate) fn read<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> Option<T> {
    let mut reader = Deserializer::new(document);
    let value = T::deserialize(&mut reader).ok()?;
    reader.expect_eof().ok().map(|()| value)
}

/// `document` with only such characters as parsers give back. Its values are escaped, and it has no white space between
/// elements.
fn conforming(document: Vec<u8>) -> Vec<u8> {
    // U+FFFE and U+FFFF begin with this byte; so do some others, which come out as they are.
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0xef;
    if document.iter().all(is_plain) {
        return document;
    }
    let text = String::from_utf8_lossy(&document);
    let mut conformed = String::with_capacity(text.len() + 64);
    for char in text.chars() {
        match char {
            '\t' => conformed.push_str("&#9;"),
            '\n' => conformed.push_str("&#10;"),
            '\r' => conformed.push_str("&#13;"),
            _ if is_inexpressible(char) => conformed.push(char::REPLACEMENT_CHARACTER),
            _ => conformed.push(char),
        }
    }
    conformed.into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use s3s::dto::CommonPrefix;
    use s3s::xml::{SerResult, SerializeContent};
    use std::io::Write;

    struct Prefix<'a>(&'a str);

    impl Serialize for Prefix<'_> {
        fn serialize<W: Write>(&self, writer: &mut Serializer<W>) -> SerResult {
            CommonPrefix { prefix: Some(self.0.to_owned()) }.serialize_content(writer)
        }
    }

    fn text_of(key: &str) -> String {
        let document = String::from_utf8(write(&Prefix(key)).unwrap().to_vec()).unwrap();
        let (_, prefix) = document.split_once("<Prefix>").unwrap();
        prefix.strip_suffix("</Prefix>").unwrap().to_owned()
    }

    #[test]
    fn white_space_becomes_references_and_comes_back() {
        assert_eq!(text_of("a\tb\nc\rd\r\n"), "a&#9;b&#10;c&#13;d&#13;&#10;");
    }

    #[test]
    fn characters_that_xml_lacks_are_replaced_and_all_others_stay() {
        assert_eq!(text_of("\0\u{1}\u{1f}\u{fffe}\u{ffff}"), "\u{fffd}".repeat(5));
        for key in ["plain", "ü€😀", "\u{7f}\u{85}\u{2028}", "\u{f8ff}\u{fffd}\u{fefd}"] {
            assert_eq!(text_of(key), key, "{key:?}");
        }
        assert_eq!(text_of("a&b<c>d"), "a&amp;b&lt;c&gt;d");
    }
}
