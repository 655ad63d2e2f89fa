//! Definitions: the effect of the query parameters, headers and XML elements that S3 defines, by operation. An
//! operation uses one, accepts it without effect for a stated reason, or refuses it. [`crate::validation`] executes
//! these definitions, and `docs/reference/s3-parameters.md` is written from them.
//!
//! Invariants: a name without a definition means nothing to S3 and is ignored; but an operation accepts no XML elements
//! other than its own. An operation's own groups come before [`EVERYWHERE`], and the first match counts. Names are
//! unique within an operation, and a longer name that fits comes before a shorter one.

use crate::error::ErrorCode::{
    self, InvalidArgument, InvalidRequest, InvalidStorageClass, InvalidToken, NotImplemented,
};
use crate::operation::{self, Operation};

/// The part of a request that contains a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Query,
    Header,
    /// The element's path from the root of the body, as in `Tagging/TagSet`. An attribute's name begins with `@`.
    Element,
}

/// The effect of a parameter on an operation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "some fields are for the page alone, which a test writes"))]
pub(crate) enum Effect {
    Used,
    /// Accepted for this reason, without effect.
    Ignored(&'static str),
    /// Refused with this code, and with this message unless it is empty.
    Refused(ErrorCode, &'static str),
    /// The request succeeds and reports this code for the key in question. The operation itself does so.
    RefusedForKey(ErrorCode),
}

/// The values of a parameter that an operation accepts. It may refuse more of them when it reads them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub is_accepted: fn(&str) -> bool,
    /// A description of the accepted values.
    pub text: &'static str,
    /// The error for all others.
    pub code: ErrorCode,
}

/// Parameters of the same place and effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub place: Place,
    /// Names as requests spell them, headers in lower case. An asterisk at the end stands for any ending.
    pub names: &'static [&'static str],
    pub effect: Effect,
    /// `None` accepts all values.
    pub values: Option<Values>,
}

impl Parameter {
    const fn new(place: Place, names: &'static [&'static str]) -> Self {
        Self { place, names, effect: Effect::Used, values: None }
    }

    const fn no_effect(self, reason: &'static str) -> Self {
        Self { effect: Effect::Ignored(reason), ..self }
    }

    const fn refused(self, code: ErrorCode, message: &'static str) -> Self {
        Self { effect: Effect::Refused(code, message), ..self }
    }

    const fn refused_for_key(self, code: ErrorCode) -> Self {
        Self { effect: Effect::RefusedForKey(code), ..self }
    }

    const fn only(self, text: &'static str, is_accepted: fn(&str) -> bool, code: ErrorCode) -> Self {
        Self { values: Some(Values { is_accepted, text, code }), ..self }
    }

    fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|own| fits(own, name))
    }
}

/// True if `name` is `own`, or begins like `own` where `own` ends in an asterisk.
fn fits(own: &str, name: &str) -> bool {
    own.strip_suffix('*').map_or(own == name, |start| name.starts_with(start))
}

const fn query(names: &'static [&'static str]) -> Parameter {
    Parameter::new(Place::Query, names)
}

const fn header(names: &'static [&'static str]) -> Parameter {
    Parameter::new(Place::Header, names)
}

const fn element(names: &'static [&'static str]) -> Parameter {
    Parameter::new(Place::Element, names)
}

/// The only storage class.
const STORAGE_CLASS: &str = "STANDARD";
/// The only version of S3's interface.
const API_VERSION: &str = "2006-03-01";

/// A definition's parameters, in groups that operations share.
type Groups = &'static [&'static [Parameter]];

