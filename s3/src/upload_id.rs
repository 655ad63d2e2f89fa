//! Upload ids as clients see them: opaque to clients, the upload's number to the server.
//!
//! They begin with a letter, since some clients take an id that looks like a number for one. Ids of uploads that an
//! earlier version started do not, and are accepted as well.

use catalog::VersionId;

/// The id of `upload`.
pub(crate) fn format(upload: VersionId) -> String {
    format!("u{:016x}", upload.0)
}

/// The upload whose id is `id`; `None` if `id` is malformed.
pub(crate) fn parse(id: &str) -> Option<VersionId> {
    let digits = id.strip_prefix(['u', '1']).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(VersionId).filter(|upload| format(*upload)[1..] == *digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_id_is_read_back_and_nothing_else_is_one() {
        for upload in [0, 1, 77, u64::MAX] {
            let id = format(VersionId(upload));
            assert!(id.parse::<f64>().is_err(), "{id} is no number");
            assert_eq!(parse(&id), Some(VersionId(upload)));
            assert_eq!(parse(&id.replace('u', "1")), Some(VersionId(upload)), "as earlier versions wrote it");
        }
        for id in ["", "u", "u0000000000000001x", "u+000000000000001", "2000000000000000f", "u000000000000000F", "ü00"]
        {
            assert_eq!(parse(id), None, "{id}");
        }
    }
}
