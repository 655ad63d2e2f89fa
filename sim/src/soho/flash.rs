//! Flash as in the paper's Table I: packages, each behind its own bus, with dies that work in parallel.
//!
//! Data is written as a log, page after page, first over all packages and then over their dies. A *row* is the same
//! block of every unit that works independently. A row with only dead pages is erased when it is to be written again.
//! If no row has only dead pages, the row with the fewest live ones is copied away first (greedy cleaning, within the
//! dies).
//!
//! A page write is a transfer over the bus, then the write in the die; a page read has the opposite order. The dies of
//! a package share its bus.
//!
//! Invariants: one erased row is reserved for cleaning; the live pages of a row are those of the data stored in it.

use super::PAGE_BYTES;
use core::time::Duration;
use model::Time;

/// The geometry and the times of flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSpec {
    /// Packages, each with a bus.
    pub packages: u32,
    /// Parallel units of a package: its dies, or the planes of all its dies.
    pub units: u32,
    /// Erase blocks of a unit.
    pub unit_blocks: u32,
    /// Pages of an erase block.
    pub block_pages: u32,
    /// The time to read a page from its cells into its die.
    pub page_read: Duration,
    /// The time to write a page from its die into its cells.
    pub page_write: Duration,
    /// The time to erase a block.
    pub block_erase: Duration,
    /// The time of a byte on a package's bus, in picoseconds.
    pub byte_ps: u64,
}

impl FlashSpec {
    /// The capacity of all pages, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.row_pages()) * u64::from(self.unit_blocks) * PAGE_BYTES
    }

    fn all_units(&self) -> u32 {
        self.packages * self.units
    }

    fn row_pages(&self) -> u32 {
        self.all_units() * self.block_pages
    }

    fn page_transfer(&self) -> Duration {
        Duration::from_nanos(self.byte_ps * PAGE_BYTES / 1000)
    }
}

/// The internal work of flash, in addition to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Erased rows, each with one block of every unit.
    pub erased_rows: u64,
    /// Pages that cleaning copied.
    pub copied_pages: u64,
}

/// Consecutive pages of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub row: u32,
    pub page: u32,
    pub pages: u32,
}

#[derive(Clone, Debug, Default)]
struct Row {
    live_pages: u32,
    /// The data written into the row, dead or not.
    holds: Vec<u32>,
}

/// An SSD at work. Each datum has a number.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    spec: FlashSpec,
    bus_free: Vec<Time>,
    unit_free: Vec<Time>,
    rows: Vec<Row>,
    erased: Vec<u32>,
    dead: Vec<u32>,
    open: u32,
    /// The next page of the open row.
    next_page: u32,
    /// The places of each datum; empty for a datum that is not stored here.
    places: Vec<Vec<Piece>>,
    pub counts: FlashCounts,
}

/// Rows that stay erased, reserved for cleaning.
const RESERVED_ROWS: usize = 1;

impl Flash {
    /// An SSD with all rows erased.
    pub fn new(spec: FlashSpec) -> Self {
        assert!(spec.unit_blocks > 2, "there is room for an open row, one in reserve and data");
        let (packages, units) = (spec.packages as usize, spec.all_units() as usize);
        Self {
            spec,
            bus_free: vec![Time::ZERO; packages],
            unit_free: vec![Time::ZERO; units],
            rows: vec![Row::default(); spec.unit_blocks as usize],
            erased: (1..spec.unit_blocks).rev().collect(),
            dead: Vec::new(),
            open: 0,
            next_page: 0,
            places: Vec::new(),
            counts: FlashCounts::default(),
        }
    }