/// Headers with a checksum of the bytes that they accompany.
const CHECKSUMS: &[&str] = &[
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// A body whose digests are verified.
const BODY: &[Parameter] =
    &[header(&["content-md5", "x-amz-sdk-checksum-algorithm", "x-amz-trailer"]), header(CHECKSUMS)];
/// An object's bytes as the body.
const BYTES: &[Parameter] = &[header(&["content-length"]), header(&["content-range"]).refused(InvalidArgument, "")];
/// The description of an object that is created now or later.
const DESCRIPTION: &[Parameter] = &[
    header(&[
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
        "x-amz-acl",
        "x-amz-meta-*",
        "x-amz-tagging",
    ]),
    header(&["x-amz-storage-class"]).only("STANDARD", |value| value == STORAGE_CLASS, InvalidStorageClass),
];
/// The conditions on the object that a new one replaces.
const REPLACEMENT: &[Parameter] = &[
    header(&["if-match"]).only("one ETag", is_one_etag, NotImplemented),
    header(&["if-none-match"]).only("*", |value| value == "*", NotImplemented),
];
const SOURCE: &[Parameter] = &[header(&[
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-source-expected-bucket-owner",
])];
const CHECKSUM_CHOICE: &[Parameter] = &[header(&["x-amz-checksum-algorithm"])];
const CHECKSUM_TYPE: &[Parameter] = &[header(&["x-amz-checksum-type"])];
const READ: &[Parameter] = &[
    query(&[
        "partNumber",
        "response-cache-control",
        "response-content-disposition",
        "response-content-encoding",
        "response-content-language",
        "response-content-type",
        "response-expires",
    ]),
    header(&["if-match", "if-modified-since", "if-none-match", "if-unmodified-since", "range"]),
    header(&["x-amz-checksum-mode"]).only("ENABLED", |value| value.eq_ignore_ascii_case("ENABLED"), InvalidArgument),
];
const DELETE: &[Parameter] = &[header(&["x-amz-bypass-governance-retention"]).no_effect("no object is locked").only(
    "true or false",
    |value| value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false"),
    InvalidArgument,
)];
const VERSION: &[Parameter] = &[query(&["versionId"])];
const PART: &[Parameter] = &[query(&["partNumber", "uploadId"])];
const UPLOAD: &[Parameter] = &[query(&["uploadId"])];
const LISTING: &[Parameter] = &[query(&["delimiter", "encoding-type", "prefix"])];
const KEYS: &[Parameter] = &[query(&["max-keys"])];
const NO_BUCKET: &[Parameter] =
    &[header(&["x-amz-expected-bucket-owner"]).no_effect("no bucket with an owner is asked about")];

const ACL: &[Parameter] = &[
    header(&["x-amz-acl"]),
    element(&[
        "AccessControlPolicy",
        "AccessControlPolicy/AccessControlList",
        "AccessControlPolicy/AccessControlList/Grant",
        "AccessControlPolicy/AccessControlList/Grant/Grantee",
        "AccessControlPolicy/AccessControlList/Grant/Grantee/@xsi:type",
        "AccessControlPolicy/AccessControlList/Grant/Grantee/ID",
        "AccessControlPolicy/AccessControlList/Grant/Grantee/URI",
        "AccessControlPolicy/AccessControlList/Grant/Permission",
        "AccessControlPolicy/Owner",
        "AccessControlPolicy/Owner/ID",
    ]),
    element(&[
        "AccessControlPolicy/AccessControlList/Grant/Grantee/DisplayName",
        "AccessControlPolicy/Owner/DisplayName",
    ])
    .no_effect("the ID says who it is"),
    element(&["AccessControlPolicy/AccessControlList/Grant/Grantee/EmailAddress"])
        .refused(InvalidArgument, "Users have no email addresses here; name one by ID."),
];
const TAGS: &[Parameter] = &[element(&[
    "Tagging",
    "Tagging/TagSet",
    "Tagging/TagSet/Tag",
    "Tagging/TagSet/Tag/Key",
    "Tagging/TagSet/Tag/Value",
])];
const OWNERSHIP: &[Parameter] =
    &[element(&["OwnershipControls", "OwnershipControls/Rule", "OwnershipControls/Rule/ObjectOwnership"])];
const NEW_BUCKET: &[Parameter] = &[
    header(&["x-amz-acl", "x-amz-object-ownership"]),
    header(&["x-amz-bucket-namespace"]).no_effect("there is one name space of buckets").only(
        "global",
        |value| value == "global",
        InvalidArgument,
    ),
    header(&["x-amz-bucket-object-lock-enabled"]).no_effect("no object is locked").only(
        "false",
        |value| value.eq_ignore_ascii_case("false"),
        InvalidArgument,
    ),
    element(&[
        "CreateBucketConfiguration",
        "CreateBucketConfiguration/LocationConstraint",
        "CreateBucketConfiguration/Tags",
        "CreateBucketConfiguration/Tags/Tag",
        "CreateBucketConfiguration/Tags/Tag/Key",
        "CreateBucketConfiguration/Tags/Tag/Value",
    ]),
    element(&["CreateBucketConfiguration/Bucket*", "CreateBucketConfiguration/Location*"])
        .refused(InvalidRequest, "There are no directory buckets here."),
];
const KEYS_TO_DELETE: &[Parameter] = &[
    element(&[
        "Delete",
        "Delete/Object",
        "Delete/Object/ETag",
        "Delete/Object/Key",
        "Delete/Object/VersionId",
        "Delete/Quiet",
    ]),
    element(&["Delete/Object/LastModifiedTime", "Delete/Object/Size"]).refused_for_key(InvalidArgument),
];
const COMPLETION: &[Parameter] = &[
    header(&["content-md5", "x-amz-mp-object-size"]),
    header(CHECKSUMS),
    element(&[
        "CompleteMultipartUpload",
        "CompleteMultipartUpload/Part",
        "CompleteMultipartUpload/Part/ChecksumCRC32",
        "CompleteMultipartUpload/Part/ChecksumCRC32C",
        "CompleteMultipartUpload/Part/ChecksumCRC64NVME",
        "CompleteMultipartUpload/Part/ChecksumSHA1",
        "CompleteMultipartUpload/Part/ChecksumSHA256",
        "CompleteMultipartUpload/Part/ETag",
        "CompleteMultipartUpload/Part/PartNumber",
    ]),
    element(&["CompleteMultipartUpload/Part/Checksum*"])
        .refused(InvalidRequest, "A checksum of this algorithm is not served here."),
];

/// The definition of each operation, in the order of [`Operation`].
pub(crate) const DEFINITIONS: &[(Operation, Groups)] = &[
    (Operation::ListBuckets, &[NO_BUCKET, &[query(&["bucket-region", "continuation-token", "max-buckets", "prefix"])]]),
    (Operation::CreateBucket, &[NO_BUCKET, BODY, NEW_BUCKET]),
    (Operation::HeadBucket, &[]),
    (Operation::GetBucketLocation, &[]),
    (Operation::DeleteBucket, &[]),
    (Operation::ListObjects, &[LISTING, KEYS, &[query(&["marker"])]]),
    (
        Operation::ListObjectsV2,
        &[
            LISTING,
            KEYS,
            &[
                query(&["continuation-token", "fetch-owner", "start-after"]),
                query(&["list-type"]).only("2", |value| value == "2", InvalidArgument),
            ],
        ],
    ),
    (Operation::DeleteObjects, &[BODY, DELETE, KEYS_TO_DELETE]),
    (Operation::PutObject, &[BODY, BYTES, DESCRIPTION, REPLACEMENT]),
    (Operation::GetObject, &[VERSION, READ]),
    (Operation::HeadObject, &[VERSION, READ]),
    (
        Operation::DeleteObject,
        &[
            VERSION,
            DELETE,
            &[header(&["if-match"]).only("one ETag or *", |value| value == "*" || is_one_etag(value), NotImplemented)],
        ],
    ),
    (Operation::GetBucketAcl, &[]),
    (Operation::PutBucketAcl, &[BODY, ACL]),
    (Operation::GetBucketTagging, &[]),
    (Operation::PutBucketTagging, &[BODY, TAGS]),
    (Operation::DeleteBucketTagging, &[]),
    (Operation::GetBucketOwnershipControls, &[]),
    (Operation::PutBucketOwnershipControls, &[BODY, OWNERSHIP]),
    (Operation::DeleteBucketOwnershipControls, &[]),
    (
        Operation::GetConfiguration,
        &[&[query(&["id"]), query(&["continuation-token"]).no_effect("the lists are empty")]],
    ),
    (Operation::DeleteConfiguration, &[]),
    (Operation::ListObjectVersions, &[LISTING, KEYS, &[query(&["key-marker", "version-id-marker"])]]),
    (Operation::GetObjectAcl, &[VERSION]),
    (Operation::PutObjectAcl, &[VERSION, BODY, ACL]),
    (Operation::GetObjectTagging, &[VERSION]),
    (Operation::PutObjectTagging, &[VERSION, BODY, TAGS]),
    (Operation::DeleteObjectTagging, &[VERSION]),
    (
        Operation::GetObjectAttributes,
        &[VERSION, &[header(&["x-amz-max-parts", "x-amz-object-attributes", "x-amz-part-number-marker"])]],
    ),
    (
        Operation::CopyObject,
        &[
            SOURCE,
            DESCRIPTION,
            REPLACEMENT,
            CHECKSUM_CHOICE,
            &[header(&["x-amz-metadata-directive", "x-amz-tagging-directive"])],
        ],
    ),
    (Operation::CreateMultipartUpload, &[DESCRIPTION, CHECKSUM_CHOICE, CHECKSUM_TYPE]),
    (Operation::UploadPart, &[PART, BODY, BYTES]),
    (Operation::UploadPartCopy, &[PART, SOURCE, &[header(&["x-amz-copy-source-range"])]]),
    (Operation::CompleteMultipartUpload, &[UPLOAD, REPLACEMENT, CHECKSUM_TYPE, COMPLETION]),
    (Operation::AbortMultipartUpload, &[UPLOAD]),
    (Operation::ListMultipartUploads, &[LISTING, &[query(&["key-marker", "max-uploads", "upload-id-marker"])]]),
    (Operation::ListParts, &[UPLOAD, &[query(&["max-parts", "part-number-marker"])]]),
];

/// Parameters that S3 defines for some operation, for every operation that does not define them itself. As on AWS, a
/// header that describes something absent has no effect. A parameter that would change the meaning of a request is
/// refused.
pub(crate) const EVERYWHERE: &[Parameter] = &[
    query(&["partNumber", "uploadId", "versionId"]).refused(InvalidArgument, ""),
    query(&operation::NOT_SERVED).refused(NotImplemented, ""),
    query(&["X-Amz-Security-Token"]).refused(InvalidToken, ""),
    header(&["x-amz-security-token"]).refused(InvalidToken, ""),
    header(&["x-amz-expected-bucket-owner"]),
    header(&["x-amz-request-payer"]).no_effect("nobody pays for requests"),
    // The SDK for C++ sends it with every request; so do pyarrow and others built on it.
    header(&["x-amz-api-version"]).no_effect("there is one version of the interface").only(
        "2006-03-01",
        |value| value == API_VERSION,
        InvalidArgument,
    ),
    header(&["x-amz-acl", "x-amz-meta-*", "x-amz-storage-class", "x-amz-tagging"])
        .no_effect("nothing is made that has it"),
    // s3fs-fuse sends them with every upload.
    header(&["x-amz-metadata-directive", "x-amz-tagging-directive"]).no_effect("nothing is copied that has it"),
    header(&["x-amz-checksum-mode"]).no_effect("no object is read"),
    // The SDK for Java sends them with a GET.
    header(CHECKSUMS).no_effect("no body that it is of"),
    header(&["x-amz-sdk-checksum-algorithm"]).no_effect("no body that it is of"),
    header(&["x-amz-trailer"]).no_effect("no body that it is of").only("an empty one", str::is_empty, InvalidArgument),
    header(&["if-match", "if-modified-since", "if-none-match", "if-unmodified-since"]).refused(InvalidArgument, ""),
    header(&["x-amz-object-lock-*"]).refused(InvalidRequest, "Bucket is missing Object Lock Configuration"),
    header(&["x-amz-copy-source-server-side-encryption*", "x-amz-server-side-encryption*"])
        .refused(InvalidArgument, "Server side encryption is not served here."),
    header(&[
        "x-amz-bucket-*",
        "x-amz-bypass-governance-retention",
        "x-amz-checksum-*",
        "x-amz-client-token",
        "x-amz-confirm-remove-self-bucket-access",
        "x-amz-copy-source*",
        "x-amz-create-session-mode",
        "x-amz-fwd-*",
        "x-amz-grant-*",
        "x-amz-if-match-*",
        "x-amz-max-parts",
        "x-amz-mfa",
        "x-amz-mp-object-size",
        "x-amz-object-*",
        "x-amz-optional-object-attributes",
        "x-amz-part-number-marker",
        "x-amz-rename-source*",
        "x-amz-request-route",
        "x-amz-request-token",
        "x-amz-skip-destination-validation",
        "x-amz-source-expected-bucket-owner",
        "x-amz-transition-*",
        "x-amz-website-redirect-location",
        "x-amz-write-offset-bytes",
    ])
    .refused(InvalidArgument, ""),
];

/// The definition of the parameter `name` for `operation`; `None` if S3 does not define it.
pub(crate) fn find(operation: Operation, place: Place, name: &str) -> Option<&'static Parameter> {
    let (of, groups) = &DEFINITIONS[operation as usize];
    assert!(*of == operation, "each operation has its own definition");
    let groups = groups.iter().copied().chain([EVERYWHERE]);
    groups.flatten().find(|parameter| parameter.place == place && parameter.is_named(name))
}

fn is_one_etag(value: &str) -> bool {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod page;
