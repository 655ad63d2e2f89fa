//! The buffer: batches by partition, and the memory that they take, by destination group.
//!
//! Pieces are small: each batch that is read is split into one piece per partition. So that their overhead does not
//! fill the memory, [`TIER`] pieces of one tier are joined to one of the next; each record is copied two or three
//! times.
//!
//! There are two accounts: the bytes held, and the bytes reported to the engine for each destination (`counted`), which
//! are at least as many. Joining saves bytes that were reported already; they are credited to the next report. Only a
//! refilled run may hold more bytes than it counts for: its count is then shared out among the writes, so that
//! something is left for the last of them.
//!
//! Invariants: a batch is in one stock, or with one writer ([`PartitionBatches`]) and still held. The engine learns
//! that nothing is left for a destination only when neither a stock nor a writer has any of it.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use batch::held_bytes;

/// Batches that are joined to one.
const TIER: usize = 16;
/// The longest batch that joining makes, in bytes; but at most half a chunk, since each offload or refill is reported
/// as a chunk at most.
const JOINED_BYTES_MAX: u64 = 4 << 20;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct PartitionBuffer {
    stocks: Vec<Vec<Stocked>>,
    destinations: Vec<Destination>,
    destination_of: DestinationOf,
    joined_bytes_max: u64,
    held_bytes: u64,
    peak_bytes: u64,
}

/// Assigns partitions to destination groups, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DestinationOf {
    /// Neighbours share a destination.
    Spread { partitions: usize, destinations: usize },
    /// In turn, since the number of partitions is not known.
    InTurn { destinations: usize },
}

impl DestinationOf {
    /// The number of the destination of a partition.
    pub fn destination(self, partition: usize) -> usize {
        match self {
            Self::Spread { partitions, destinations } => partition * destinations / partitions.max(1),
            Self::InTurn { destinations } => partition % destinations,
        }
    }
}

