//! A plan's expectations about records: the output they become, the memory they take, and the processor time. They come
//! from a sample if one was taken, else from assumptions about the format.

use super::memory::Memory;
use super::report::{self, Pace, ProcessorRates, Request, Sample};
use batch::Format;
use engine::repartition::{Alpha, Expansion, Processor};

/// The input bytes for which a request states alpha.
const MILLION: u64 = 1_000_000;

/// A number, and where it comes from: `given`, `sampled` or `assumed`.
pub(super) struct From<T> {
    pub value: T,
    pub from: &'static str,
}

/// See the head of this file.
pub(super) struct ExpectedRecords {
    /// The output for each byte of input.
    pub alpha: From<Alpha>,
    /// The memory for each byte of output.
    pub expansion: From<Expansion>,
    /// The speed at which records are processed.
    pub processor: From<Processor>,
    format: Format,
    sample: Option<Sample>,
}

impl ExpectedRecords {
    /// The expectations for `request` on records of this format, measured on `sample` if one was taken. Modelled time
    /// runs `host_scale` times as fast as the host's.
    pub fn of(request: &Request, format: Format, sample: Option<&Sample>, host_scale: u32) -> Self {
        Self {
            alpha: alpha(request, sample),
            expansion: expansion(format, sample),
            processor: processor(format, sample, host_scale),
            format,
            sample: sample.cloned(),
        }
    }

    /// The part of a plan that reports them.
    pub fn as_plan(&self) -> report::Plan {
        let Self { alpha, expansion, processor, .. } = self;
        report::Plan {
            format: self.format.to_string(),
            alpha: report::Figure { value: alpha.value.as_f64(), from: alpha.from.into() },
            expansion: report::Figure { value: expansion.value.as_f64(), from: expansion.from.into() },
            processor: ProcessorRates {
                split_bytes_per_s: processor.value.split_bytes_per_s,
                encode_bytes_per_s: processor.value.encode_bytes_per_s,
                run_bytes_per_s: processor.value.run_bytes_per_s,
                from: processor.from.into(),
            },
            sample: self.sample.clone(),
            ..report::Plan::default()
        }
    }

    /// The bytes that each batch is expected to add to the buffer.
    pub fn batch_bytes(&self, memory: &Memory) -> u64 {
        let mut bytes = batch::batch_bytes(memory.decoder_bytes(self.format));
        if self.format == Format::Parquet {
            return bytes;
        }
        if let Some(Sample { input_bytes, records, .. }) = &self.sample {
            let of_rows = u128::from(*input_bytes) * u128::from(batch::BATCH_ROWS_MAX) / u128::from((*records).max(1));
            bytes = bytes.min(u64::try_from(of_rows).unwrap_or(u64::MAX));
        }
        self.alpha.value.in_memory(self.expansion.value).output_of(bytes).max(1)
    }
}

/// If a sample keeps no record, one record is assumed to be kept.
fn alpha(request: &Request, sample: Option<&Sample>) -> From<Alpha> {
    match (request.alpha_millionths, sample) {
        (Some(output), _) => From { value: Alpha { output, input: MILLION }, from: "given" },
        (None, Some(sample)) if sample.input_bytes > 0 => {
            let Sample { input_bytes: input, records, output_bytes, .. } = *sample;
            let least = if sample.kept_records == 0 { input.div_ceil(records.max(1)) } else { 0 };
            From { value: Alpha { output: output_bytes.max(least), input }, from: "sampled" }
        }
        _ => From { value: Alpha::ONE, from: "assumed" },
    }
}

fn expansion(format: Format, sample: Option<&Sample>) -> From<Expansion> {
    match sample {
        Some(Sample { buffered_bytes: buffered, output_bytes: stored, .. }) if *buffered > 0 && *stored > 0 => {
            From { value: Expansion { buffered: *buffered, stored: *stored }, from: "sampled" }
        }
        _ => From { value: assumed_expansion(format), from: "assumed" },
    }
}

fn processor(format: Format, sample: Option<&Sample>, host_scale: u32) -> From<Processor> {
    let assumed = assumed_processor(format, host_scale);
    let Some(worked) = sample.map(|sample| sample.worked) else { return From { value: assumed, from: "assumed" } };
    let value = Processor {
        split_bytes_per_s: rate(&[worked.decoded, worked.split]).unwrap_or(assumed.split_bytes_per_s),
        encode_bytes_per_s: rate(&[worked.encoded]).unwrap_or(assumed.encode_bytes_per_s),
        run_bytes_per_s: rate(&[worked.runs]).unwrap_or(assumed.run_bytes_per_s),
    };
    From { value, from: "sampled" }
}

/// The rate at which bytes pass through work of several kinds in sequence; `None` if one kind had no bytes.
fn rate(paces: &[Pace]) -> Option<u64> {
    let done = paces.iter().all(|pace| pace.bytes > 0);
    let ns_per_byte: f64 = paces.iter().map(|pace| pace.ns as f64 / pace.bytes as f64).sum();
    done.then(|| ((1e9 / ns_per_byte.max(1e-9)) as u64).max(1))
}

/// The memory to expect for a stored byte of an object that was not sampled: Parquet is compressed.
fn assumed_expansion(format: Format) -> Expansion {
    match format {
        Format::Parquet => Expansion { buffered: 3, stored: 1 },
        Format::Fixed { .. } => Expansion::ONE,
        Format::Csv | Format::Ndjson | Format::Lines => Expansion { buffered: 11, stored: 10 },
    }
}

/// The processor rates to expect for records that were not sampled, where modelled time runs `host_scale` times as fast
/// as the host's (docs/reference/benchmarks-server.md).
fn assumed_processor(format: Format, host_scale: u32) -> Processor {
    let (split, encode) = match format {
        Format::Parquet => (90, 100),
        Format::Csv | Format::Ndjson | Format::Lines | Format::Fixed { .. } => (300, 250),
    };
    let rate = |mb_per_s: u64| (mb_per_s * 1_000_000 / u64::from(host_scale)).max(1);
    Processor { split_bytes_per_s: rate(split), encode_bytes_per_s: rate(encode), run_bytes_per_s: rate(250) }
}