    /// Writes datum `number` with this number of pages; returns the time of its end.
    pub fn write(&mut self, now: Time, number: u32, pages: u32) -> Time {
        let index = number as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Vec::new());
        }
        assert!(self.places[index].is_empty() && pages > 0, "datum {number} is written once");
        let mut left = pages;
        let mut end = now;
        while left > 0 {
            if self.next_page == self.spec.row_pages() {
                self.open_row(now);
            }
            let piece = self.place(number, left);
            left -= piece.pages;
            end = end.max(self.write_pages(now, piece));
        }
        end
    }

    /// Places as much of a datum as fits into the rest of the open row.
    fn place(&mut self, number: u32, pages: u32) -> Piece {
        let pages = pages.min(self.spec.row_pages() - self.next_page);
        assert!(pages > 0, "the open row has room");
        let piece = Piece { row: self.open, page: self.next_page, pages };
        self.next_page += pages;
        let row = &mut self.rows[self.open as usize];
        row.live_pages += pages;
        row.holds.push(number);
        self.places[number as usize].push(piece);
        piece
    }

    fn unit_of(&self, page: u32) -> (usize, usize) {
        let unit = page % self.spec.all_units();
        ((unit % self.spec.packages) as usize, unit as usize)
    }

    fn write_pages(&mut self, now: Time, piece: Piece) -> Time {
        let transfer = self.spec.page_transfer();
        let mut end = now;
        for page in piece.page..piece.page + piece.pages {
            let (package, unit) = self.unit_of(page);
            let begin = now.max(self.bus_free[package]).max(self.unit_free[unit]);
            self.bus_free[package] = begin + transfer;
            self.unit_free[unit] = begin + transfer + self.spec.page_write;
            end = end.max(self.unit_free[unit]);
        }
        end
    }

    /// The places of a datum.
    pub fn pieces(&self, number: u32) -> &[Piece] {
        self.places.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// Reads a datum; returns the time of its end.
    pub fn read(&mut self, now: Time, number: u32) -> Time {
        assert!(!self.pieces(number).is_empty(), "datum {number} is here");
        let pieces = std::mem::take(&mut self.places[number as usize]);
        let end = self.read_pieces(now, &pieces);
        self.places[number as usize] = pieces;
        end
    }

    /// Reads these pages; returns the time of their end.
    pub fn read_pieces(&mut self, now: Time, pieces: &[Piece]) -> Time {
        let transfer = self.spec.page_transfer();
        let mut end = now;
        for piece in pieces {
            for page in piece.page..piece.page + piece.pages {
                let (package, unit) = self.unit_of(page);
                let ready = now.max(self.unit_free[unit]) + self.spec.page_read;
                let sent = ready.max(self.bus_free[package]) + transfer;
                self.bus_free[package] = sent;
                self.unit_free[unit] = sent;
                end = end.max(sent);
            }
        }
        end
    }

    /// Drops a datum that is no longer needed.
    pub fn trim(&mut self, number: u32) {
        for piece in std::mem::take(&mut self.places[number as usize]) {
            self.drop_piece(piece);
        }
    }

    fn drop_piece(&mut self, piece: Piece) {
        let row = &mut self.rows[piece.row as usize];
        assert!(row.live_pages >= piece.pages, "a row loses what it holds");
        row.live_pages -= piece.pages;
        if row.live_pages == 0 && (piece.row != self.open || self.next_page == self.spec.row_pages()) {
            self.dead.push(piece.row);
        }
    }

    /// Opens another row after the open one is full.
    fn open_row(&mut self, now: Time) {
        if self.erased.len() <= RESERVED_ROWS && self.dead.is_empty() {
            return self.clean(now);
        }
        if self.erased.len() > RESERVED_ROWS {
            self.begin_row();
        } else if let Some(row) = self.dead.pop() {
            self.erase(now, row);
            self.begin_row();
        }
    }

    fn begin_row(&mut self) {
        let Some(row) = self.erased.pop() else { unreachable!("a row is kept in reserve") };
        assert!(self.rows[row as usize].live_pages == 0, "an erased row is empty");
        (self.open, self.next_page) = (row, 0);
    }

    fn erase(&mut self, now: Time, row: u32) {
        self.rows[row as usize] = Row::default();
        for free in &mut self.unit_free {
            *free = now.max(*free) + self.spec.block_erase;
        }
        self.counts.erased_rows += 1;
        self.erased.push(row);
    }

    /// Copies the row with the fewest live pages into the reserved row, which becomes the open row.
    fn clean(&mut self, now: Time) {
        let by_live = |row: &u32| self.rows[*row as usize].live_pages;
        let in_use = (0..self.spec.unit_blocks).filter(|row| !self.erased.contains(row));
        let Some(victim) = in_use.min_by_key(by_live) else { unreachable!("there are rows") };
        let live = self.rows[victim as usize].live_pages;
        assert!(live < self.spec.row_pages(), "flash is full of what is needed");
        self.begin_row();
        for number in std::mem::take(&mut self.rows[victim as usize].holds) {
            let pieces = std::mem::take(&mut self.places[number as usize]);
            let (here, elsewhere): (Vec<Piece>, Vec<Piece>) = pieces.into_iter().partition(|at| at.row == victim);
            self.places[number as usize] = elsewhere;
            for piece in here {
                self.place(number, piece.pages);
            }
        }
        let each = live.div_ceil(self.spec.all_units());
        for free in &mut self.unit_free {
            *free = now.max(*free) + (self.spec.page_read + self.spec.page_write) * each;
        }
        self.counts.copied_pages += u64::from(live);
        self.erase(now, victim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    /// Two packages of two dies, four blocks of two pages each: rows of eight pages.
    const SMALL: FlashSpec = FlashSpec {
        packages: 2,
        units: 2,
        unit_blocks: 4,
        block_pages: 2,
        page_read: Duration::from_micros(20),
        page_write: Duration::from_micros(200),
        block_erase: Duration::from_millis(2),
        byte_ps: 25_000,
    };
    /// A page over the bus: 102.4 us.
    const BUS: Duration = Duration::from_nanos(102_400);

    #[test]
    fn packages_work_at_once_and_the_dies_of_one_share_its_bus() {
        let took = |pages| Flash::new(SMALL).write(Time::ZERO, 0, pages).since(Time::ZERO);
        assert_eq!(took(1), BUS + 200 * US);
        assert_eq!(took(2), took(1), "two packages");
        assert_eq!(took(4), BUS * 2 + 200 * US, "the second die of each waits for the bus");
        // The first die again: after its first page.
        assert_eq!(took(5), (BUS + 200 * US) * 2);
        let mut flash = Flash::new(SMALL);
        let written = flash.write(Time::ZERO, 0, 4);
        assert_eq!(flash.read(written, 0).since(written), 20 * US + BUS * 2);
    }

    #[test]
    fn dead_rows_are_erased_when_they_are_written_again() {
        let mut flash = Flash::new(SMALL);
        for number in 0..9 {
            flash.write(Time::ZERO, number, 8);
            flash.trim(number);
        }
        assert_eq!(flash.counts, FlashCounts { erased_rows: 6, copied_pages: 0 });
        let begin = Time::from_secs(1);
        assert_eq!(flash.write(begin, 9, 1).since(begin), 2_000 * US + BUS + 200 * US);
    }

    #[test]
    fn cleaning_copies_what_lives_and_loses_nothing() {
        let mut flash = Flash::new(SMALL);
        for number in 0..12 {
            flash.write(Time::ZERO, number, 2);
        }
        // Three rows are full, the fourth is in reserve. The first keeps one datum of four.
        for number in 0..3 {
            flash.trim(number);
        }
        flash.write(Time::ZERO, 12, 4);
        assert_eq!(flash.counts, FlashCounts { erased_rows: 1, copied_pages: 2 });
        for number in 3..13 {
            let pages: u32 = flash.pieces(number).iter().map(|piece| piece.pages).sum();
            assert_eq!(pages, if number == 12 { 4 } else { 2 }, "{number}");
        }
        let live: u32 = flash.rows.iter().map(|row| row.live_pages).sum();
        assert_eq!(live, 9 * 2 + 4);
    }

    #[test]
    #[should_panic(expected = "flash is full")]
    fn more_than_fits_is_refused() {
        let mut flash = Flash::new(SMALL);
        for number in 0..13 {
            flash.write(Time::ZERO, number, 2);
        }
    }
}
