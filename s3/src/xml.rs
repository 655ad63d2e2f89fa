//! XML documents in both directions, and the characters that XML 1.0 cannot hold.
//!
//! The protocol library's reader and writer (quick-xml) do the work. S3's keys are any Unicode, and its documents are
//! XML 1.0, which has no way to write most control characters, not even as references. AWS writes references anyway
//! (`&#x1;`), and expat, Go, Java and all other conforming parsers refuse the whole page for one such key. Here:
//!
//! - tab, line feed and carriage return become references, since a parser would turn a bare carriage return into a line
//!   feed, and some trim the others;
//! - a character that XML 1.0 does not have ([`is_inexpressible`]) becomes U+FFFD, the replacement character. With
//!   `encoding-type=url`, a key that contains one can be read and distinguished from all others.
//!
//! The reader compares whole names and accepts numbers without spaces. Clients write prefixes of namespaces and spaces
//! around numbers, and S3 accepts both, so [`read`] removes them first.

use bytes::Bytes;
use s3s::xml::{Deserialize, Deserializer, SerError, Serialize, Serializer};
use std::ops::Range;

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

/// The value that `document` holds; `None` if it is malformed or of another schema.
pub(crate) fn read<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> Option<T> {
    let plain = plain(document);
    let mut reader = Deserializer::new(&plain);
    let value = T::deserialize(&mut reader).ok()?;
    reader.expect_eof().ok().map(|()| value)
}

/// Elements of requests whose values are numbers or booleans, around which spaces mean nothing.
const VALUES: [&[u8]; 3] = [b"PartNumber", b"Quiet", b"Size"];

/// `document` with local names only, and without the spaces around numbers and booleans.
fn plain(document: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(document.len());
    let mut rest = document;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        let (text, markup) = rest.split_at(at);
        plain.extend_from_slice(text);
        let (tag, behind) = markup.split_at(length_of_markup(markup));
        let name = name_of(tag);
        plain.extend_from_slice(&tag[..name.start]);
        plain.extend_from_slice(local(&tag[name.clone()]));
        plain.extend_from_slice(&tag[name.end..]);
        rest = behind;
        if VALUES.contains(&local(&tag[name])) && !tag.starts_with(b"</") {
            let end = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
            plain.extend_from_slice(rest[..end].trim_ascii());
            rest = &rest[end..];
        }
    }
    plain.extend_from_slice(rest);
    plain
}

/// The bytes of the tag, comment, section or instruction that `markup` begins with.
fn length_of_markup(markup: &[u8]) -> usize {
    let end: &[u8] = match markup {
        [b'<', b'!', b'-', b'-', ..] => b"-->",
        [b'<', b'!', b'[', ..] => b"]]>",
        [b'<', b'?', ..] => b"?>",
        _ => b">",
    };
    markup.windows(end.len()).position(|window| window == end).map_or(markup.len(), |at| at + end.len())
}

/// The place of the name in `tag`; empty in a comment, a section or an instruction.
fn name_of(tag: &[u8]) -> Range<usize> {
    let start = if tag.starts_with(b"</") { 2 } else { 1 };
    let ends_name = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/');
    match tag.get(1) {
        None | Some(b'!' | b'?') => 0..0,
        _ => start..tag[start..].iter().position(ends_name).map_or(tag.len(), |at| start + at),
    }
}

fn local(name: &[u8]) -> &[u8] {
    name.iter().position(|byte| *byte == b':').map_or(name, |at| &name[at + 1..])
}

/// Calls `visit` with the path of each element of `document`, by local names from the root on, as in
/// `Tagging/TagSet/Tag`. Elements that are not closed in order are not checked here: [`read`] refuses them.
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub(crate) fn for_each_path<E>(document: &[u8], mut visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let (mut path, mut rest) = (String::new(), document);
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        let (tag, behind) = rest[at..].split_at(length_of_markup(&rest[at..]));
        let parent_bytes = path.len();
        match tag.get(1) {
            None | Some(b'!' | b'?') => {}
            Some(b'/') => path.truncate(path.rfind('/').unwrap_or_default()),
            Some(_) => {
                path.push_str(if path.is_empty() { "" } else { "/" });
                path.push_str(&String::from_utf8_lossy(local(&tag[name_of(tag)])));
                visit(&path)?;
            }
        }
        if tag.ends_with(b"/>") {
            path.truncate(parent_bytes);
        }
        rest = behind;
    }
    Ok(())
}

/// `document` with only the characters that parsers return unchanged. Its values are escaped, and it has no white space
/// between elements.
fn conforming(document: Vec<u8>) -> Vec<u8> {
    // U+FFFE and U+FFFF begin with this byte; so do some others, which stay unchanged.
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

    fn paths(document: &[u8]) -> Vec<String> {
        let mut paths = Vec::new();
        let _ = for_each_path(document, |path| {
            paths.push(path.to_owned());
            Ok::<(), ()>(())
        });
        paths
    }

    #[test]
    fn each_element_has_its_path_from_the_root() {
        assert_eq!(paths(b"<?xml?><a><x:b c='d'><e/></x:b><b/><!-- <f> --></a>"), ["a", "a/b", "a/b/e", "a/b"]);
        assert_eq!(paths(b"</a></b><a></a></a><b>"), ["a", "b"], "closing what is not open leads nowhere");
        assert_eq!(paths(b"<a><b"), ["a", "a/b"]);
        assert_eq!(paths(b"<a><s:></s:></a>"), ["a", "a/"], "a name that is only a prefix is empty");
    }

    #[test]
    fn prefixes_and_the_spaces_around_numbers_are_taken_away_and_nothing_else() {
        let sent = b"<?xml version='1.0'?><!-- <a:b> --><s:Delete xmlns:s=\"u\"><s:Quiet> true </s:Quiet>\
                     <s:Key> a:b </s:Key><PartNumber>\n1 </PartNumber><![CDATA[<x:y>]]><s:E/></s:Delete>";
        let read = b"<?xml version='1.0'?><!-- <a:b> --><Delete xmlns:s=\"u\"><Quiet>true</Quiet>\
                     <Key> a:b </Key><PartNumber>1</PartNumber><![CDATA[<x:y>]]><E/></Delete>";
        assert_eq!(String::from_utf8(plain(sent)).unwrap(), String::from_utf8(read.to_vec()).unwrap());
        for damaged in [&b"<"[..], b"</", b"<a", b"<!--", b"<:>", b"<Quiet", b"<Quiet> 1"] {
            let _ = plain(damaged);
        }
        assert_eq!(paths(sent), ["Delete", "Delete/Quiet", "Delete/Key", "Delete/PartNumber", "Delete/E"]);
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
