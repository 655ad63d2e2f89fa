//! The requests and reports of a repartition, as JSON: between server and command line, and in the catalog.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place of objects: a bucket and a prefix of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The bucket.
    pub bucket: String,
    /// The prefix.
    pub prefix: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The objects to read.
    pub from: Place,
    /// The place to write to.
    pub to: Place,
    /// The key of a record's partition: `hash(a, b)`, `range(column, v1, ...)`, `value(column)`.
    pub by: String,
    /// The number of partitions, if `by` does not determine it.
    pub partitions: Option<u64>,
    /// The memory for buffered records, in bytes.
    pub memory_bytes: u64,
    /// The columns to keep; all if `None`.
    pub columns: Option<Vec<String>>,
    /// Patterns of keys below the prefix that are excluded from the input, beside Spark's files without records.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The filter for the records to keep; all if `None`.
    pub filter: Option<String>,
    /// The maximum size of the output objects, in bytes; chosen by the server if `None`.
    pub object_bytes: Option<u64>,
    /// The format of the objects, if their names do not show it.
    pub format: Option<String>,
    /// The strategy to follow to the end; the cheapest if `None`.
    pub strategy: Option<String>,
    /// Output in millionths of a byte per byte of input, both as stored; measured if `None`.
    #[serde(default)]
    pub alpha_millionths: Option<u64>,
    /// True if the input that was read is removed once the output is published.
    pub remove_input: bool,
    /// True if the job is only forecast.
    pub dry_run: bool,
}

/// The cost of one strategy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The strategy.
    pub strategy: String,
    /// Hours of modelled time from the first byte to the last, in the slowest class, without waiting for starts.
    pub hours: f64,
    /// The same, with waiting for the next day when a drive has used up its starts of the day.
    pub hours_with_budget: f64,
    /// The most starts of any drive.
    pub starts_per_drive: u64,
    /// The part of `hours` in which groups are woken.
    pub switching_hours: f64,
    /// Number of group wakes.
    pub switches: u64,
    /// Bytes read: input, and offloaded runs.
    pub bytes_read: u64,
    /// Bytes written: output, and offloaded runs.
    pub bytes_written: u64,
    /// Bytes written in offloaded runs.
    #[serde(default)]
    pub bytes_offloaded: u64,
    /// Energy of the drives beyond standby.
    pub kwh: f64,
    /// The most that any group stores beyond its present contents.
    pub peak_extra_bytes: u64,
    /// True if that fits.
    pub fits: bool,
}

/// A number of a plan, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its value.
    pub value: f64,
    /// `given` by the request, `sampled` from the input, or `assumed` from the format.
    pub from: String,
}

/// A sample of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Objects sampled.
    pub objects: u64,
    /// Places sampled in them.
    pub places: u64,
    /// Bytes of input that hold the sampled records.
    pub input_bytes: u64,
    /// Records.
    pub records: u64,
    /// Records that are kept.
    pub kept_records: u64,
    /// The memory of the kept records, in the kept columns.
    pub buffered_bytes: u64,
    /// The bytes that they are encoded as.
    pub output_bytes: u64,
    /// The processor's work on them.
    #[serde(default)]
    pub worked: Worked,
}

/// The processor's work on a sample: bytes, and the modelled time that each kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worked {
    /// Input, as stored, that was decoded.
    pub decoded: Pace,
    /// Input, as stored, that was filtered and split.
    pub split: Pace,
    /// Bytes of the buffer that were encoded as output.
    pub encoded: Pace,
    /// Bytes of the buffer that were made a run, or taken out of one.
    pub runs: Pace,
}

/// Work of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Bytes.
    pub bytes: u64,
    /// The time they took, in nanoseconds of modelled time.
    pub ns: u64,
}

/// The expected rates of a class's processor, in bytes per second of modelled time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorRates {
    /// Input, as stored, that is decoded, filtered and split.
    pub split_bytes_per_s: u64,
    /// Bytes of the buffer that are encoded as output.
    pub encode_bytes_per_s: u64,
    /// Bytes of the buffer that are made a run, or taken out of one.
    pub run_bytes_per_s: u64,
    /// `sampled` from the input, or `assumed` from the format.
    pub from: String,
}

/// A class that takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassPlan {
    /// The class.
    pub class: u32,
    /// Its groups that store input or receive output.
    pub groups: Vec<u32>,
    /// The input that it stores.
    pub input_bytes: u64,
}

