//! What is buffered: batches by partition, and what they take of the memory, by home.
//!
//! Pieces come small: a batch that was read is split into one for each partition. So that their overhead does not fill
//! the memory, pieces of one tier are joined to one of the next when there are [`TIER`] of them; each record is copied
//! two or three times.
//!
//! Two accounts: what is held in truth, and what the plan was told of each home (`counted`), which is at least as much.
//! Joining saves bytes that were told already; they are credited to whoever tells next.
//!
//! Invariants: a batch is in one stock, or in the hands of one writer ([`Taken`]) and still held; the plan is only told
//! that a home has nothing left when neither a stock nor a writer has.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use batch::held_bytes;

/// Batches that are joined to one.
const TIER: usize = 16;
/// The longest batch that comes of joining, in bytes; but never more than a half of a grain, since what is offloaded,
/// or back, at once is told as a grain at most.
const JOINED_BYTES_MAX: u64 = 4 << 20;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Buffer {
    stocks: Vec<Vec<Stocked>>,
    homes: Vec<Home>,
    home_of: HomeOf,
    joined_bytes_max: u64,
    held_bytes: u64,
    peak_bytes: u64,
}

/// Which home a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HomeOf {
    /// Neighbours share a home: so many partitions over so many homes.
    Spread { partitions: usize, homes: usize },
    /// In turn, since nobody knows how many partitions there will be.
    InTurn { homes: usize },
}

impl HomeOf {
    /// The number of the home of a partition.
    pub fn home(self, partition: usize) -> usize {
        match self {
            Self::Spread { partitions, homes } => partition * homes / partitions.max(1),
            Self::InTurn { homes } => partition % homes,
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
struct Home {
    /// What the plan knows.
    counted: u64,
    /// What joining saved of what the plan knows, or will.
    saved: u64,
    /// What is in the hands of writers.
    taken: u64,
}

/// Batches of a partition in the hands of a writer.
#[derive(Debug)]
pub(super) struct Taken {
    pub partition: usize,
    pub batches: Vec<RecordBatch>,
    pub bytes: u64,
}

/// What a reader has put into the buffer and not yet told, by home.
#[derive(Debug, Default)]
pub(super) struct Untold(Vec<u64>);

impl Untold {
    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Buffer {
    /// Of nothing yet, for a job of that grain.
    pub fn new(homes: usize, home_of: HomeOf, grain_bytes: u64) -> Self {
        let (stocks, homes) = (Vec::new(), vec![Home::default(); homes]);
        let joined_bytes_max = JOINED_BYTES_MAX.min(grain_bytes / 2);
        Self { stocks, homes, home_of, joined_bytes_max, held_bytes: 0, peak_bytes: 0 }
    }

    /// What is held.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The most that was ever held.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    pub fn home_of(&self, partition: usize) -> usize {
        self.home_of.home(partition)
    }

    /// Puts a piece of a partition in.
    pub fn put(&mut self, partition: usize, batch: RecordBatch, untold: &mut Untold) -> Result<(), batch::Error> {
        let (home, bytes) = (self.home_of(partition), held_bytes(&batch));
        untold.0.resize(self.homes.len(), 0);
        untold.0[home] += bytes;
        self.stock(partition, Stocked { batch, bytes, tier: 0 })
    }

    fn stock(&mut self, partition: usize, piece: Stocked) -> Result<(), batch::Error> {
        if self.stocks.len() <= partition {
            self.stocks.resize_with(partition + 1, Vec::new);
        }
        self.held_bytes += piece.bytes;
        self.peak_bytes = self.peak_bytes.max(self.held_bytes);
        self.stocks[partition].push(piece);
        while self.join(partition)? {}
        Ok(())
    }

    /// Joins the last batches of a partition, if there are enough of one tier.
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
        let home = self.home_of.home(partition);
        self.homes[home].saved += bytes.saturating_sub(after);
        self.held_bytes = self.held_bytes + after - bytes;
        Ok(true)
    }

    /// What the plan is to be told of what was put in, by home.
    pub fn settle(&mut self, untold: Untold) -> Vec<(usize, u64)> {
        let mut told = Vec::new();
        for (home, bytes) in untold.0.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            let of = &mut self.homes[home];
            let credit = of.saved.min(bytes);
            of.saved -= credit;
            of.counted += bytes - credit;
            told.push((home, bytes - credit));
        }
        told
    }

    /// Puts what was refilled back; `counted` bytes are what the plan knows of it.
    pub fn refill(&mut self, home: usize, counted: u64, pieces: Vec<(usize, RecordBatch)>) -> Result<(), batch::Error> {
        for (partition, batch) in pieces {
            let bytes = held_bytes(&batch);
            self.stock(partition, Stocked { batch, bytes, tier: 0 })?;
        }
        self.homes[home].counted += counted;
        Ok(())
    }

    /// Takes batches of the partitions of a home, until they make `bytes`; at least one, if there is any.
    pub fn take(&mut self, home: usize, bytes: u64) -> Vec<Taken> {
        let mut all = Vec::new();
        let mut sum = 0;
        for partition in 0..self.stocks.len() {
            if self.home_of.home(partition) != home || self.stocks[partition].is_empty() {
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
            all.push(Taken { partition, batches, bytes: taken });
        }
        self.homes[home].taken += sum;
        all
    }

    /// Puts back what was taken: it was not written.
    pub fn put_back(&mut self, taken: Vec<Taken>) {
        for Taken { partition, batches, bytes } in taken {
            self.held_bytes -= bytes;
            let home = self.home_of(partition);
            self.homes[home].taken -= bytes;
            for batch in batches.into_iter().rev() {
                let bytes = held_bytes(&batch);
                self.held_bytes += bytes;
                // Of a high tier, so that it is not joined again.
                self.stocks[partition].insert(0, Stocked { batch, bytes, tier: u32::MAX });
            }
        }
    }

    /// What the plan is to be told, at most `most`, when of what was taken from a home `bytes` are written. If nothing
    /// of the home is left then, that is all that the plan knows.
    pub fn told(&self, home: usize, bytes: u64, most: u64) -> u64 {
        let of = &self.homes[home];
        let mut stocks = self.stocks.iter().enumerate();
        let empty = of.taken == bytes && stocks.all(|(p, stock)| stock.is_empty() || self.home_of(p) != home);
        if empty { of.counted } else { bytes + of.saved }.min(of.counted).min(most)
    }

    /// Of what was taken from a home `bytes` are written: what the plan is to be told, as [`Self::told`] has it.
    pub fn release(&mut self, home: usize, bytes: u64, most: u64) -> u64 {
        let told = self.told(home, bytes, most);
        self.held_bytes -= bytes;
        let of = &mut self.homes[home];
        of.taken -= bytes;
        of.saved -= told.saturating_sub(bytes).min(of.saved);
        of.counted -= told;
        told
    }
}