#[derive(Debug)]
struct Stocked {
    batch: RecordBatch,
    bytes: u64,
    tier: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Destination {
    /// Bytes that were reported, less those that left.
    counted: u64,
    /// Bytes that joining saved, of these or of those about to be reported.
    saved: u64,
    /// Bytes in stock, or with writers.
    held: u64,
    /// Of these, bytes with writers.
    taken: u64,
    /// Bytes that readers have yet to report, including those that have left already.
    unreported: u64,
}

/// Batches of a partition that a writer holds.
#[derive(Debug)]
pub(super) struct PartitionBatches {
    pub partition: usize,
    pub batches: Vec<RecordBatch>,
    pub bytes: u64,
}

/// Bytes that a reader has put into the buffer and not yet reported, by destination.
#[derive(Debug, Default)]
pub(super) struct Unreported(Vec<u64>);

impl Unreported {
    /// Unreported bytes of all destinations.
    pub fn bytes(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl PartitionBuffer {
    /// An empty buffer, for a job with this chunk limit.
    pub fn new(destinations: usize, destination_of: DestinationOf, chunk_bytes: u64) -> Self {
        let (stocks, destinations) = (Vec::new(), vec![Destination::default(); destinations]);
        let joined_bytes_max = JOINED_BYTES_MAX.min(chunk_bytes / 2);
        Self { stocks, destinations, destination_of, joined_bytes_max, held_bytes: 0, peak_bytes: 0 }
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The most bytes ever held.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    pub fn destination_of(&self, partition: usize) -> usize {
        self.destination_of.destination(partition)
    }

    /// Adds a piece of a partition.
    pub fn put(
        &mut self,
        partition: usize,
        batch: RecordBatch,
        unreported: &mut Unreported,
    ) -> Result<(), batch::Error> {
        let (destination, bytes) = (self.destination_of(partition), held_bytes(&batch));
        unreported.0.resize(self.destinations.len(), 0);
        unreported.0[destination] += bytes;
        self.destinations[destination].unreported += bytes;
        self.stock(partition, Stocked { batch, bytes, tier: 0 })
    }

    fn stock(&mut self, partition: usize, piece: Stocked) -> Result<(), batch::Error> {
        if self.stocks.len() <= partition {
            self.stocks.resize_with(partition + 1, Vec::new);
        }
        self.hold(partition, piece.bytes);
        self.stocks[partition].push(piece);
        while self.join(partition)? {}
        Ok(())
    }

    /// Adds to the bytes held for a partition.
    fn hold(&mut self, partition: usize, bytes: u64) {
        let destination = self.destination_of(partition);
        self.destinations[destination].held += bytes;
        self.held_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.held_bytes);
    }

    /// Subtracts from the bytes held for a destination.
    fn let_go(&mut self, destination: usize, bytes: u64) {
        let of = &mut self.destinations[destination];
        assert!(self.held_bytes >= bytes && of.held >= bytes, "what leaves the buffer was held");
        of.held -= bytes;
        self.held_bytes -= bytes;
    }

    /// Joins the last batches of a partition, if enough of them are of one tier.
    fn join(&mut self, partition: usize) -> Result<bool, batch::Error> {
        let stock = &mut self.stocks[partition];
        let Some(tier) = stock.last().map(|last| last.tier) else { return Ok(false) };
        let Some(start) = stock.len().checked_sub(TIER) else { return Ok(false) };
        let last = &stock[start..];
        let bytes: u64 = last.iter().map(|piece| piece.bytes).sum();
        if bytes > self.joined_bytes_max || last.iter().any(|piece| piece.tier != tier) {
            return Ok(false);
        }
        let schema = last[0].batch.schema();
        let joined = concat_batches(&schema, last.iter().map(|piece| &piece.batch));
        let batch = joined.map_err(|error| batch::Error::Columns { doing: "joining", reason: error.to_string() })?;
        let after = held_bytes(&batch);
        stock.truncate(start);
        stock.push(Stocked { batch, bytes: after, tier: tier.saturating_add(1) });
        let destination = self.destination_of.destination(partition);
        self.destinations[destination].saved += bytes.saturating_sub(after);
        self.let_go(destination, bytes);
        self.hold(partition, after);
        Ok(true)
    }

    /// Settles what was put in; returns the bytes to report, by destination.
    pub fn settle(&mut self, unreported: Unreported) -> Vec<(usize, u64)> {
        let mut reported = Vec::new();
        for (destination, bytes) in unreported.0.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            let of = &mut self.destinations[destination];
            let credit = of.saved.min(bytes);
            assert!(of.unreported >= bytes, "what is reported was put in");
            of.unreported -= bytes;
            of.saved -= credit;
            of.counted += bytes - credit;
            reported.push((destination, bytes - credit));
        }
        reported
    }

    /// Puts refilled batches back; `counted` bytes were reported for them when they were offloaded.
    pub fn refill(
        &mut self,
        destination: usize,
        counted: u64,
        pieces: Vec<(usize, RecordBatch)>,
    ) -> Result<(), batch::Error> {
        for (partition, batch) in pieces {
            let bytes = held_bytes(&batch);
            self.stock(partition, Stocked { batch, bytes, tier: 0 })?;
        }
        self.destinations[destination].counted += counted;
        Ok(())
    }

    /// Takes batches of the partitions of a destination, up to `bytes`; at least one, unless the destination has none.
    pub fn take(&mut self, destination: usize, bytes: u64) -> Vec<PartitionBatches> {
        let mut all = Vec::new();
        let mut sum = 0;
        for partition in 0..self.stocks.len() {
            if self.destination_of.destination(partition) != destination || self.stocks[partition].is_empty() {
                continue;
            }
            let stock = &mut self.stocks[partition];
            let mut fits = 0;
            let mut taken = 0;
            while let Some(piece) = stock.get(fits)
                && (sum + piece.bytes <= bytes || sum == 0)
            {
                sum += piece.bytes;
                taken += piece.bytes;
                fits += 1;
            }
            if fits == 0 {
                break;
            }
            let batches = stock.drain(..fits).map(|piece| piece.batch).collect();
            all.push(PartitionBatches { partition, batches, bytes: taken });
        }
        self.destinations[destination].taken += sum;
        assert!(self.destinations[destination].taken <= self.held_bytes, "what is taken is still held");
        all
    }

    /// Puts back batches that were taken and not written.
    pub fn put_back(&mut self, taken: Vec<PartitionBatches>) {
        for PartitionBatches { partition, batches, bytes } in taken {
            let destination = self.destination_of(partition);
            self.let_go(destination, bytes);
            assert!(self.destinations[destination].taken >= bytes, "what is put back was taken");
            self.destinations[destination].taken -= bytes;
            for batch in batches.into_iter().rev() {
                let bytes = held_bytes(&batch);
                self.hold(partition, bytes);
                // Of a high tier, so that it is not joined again.
                self.stocks[partition].insert(0, Stocked { batch, bytes, tier: u32::MAX });
            }
        }
    }

    /// The bytes to report, at most `most`, when `bytes` taken from a destination are written. If nothing is left for
    /// the destination then, this is the whole count; otherwise some of the count remains, unless a report is still to
    /// come.
    pub fn reportable(&self, destination: usize, bytes: u64, most: u64) -> u64 {
        let of = &self.destinations[destination];
        assert!(of.held >= bytes, "what is written was held");
        let left = of.held - bytes;
        let owed = left.saturating_sub(of.unreported);
        let reported = if left == 0 {
            of.counted
        } else if owed == 0 || of.counted >= bytes + owed {
            (bytes + of.saved).min(of.counted - owed.min(of.counted))
        } else {
            let share = u128::from(of.counted) * u128::from(bytes) / u128::from(bytes + owed);
            (share as u64).clamp(u64::from(bytes > 0), of.counted.saturating_sub(1).max(1))
        };
        reported.min(of.counted).min(most)
    }

    /// Records that `bytes` taken from a destination are written; returns the bytes to report ([`Self::reportable`]).
    pub fn release(&mut self, destination: usize, bytes: u64, most: u64) -> u64 {
        let reported = self.reportable(destination, bytes, most);
        self.let_go(destination, bytes);
        let of = &mut self.destinations[destination];
        assert!(of.taken >= bytes && of.counted >= reported, "what is written was taken, and what is reported counted");
        of.taken -= bytes;
        of.saved -= reported.saturating_sub(bytes).min(of.saved);
        of.counted -= reported;
        reported
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::Int64Array;
    use std::sync::Arc;

    fn piece(rows: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from_iter_values(0..rows)) as _)]).unwrap()
    }

    fn buffer() -> PartitionBuffer {
        PartitionBuffer::new(1, DestinationOf::Spread { partitions: 4, destinations: 1 }, 1 << 20)
    }

    /// Writes everything, `at_once` bytes at a time, and checks that the account lasts exactly that long.
    fn write_all(buffer: &mut PartitionBuffer, counted: u64, at_once: u64) {
        let mut left = counted;
        loop {
            let taken: u64 = buffer.take(0, at_once).iter().map(|taken| taken.bytes).sum();
            assert!(taken > 0, "{left} bytes are counted, and nothing is left");
            let reported = buffer.release(0, taken, u64::MAX);
            assert!(reported > 0, "of {taken} bytes that were written none is reported");
            left -= reported;
            assert_eq!(left == 0, buffer.held_bytes() == 0, "{left} are counted, and {} held", buffer.held_bytes());
            if left == 0 {
                return;
            }
        }
    }

    #[test]
    fn runs_that_are_back_and_take_more_than_they_count_for_are_written_to_the_last() {
        for at_once in [1, 5_000, 20_000, 50_000] {
            let mut buffer = buffer();
            let pieces = (100_i64..140).enumerate().map(|(number, rows)| (number % 4, piece(rows)));
            let pieces: Vec<(usize, RecordBatch)> = pieces.collect();
            let held: u64 = pieces.iter().map(|(_, batch)| held_bytes(batch)).sum();
            let counted = held * 8 / 9;
            buffer.refill(0, counted, pieces).unwrap();
            write_all(&mut buffer, counted, at_once);
        }
    }

    #[test]
    fn what_joining_saves_is_credited_once() {
        for at_once in [1, 5_000, 50_000] {
            let (mut buffer, mut counted) = (buffer(), 0);
            for _ in 0..10 {
                let mut unreported = Unreported::default();
                for number in 0..20 {
                    buffer.put(number % 4, piece(50), &mut unreported).unwrap();
                }
                counted += buffer.settle(unreported).into_iter().map(|(_, bytes)| bytes).sum::<u64>();
                assert!(counted >= buffer.held_bytes());
            }
            write_all(&mut buffer, counted, at_once);
        }
    }
}
