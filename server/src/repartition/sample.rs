//! A look at one object of the input, so that a plan is not made for columns that nobody has.
//!
//! What lies in the workshop is looked at first, then what lies on a group that is awake; else one group wakes. Of
//! Parquet the footer is read, of CSV and NDJSON a batch of records; what is said of lines and of records of fixed
//! length needs no bytes at all.

use super::input::Input;
use super::plan::Survey;
use super::source::{BlobReader, InputSource, Opened, open};
use crate::world::{Context, MemoryReads, WorldHandle};
use batch::{Decoder, Format, Need, Partitioner};
use engine::{GroupState, PriorityClass};
use model::GroupId;

/// Holds what is to be done with records against one object of the input. Answers a warning if that cannot be decided
/// from one object, or none could be read.
///
/// # Errors
/// Why the job would fail, in words.
pub(super) async fn check(context: &Context, world: &WorldHandle, survey: &Survey) -> Result<Option<String>, String> {
    let Some((input, mut opened)) = chosen(context, world, survey).await else { return Ok(None) };
    let (spec, name) = (&survey.spec, opened.name.clone());
    let reads = MemoryReads::new(context.clone(), world.clone());
    let mut blobs = BlobReader::new(reads, PriorityClass::Client);
    let mut decoder = Decoder::open(spec, input.bytes, survey.memory.decoder_bytes(spec.format));
    loop {
        if let Some(schema) = decoder.schema().filter(|_| schema_decides(spec.format)) {
            let fits = Partitioner::new(spec, &schema);
            return fits.map(|_| None).map_err(|error| error.at(&name, 0).to_string());
        }
        let need = decoder.next().map_err(|error| error.at(&name, decoder.records_before()).to_string())?;
        match need {
            Need::Bytes(range) => match opened.source.fetch(&mut blobs, range.clone(), 0).await {
                Ok(bytes) => decoder.give(&range, bytes),
                Err(error) => return Ok(Some(format!("the columns could not be checked: {name}: {error}"))),
            },
            Need::Batch(batch) => {
                let partitioner = Partitioner::new(spec, &batch.schema());
                let partitioner = partitioner.map_err(|error| error.at(&name, 0).to_string())?;
                let split = partitioner.split(&batch);
                split.map_err(|error| error.at(&name, decoder.records_before()).to_string())?;
                return Ok(missing_key(&partitioner, batch.num_rows(), &name));
            }
            Need::End => return Ok(None),
        }
    }
}

/// Whether columns are known before any record is.
fn schema_decides(format: Format) -> bool {
    match format {
        Format::Parquet | Format::Lines | Format::Fixed { .. } => true,
        Format::Csv | Format::Ndjson => false,
    }
}

/// A key of NDJSON that was in none of the records: it may be in others.
fn missing_key(partitioner: &Partitioner, rows: usize, name: &str) -> Option<String> {
    match partitioner.finish() {
        Err(error @ batch::Error::MissingColumn { .. }) => {
            Some(format!("in the first {rows} records of {name}, {error}; a job fails if it is in no record at all"))
        }
        _ => None,
    }
}

/// The object to look at.
async fn chosen(context: &Context, world: &WorldHandle, survey: &Survey) -> Option<(Input, Opened)> {
    // What lies in the workshop stands behind what lies in the group that it is read along with.
    for input in survey.inputs.values().filter_map(|inputs| inputs.last()) {
        if let Ok(Some(opened @ Opened { source: InputSource::Workshop { .. }, .. })) =
            open(context, &survey.bucket, input).await
        {
            return Some((input.clone(), opened));
        }
    }
    let groups: Vec<GroupId> = survey.inputs.keys().copied().collect();
    let awake = world.ask(move |rack, _| {
        let ready = |group: &GroupId| matches!(rack.group_state(*group), GroupState::Idle | GroupState::Busy);
        groups.into_iter().find(ready)
    });
    let awake = awake.await.flatten().and_then(|group| survey.inputs.get(&group));
    for input in awake.into_iter().chain(survey.inputs.values()).filter_map(|inputs| inputs.first()) {
        if let Ok(Some(opened)) = open(context, &survey.bucket, input).await {
            return Some((input.clone(), opened));
        }
    }
    None
}
