//! The memory of a job: the amount that it is given, and an addition that is known before it starts.
//!
//! - the amount given (`--memory`): batches in the buffer, and with Parquet the row groups that are read;
//! - in each class, [`working_bytes`]: batches being decoded, split and encoded, an object being written, and the next
//!   one, which is encoded meanwhile (the same for runs, which are shorter);
//! - with Parquet, in each class, the row group being written: half of the limit for one that is read;
//! - in each class, a transfer: two requests to each drive of a stripe;
//! - in each class, [`BLOCKS_BYTES`] between drives and job;
//! - for each object of the input, [`INPUT_BYTES`] and its key;
//! - an eighth of all this for the allocator, which keeps freed memory for a second.
//!
//! Parquet takes [`COLUMN_BYTES`] more in each class for each column that is read; their number is known only when the
//! first object is opened.
//!
//! Invariants: an object is at most the class's share of half the buffer, so that all objects that are encoded at once
//! take no more memory than was given.

use super::input::{Input, ReadInput};
use batch::{COLUMN_BYTES, Format, working_bytes};
use model::Code;

/// The largest output object if the user chose no size.
const OBJECT_BYTES: u64 = 64 << 20;
/// The smallest size of output objects that a user may choose.
const OBJECT_BYTES_MIN: u64 = 64 << 10;
/// The least memory of a job in one class: a chunk must hold some of the smallest batches.
const LEAST_BYTES: u64 = 16 * batch::BATCH_BYTES_MIN;
/// The largest piece that is read between two decisions.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Blocks in transit in a class: read ahead, being split, gathered for a pack.
const BLOCKS_BYTES: u64 = 8 << 20;
/// The memory for an object of the input beside its key, from the listing to the report: the entry itself, the version
/// and key that were read, and the allocator's overhead for a key.
const INPUT_BYTES: u64 = 128;
const _: () = assert!(size_of::<Input>() + size_of::<ReadInput>() + 32 <= INPUT_BYTES as usize);

/// How a job shares out its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_field_names)] // units last, as everywhere
pub(super) struct Memory {
    /// The memory for buffered output. A refilled run takes up to an eighth more than when it was offloaded; this is
    /// reserved beside it.
    pub buffer_bytes: u64,
    /// The largest row group, for each class.
    pub row_group_bytes: u64,
    /// The largest piece that is read between two decisions, or offloaded.
    pub chunk_bytes: u64,
    /// The size of output objects.
    pub object_bytes: u64,
    /// The most memory that the process takes for the job.
    pub most_bytes: u64,
    /// Additional memory for each column of Parquet.
    pub column_bytes: u64,
}

impl Memory {
    /// The buffer size that a decoder of this format assumes.
    pub fn decoder_bytes(&self, format: Format) -> u64 {
        match format {
            Format::Parquet => self.row_group_bytes,
            _ => self.chunk_bytes.saturating_mul(4).min(self.buffer_bytes).max(batch::BATCH_BYTES_MIN),
        }
    }
}

/// The needs among which a job's memory is shared out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// The memory that the user gives.
    pub given_bytes: u64,
    /// The size of objects that the user wants.
    pub object_bytes: Option<u64>,
    pub format: Format,
    pub classes: usize,
    pub code: Code,
    /// Objects of the input.
    pub inputs: u64,
    /// The length of their keys.
    pub key_bytes: u64,
}

impl Needs {
    /// Shares the memory out.
    ///
    /// # Errors
    /// The least that is enough, if too little is given.
    pub fn share(&self) -> Result<Memory, String> {
        let classes = self.classes.max(1) as u64;
        let (given, least) = (self.given_bytes, LEAST_BYTES * classes.pow(2));
        if given < least {
            let of = if classes == 1 { "one class".to_owned() } else { format!("{classes} classes") };
            return Err(format!("{given} bytes of memory are too little for {of}; give at least {least}"));
        }
        let is_parquet = self.format == Format::Parquet;
        let reading = if is_parquet { given / 4 } else { 0 };
        let buffer_bytes = (given - reading - (given - reading) / 9).max(1);
        assert!(reading + buffer_bytes <= given, "no more memory is shared out than was given");
        let object_bytes = self.object_bytes.unwrap_or(OBJECT_BYTES);
        let object_bytes = object_bytes.min(buffer_bytes / (2 * classes)).max(OBJECT_BYTES_MIN);
        Ok(Memory {
            buffer_bytes,
            row_group_bytes: if is_parquet { reading / classes } else { buffer_bytes / classes },
            chunk_bytes: (buffer_bytes / (4 * classes * classes)).clamp(1, CHUNK_BYTES_MAX),
            object_bytes,
            most_bytes: self.most_bytes(object_bytes, reading / 2),
            column_bytes: if is_parquet { with_slack(classes * COLUMN_BYTES) } else { 0 },
        })
    }

