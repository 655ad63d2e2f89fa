//! A reader of XML 1.0 that refuses everything that the standard refuses: characters outside `Char`, literally or as a
//! reference, unknown entities, and elements that are not closed. It returns texts as a conforming parser does: ends of
//! lines are normalised before references are resolved.

/// True if XML 1.0 has this character (section 2.2, `Char`).
fn is_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Returns the elements of `document` that have text, with their text, in document order.
///
/// # Panics
/// When it is not well-formed.
pub fn texts(document: &[u8]) -> Vec<(String, String)> {
    let text = std::str::from_utf8(document).expect("the document is UTF-8");
    if let Some(char) = text.chars().find(|char| !is_char(*char)) {
        panic!("{char:?} is no character of XML: {text:?}");
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut rest = text.as_str();
    let (mut open, mut found) = (Vec::<String>::new(), Vec::new());
    while let Some((before, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("a tag ends");
        if let (Some(name), false) = (open.last(), before.is_empty()) {
            found.push((name.clone(), resolved(before)));
        }
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or_default();
        if tag.starts_with('?') || tag.ends_with('/') {
            assert!(tag.starts_with('?') || !open.is_empty(), "one root: {text}");
        } else if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "elements are closed in order: {text}");
        } else {
            open.push(name.to_owned());
        }
        rest = after;
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "all is closed: {text}");
    found
}

/// The text of all elements of that name.
///
/// # Panics
/// As [`texts`].
pub fn all(document: &[u8], name: &str) -> Vec<String> {
    texts(document).into_iter().filter(|(element, _)| element == name).map(|(_, text)| text).collect()
}

fn resolved(text: &str) -> String {
    let mut parts = text.split('&');
    let mut resolved = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (reference, after) = part.split_once(';').expect("a reference ends");
        resolved.push(match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => numbered(reference),
        });
        resolved.push_str(after);
    }
    resolved
}

fn numbered(reference: &str) -> char {
    let digits = reference.strip_prefix('#').unwrap_or_else(|| panic!("&{reference}; is not known"));
    let number = match digits.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let char = number.ok().and_then(char::from_u32).filter(|char| is_char(*char));
    char.unwrap_or_else(|| panic!("&{reference}; is no character of XML"))
}
