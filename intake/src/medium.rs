//! The storage below: a directory of files for each drive of the pool, behind two small traits.
//!
//! The code above requires nothing else from a drive, so real files ([`files`]) and files in memory that can crash at
//! any write ([`memory`]) are the same to it. Assumed of both: the data of a successful sync lasts, any part of the
//! writes that were not synced may last, and a name lasts once its directory was synced.

pub mod files;
pub mod memory;
pub mod overlay;

use rustix::io::Errno;
use std::fmt::Debug;
use std::io;

/// The files of one drive.
pub trait Directory: Debug + Send + Sync + 'static {
    /// Its location, for people; empty if it has no name.
    fn place(&self) -> String {
        String::new()
    }

    /// The names of all files.
    ///
    /// # Errors
    /// The errors of the drive.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file.
    ///
    /// # Errors
    /// The errors of the drive, and [`io::ErrorKind::AlreadyExists`].
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// An existing file.
    ///
    /// # Errors
    /// The errors of the drive, and [`io::ErrorKind::NotFound`].
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// An existing file that is only read.
    ///
    /// # Errors
    /// As [`Directory::open`].
    fn open_to_read(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.open(name)
    }

    /// Renames a file; a file with the new name is replaced.
    ///
    /// # Errors
    /// The errors of the drive.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Holders of an open handle can still read it.
    ///
    /// # Errors
    /// The errors of the drive.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// The errors of the drive.
    fn sync(&self) -> io::Result<()>;

    /// True if its power is controlled; otherwise it never sleeps.
    fn can_sleep(&self) -> bool {
        false
    }

    /// Starts the drive, and returns once it can be used. The drive may already be awake.
    ///
    /// # Errors
    /// The errors of the drive, which is then taken out of the rotation.
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the drive.
    ///
    /// # Errors
    /// The errors of the drive; they are logged.
    fn sleep(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file.
pub trait File: Debug + Send + Sync + 'static {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The errors of the drive.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The errors of the drive, and [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// The errors of the drive; any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// The errors of the drive.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes all written data durable.
    ///
    /// # Errors
    /// The errors of the drive. Then the state of the written data is unknown, and a second sync proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Makes synced data be read from the drive from here on, and not from memory. On a medium without this function
    /// reads stay the same, and a verification proves less.
    fn drop_cached(&self) {}
}

/// Bytes of a sector of a drive.
pub(crate) const SECTOR_BYTES: u64 = 4096;

/// If more consecutive sectors than this cannot be read, the drive counts as failed instead of its sectors.
const BAD_SECTORS_MAX: usize = 8;

/// As [`File::read_at`], but a few unreadable sectors are returned as zeros, which match no checksum: so they cost the
/// records in them, like any other damage.
pub(crate) fn read_past_bad_sectors(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    match file.read_at(buffer, offset) {
        Err(error) if is_bad_sector(&error) => {}
        done => return done,
    }
    let (mut at, mut bad_in_a_row) = (0, 0);
    while at < buffer.len() {
        let place = offset + at as u64;
        let end = (at + (SECTOR_BYTES - place % SECTOR_BYTES) as usize).min(buffer.len());
        let sector = &mut buffer[at..end];
        match file.read_at(sector, place) {
            Ok(()) => bad_in_a_row = 0,
            Err(error) if is_bad_sector(&error) && bad_in_a_row < BAD_SECTORS_MAX => {
                tracing::error!(?file, place, %error, "a sector cannot be read");
                sector.fill(0);
                bad_in_a_row += 1;
            }
            Err(error) => return Err(error),
        }
        at = end;
    }
    Ok(())
}

/// True for an error of one place on the drive; the block layer reports ENODATA for it.
fn is_bad_sector(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO))
}

/// True if the drive has no room, as opposed to being broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::memory::World;
    use super::*;

    /// A file of this number of sectors of ones. The `bad` ones cannot be read.
    fn file(sectors: u64, bad: std::ops::Range<u64>) -> Box<dyn File> {
        let world = World::new(1);
        let file = world.directory(0).create("file").unwrap();
        file.write_at(&vec![1; (sectors * SECTOR_BYTES) as usize], 0).unwrap();
        bad.for_each(|sector| world.spoil(0, "file", sector));
        file
    }

    #[test]
    fn bad_sectors_come_as_zeros_and_nothing_else_does() {
        let file = file(6, 2..4);
        for (offset, length) in [(0, 6 * 4096), (100, 4 * 4096), (8000, 300), (8192, 4096), (16_000, 1000)] {
            let mut read = vec![7; length];
            assert!(offset + length as u64 <= 6 * 4096);
            read_past_bad_sectors(file.as_ref(), &mut read, offset).unwrap();
            let expected = (offset..).map(|at| u8::from(!(2 * 4096..4 * 4096).contains(&at)));
            assert!(expected.zip(&read).all(|(expected, read)| expected == *read), "{length} from {offset}");
        }
        let beyond = read_past_bad_sectors(file.as_ref(), &mut [0; 4096], 5 * 4096 + 1);
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_drive_of_which_nothing_can_be_read_fails() {
        let most = BAD_SECTORS_MAX as u64;
        for (bad, is_read) in [(1..1 + most, true), (1..2 + most, false), (0..20, false)] {
            let read = read_past_bad_sectors(file(20, bad.clone()).as_ref(), &mut vec![0; 20 * 4096], 0);
            assert_eq!(read.is_ok(), is_read, "{bad:?}: {read:?}");
        }
    }
}
