//! The requests and reports of a repartition: as JSON, between server and command line, and in the
//! catalog.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place of objects: a bucket and what their keys begin with.
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
    /// Where to write.
    pub to: Place,
    /// The key of a record's partition: `hash(a, b)`, `range(column, v1, ...)`, `value(column)`.
    pub by: String,
    /// How many partitions, where `by` does not say.
    pub partitions: Option<u64>,
    /// How much may be buffered, in bytes.
    pub memory_bytes: u64,
    /// The columns that are kept; all of them, if none are named.
    pub columns: Option<Vec<String>>,
    /// Patterns of the keys below the prefix that are no part of the input, beside Spark's files without records.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Which records are kept; all of them, if nothing is said.
    pub filter: Option<String>,
    /// The size of the objects that are written, in bytes, at most; chosen, if nothing is said.
    pub object_bytes: Option<u64>,
    /// The format of the objects, if their names do not say it.
    pub format: Option<String>,
    /// The strategy to follow to the end; the cheapest, if nothing is said.
    pub strategy: Option<String>,
    /// Millionths of a byte of output for each byte of input, both as they are stored; measured, if nothing is said.
    #[serde(default)]
    pub alpha_millionths: Option<u64>,
    /// Whether the input that was read is removed once the output is published.
    pub remove_input: bool,
    /// Whether to forecast, and do nothing.
    pub dry_run: bool,
}

/// The cost of one strategy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The strategy.
    pub strategy: String,
    /// Hours of modelled time from the first byte to the last, in the class that takes longest; waiting for starts is
    /// not part of them.
    pub hours: f64,
    /// The same with waiting for the next day whenever a drive has had its starts of one.
    pub hours_with_budget: f64,
    /// How often the drives are started that are started most often.
    pub starts_per_drive: u64,
    /// The part of them in which groups are woken.
    pub switching_hours: f64,
    /// How often a group is woken.
    pub switches: u64,
    /// Bytes read: input, and offloaded runs.
    pub bytes_read: u64,
    /// Bytes written: output, and offloaded runs.
    pub bytes_written: u64,
    /// Those of offloaded runs.
    #[serde(default)]
    pub bytes_offloaded: u64,
    /// Energy of the drives beyond standby.
    pub kwh: f64,
    /// The most that lies in any one group beyond what lies there now.
    pub peak_extra_bytes: u64,
    /// Whether that fits.
    pub fits: bool,
}

/// A number of a plan, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its value.
    pub value: f64,
    /// `given` by the request, `sampled` from the input, or `assumed` of the format.
    pub from: String,
}

/// A sample of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Objects that were looked at.
    pub objects: u64,
    /// Places in them.
    pub places: u64,
    /// The bytes of the input that its records lie in.
    pub input_bytes: u64,
    /// Records.
    pub records: u64,
    /// Those of them that are kept.
    pub kept_records: u64,
    /// The memory that these take, in the columns that are kept.
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
    /// Input, as it is stored, that was decoded.
    pub decoded: Pace,
    /// Input, as it is stored, that was filtered and split.
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

/// The rates that a plan expects of a class's processor, in bytes for each second of modelled time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorRates {
    /// Input, as it is stored, that is decoded, filtered and split.
    pub split_bytes_per_s: u64,
    /// Bytes of the buffer that are encoded as output.
    pub encode_bytes_per_s: u64,
    /// Bytes of the buffer that are made a run, or taken out of one.
    pub run_bytes_per_s: u64,
    /// `sampled` from the input, or `assumed` of the format.
    pub from: String,
}

/// A class that takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassPlan {
    /// The class.
    pub class: u32,
    /// Its groups that hold input or get output.
    pub groups: Vec<u32>,
    /// The input that lies in it.
    pub input_bytes: u64,
}

/// The plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Objects of the input.
    pub objects: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// Those of them that still lie in the workshop.
    pub workshop_bytes: u64,
    /// Their format.
    pub format: String,
    /// Bytes of output over bytes of input, both as they are stored: what is written.
    #[serde(default)]
    pub alpha: Figure,
    /// Bytes in the buffer over the same records' bytes as they are stored: what fills the buffer.
    #[serde(default)]
    pub expansion: Figure,
    /// How fast records are worked on.
    #[serde(default)]
    pub processor: ProcessorRates,
    /// The sample that was taken, if one was.
    #[serde(default)]
    pub sample: Option<Sample>,
    /// The output that is expected, in bytes as they are stored.
    #[serde(default)]
    pub output_bytes: u64,
    /// Starts that a drive has on a day for work that nobody waits for.
    pub starts_per_day: u32,
    /// Starts in its whole life that the drives are rated for; 0 if that is not known.
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
    /// The most memory that the server takes for it, what was given and everything beside.
    #[serde(default)]
    pub memory_bytes_most: u64,
    /// And as much more for each column of Parquet that is read.
    #[serde(default)]
    pub column_bytes_most: u64,
    /// Warnings before the job is begun, in words.
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
    /// How many those are.
    pub output_objects: u64,
    /// Objects of the input that were deleted or overwritten before they were read.
    pub lost_objects: u64,
    /// Between 0 and 1.
    pub done: f64,
    /// Seconds of wall time that are left.
    pub left_s: f64,
    /// The strategy, of each class where they differ.
    pub strategy: String,
    /// The reason for which it waits, if it does.
    pub waits: String,
}

/// The outcome of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The strategy it ended with.
    pub strategy: String,
    /// How often it was changed.
    pub strategy_changes: u32,
    /// Hours of modelled time from the first order to the last.
    pub hours: f64,
    /// Hours in which reads were in service, over all classes.
    pub reading_hours: f64,
    /// Hours in which writes were in service, over all classes.
    pub writing_hours: f64,
    /// Hours in which what was written was read back, over all classes.
    pub verifying_hours: f64,
    /// Hours in which a class that worked had no group ready, over all classes.
    pub switching_hours: f64,
    /// Hours in which a class waited for starts of the next day, for drives or for room, over all classes.
    pub waiting_hours: f64,
    /// Hours in which the processor worked on records, over all classes, whatever else was done meanwhile.
    #[serde(default)]
    pub processing_hours: f64,
    /// Groups that the rack woke for its background meanwhile, as it counts them.
    pub switches: u64,
    /// Groups that it woke for others.
    pub other_switches: u64,
    /// Bytes that were read of the input.
    pub input_bytes: u64,
    /// Those of them that were read before the checkpoint that it went on from last.
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
    /// Records of the output: as many as passed the filter.
    pub rows: u64,
    /// The checksum of all records, in hexadecimal; input and output agree in it.
    pub tally: String,
    /// The most that was buffered.
    pub peak_buffered_bytes: u64,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its number; 0 if it was only planned.
    pub job: u64,
    /// `planned`, `waiting`, `running`, `paused`, `publishing`, `removing`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// When it was asked for, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// When it was over.
    pub ended_ms: Option<u64>,
    /// Why it failed or does not go on.
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
    /// The bucket to publish to, as it was when the job was asked for: another one of that name is not meant.
    pub target: Option<catalog::Bucket>,
    /// How often in a row the server ended while it worked on this, without having been asked to.
    pub interruptions: u32,
    /// The serial number of its checkpoint when it was interrupted last.
    pub interrupted_at: u64,
    /// Whether it has had its turn, and the server was not asked to end since.
    pub works: bool,
    /// Whether it was cancelled, and is rolled back.
    pub cancelled: bool,
}
