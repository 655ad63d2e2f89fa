//! Upload ids as clients see them: opaque to them, the upload's number to us.

use catalog::VersionId;

/// The id of `upload`.
pub(crate) fn format(upload: VersionId) -> String {
    format!("1{:016x}", upload.0)
}

/// The upload whose id is `id`, if it can be one.
pub(crate) fn parse(id: &str) -> Option<VersionId> {
    let digits = id.strip_prefix('1').filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(VersionId).filter(|upload| format(*upload) == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_id_is_read_back_and_nothing_else_is_one() {
        for upload in [0, 1, 77, u64::MAX] {
            assert_eq!(parse(&format(VersionId(upload))), Some(VersionId(upload)));
        }
        for id in ["", "1", "10000000000000001x", "1+000000000000001", "2000000000000000f", "1000000000000000F"] {
            assert_eq!(parse(id), None, "{id}");
        }
    }
}