    fn most_bytes(&self, object_bytes: u64, row_groups_bytes: u64) -> u64 {
        let stacks = self.code.stacks() as u64;
        let request = u64::from(self.code.fragment_bytes).max(disk::REQUEST_BYTES as u64);
        let in_a_class = working_bytes(0, object_bytes) + 2 * stacks * request + BLOCKS_BYTES;
        let beside = (self.classes.max(1) as u64) * in_a_class + row_groups_bytes + self.inputs * INPUT_BYTES;
        let beside = beside.saturating_add(self.key_bytes);
        with_slack(self.given_bytes.saturating_add(beside))
    }
}

/// Refuses a job that needs more memory than this machine has: the kernel would kill the server, and with it everything
/// that it serves; its jobs would restart with the next server.
pub(super) fn fits_the_machine(most_bytes: u64) -> Result<(), String> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match machine_bytes(&text) {
        Some(has) if most_bytes > has => Err(format!(
            "it would take up to {most_bytes} bytes of memory, and this machine has {has}; use a smaller --memory"
        )),
        _ => Ok(()),
    }
}

/// The memory of the machine, in bytes, by `/proc/meminfo`.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// Adds the allocator's part.
fn with_slack(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::repartition::JobSpec;

    fn needs(given_bytes: u64, classes: usize, format: Format) -> Needs {
        let code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };
        Needs { given_bytes, object_bytes: None, format, classes, code, inputs: 0, key_bytes: 0 }
    }

    #[test]
    fn what_is_shared_out_is_what_was_given_and_objects_take_no_more_once_again() {
        for (classes, format) in [(1, Format::Csv), (2, Format::Parquet), (4, Format::Csv), (4, Format::Parquet)] {
            for given_bytes in [64 << 20, 192 << 20, 1 << 30, 64 << 30] {
                let memory = needs(given_bytes, classes, format).share().unwrap();
                let row_groups = if format == Format::Parquet { classes as u64 * memory.row_group_bytes } else { 0 };
                assert!(memory.buffer_bytes + memory.buffer_bytes / 8 + row_groups <= given_bytes, "{memory:?}");
                assert!(2 * classes as u64 * memory.object_bytes <= given_bytes, "{memory:?}");
                assert!(JobSpec::least_memory_bytes(classes, memory.chunk_bytes) <= memory.buffer_bytes, "{memory:?}");
                assert!(memory.chunk_bytes <= memory.object_bytes, "a run is no longer than an object: {memory:?}");
            }
        }
    }

    #[test]
    fn a_job_takes_what_it_is_given_and_a_sum_that_does_not_grow_with_it() {
        let most = |given_bytes| needs(given_bytes, 2, Format::Csv).share().unwrap().most_bytes;
        let (little, much) = (1 << 30, 64 << 30);
        assert_eq!(most(much) - most(little), with_slack(much - little));
        // 24 MiB of batches, 2 objects of 64, 36 MiB of requests and 8 of blocks, in each of two classes.
        assert_eq!(most(little) - with_slack(little), with_slack((2 * (24 + 2 * 64 + 36 + 8)) << 20));
        assert!(needs(1 << 20, 2, Format::Csv).share().unwrap_err().ends_with("give at least 4194304"));
    }

    #[test]
    fn a_machine_tells_its_memory_and_no_job_takes_more() {
        assert_eq!(machine_bytes("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_576_000_000));
        assert_eq!((machine_bytes(""), machine_bytes("MemTotal: much\n")), (None, None));
        assert!(fits_the_machine(1).is_ok());
        if let Some(has) = machine_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()) {
            assert!(fits_the_machine(has + 1).unwrap_err().contains("smaller --memory"));
        }
    }
}