/// The plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Objects of the input.
    pub objects: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// Those of them that are still in the workshop.
    pub workshop_bytes: u64,
    /// Their format.
    pub format: String,
    /// Bytes of output per byte of input, both as stored: the amount written.
    #[serde(default)]
    pub alpha: Figure,
    /// Bytes in the buffer per stored byte of the same records: the amount buffered.
    #[serde(default)]
    pub expansion: Figure,
    /// The speed at which records are processed.
    #[serde(default)]
    pub processor: ProcessorRates,
    /// The sample that was taken, if one was.
    #[serde(default)]
    pub sample: Option<Sample>,
    /// The expected output, in bytes as stored.
    #[serde(default)]
    pub output_bytes: u64,
    /// Starts that each drive has per day for background work.
    pub starts_per_day: u32,
    /// Starts in its lifetime that a drive is rated for; 0 if unknown.
    #[serde(default)]
    pub rated_starts: u32,
    /// Partitions, at most.
    pub partitions: u64,
    /// The classes.
    pub classes: Vec<ClassPlan>,
    /// The cost of each strategy.
    pub forecasts: Vec<Forecast>,
    /// The strategy to begin with.
    pub chosen: String,
    /// The most memory that the server takes for the job: the given amount and everything beside it.
    #[serde(default)]
    pub memory_bytes_most: u64,
    /// Additional memory for each column of Parquet that is read.
    #[serde(default)]
    pub column_bytes_most: u64,
    /// Warnings before the job starts, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The progress of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Input that was read.
    pub input_bytes: u64,
    /// Records that were read, after the filter.
    pub rows: u64,
    /// Bytes buffered now.
    pub buffered_bytes: u64,
    /// The most that was buffered.
    pub peak_buffered_bytes: u64,
    /// Bytes offloaded now.
    pub offloaded_bytes: u64,
    /// Checkpoints that were taken.
    #[serde(default)]
    pub checkpoints: u64,
    /// Bytes of output objects that are written.
    pub output_bytes: u64,
    /// Number of output objects that are written.
    pub output_objects: u64,
    /// Objects of the input that were deleted or overwritten before they were read.
    pub lost_objects: u64,
    /// The part that is done, between 0 and 1.
    pub done: f64,
    /// Remaining seconds of wall time.
    pub left_s: f64,
    /// The strategy; several if the classes differ.
    pub strategy: String,
    /// Why the job waits; empty if it does not.
    pub waits: String,
}

/// The outcome of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The strategy it ended with.
    pub strategy: String,
    /// Number of strategy changes.
    pub strategy_changes: u32,
    /// Hours of modelled time from the first order to the last.
    pub hours: f64,
    /// Hours in which reads were in service, over all classes.
    pub reading_hours: f64,
    /// Hours in which writes were in service, over all classes.
    pub writing_hours: f64,
    /// Hours in which written data was read back, over all classes.
    pub verifying_hours: f64,
    /// Hours in which a working class had no group ready, over all classes.
    pub switching_hours: f64,
    /// Hours in which a class waited because its drives had used up the starts of the day, or for drives or for room,
    /// over all classes.
    pub waiting_hours: f64,
    /// Hours in which the processor worked on records, over all classes, whether or not other work was in service.
    #[serde(default)]
    pub processing_hours: f64,
    /// Groups that the rack woke for background work during the job.
    pub switches: u64,
    /// Groups that it woke for other work.
    pub other_switches: u64,
    /// Bytes of input that were read.
    pub input_bytes: u64,
    /// Those that were read before the checkpoint from which the job resumed last.
    #[serde(default)]
    pub input_bytes_before: u64,
    /// Bytes of offloaded runs that were written and read back.
    pub offloaded_bytes: u64,
    /// Bytes of output.
    pub output_bytes: u64,
    /// Objects of output.
    pub output_objects: u64,
    /// Objects of input that were read.
    pub input_objects: u64,
    /// Objects of input that were deleted or overwritten before they were read.
    pub lost_objects: u64,
    /// Checkpoints that were taken.
    #[serde(default)]
    pub checkpoints: u64,
    /// Records of the output: all that passed the filter.
    pub rows: u64,
    /// The checksum of all records, in hexadecimal; it is the same for input and output.
    pub tally: String,
    /// The most bytes buffered.
    pub peak_buffered_bytes: u64,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its number; 0 if it was only planned.
    pub job: u64,
    /// `planned`, `waiting`, `running`, `paused`, `publishing`, `removing`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// When it was requested, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Why it failed, or why it does not continue.
    pub reason: String,
    /// The request.
    pub request: Request,
    /// The forecast.
    pub plan: Option<Plan>,
    /// Its progress, while it runs.
    pub progress: Option<Progress>,
    /// Its outcome.
    pub outcome: Option<Outcome>,
}

/// The catalog's record of a job, in the server's terms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    pub plan: Option<Plan>,
    pub outcome: Option<Outcome>,
    /// The bucket to publish to, as of the request; a later bucket of the same name is a different one.
    pub target: Option<catalog::Bucket>,
    /// Number of times in a row that the server ended unrequested while it worked on this job.
    pub interruptions: u32,
    /// The serial number of its checkpoint at the last interruption.
    pub interrupted_at: u64,
    /// True if it has had its turn, and no server was asked to end since.
    pub works: bool,
    /// True if it was cancelled, and is being rolled back.
    pub cancelled: bool,
}
