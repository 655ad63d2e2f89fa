//! Records about the catalog as a whole: its rack, its clock, its runs, and values by name.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{ClockAnchor, encode};
use crate::seal::Sealed;
use crate::store::{Batch, Check, Write};
use lineage::PastRun;

impl Catalog {
    /// The value under `name`, if it exists. A damaged one is quarantined; unless it differs in one bit, it counts as
    /// none, and its owner writes it again.
    pub async fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, CatalogError> {
        let at = user_meta(name);
        let Some(value) = self.store.get(&at).await? else { return Ok(None) };
        let body = |value: &Sealed| value.open(&at).map(|(body, _)| body.to_vec());
        match body(&value) {
            Ok(body) => Ok(Some(body)),
            Err(error) => {
                self.quarantine(&at, &error.to_string());
                Ok(value.with_a_bit_flipped_back(&at).and_then(|whole| body(&whole).ok()))
            }
        }
    }

    /// Stores `value` under `name`.
    pub async fn meta_put(&self, name: &str, value: Vec<u8>) -> Result<(), CatalogError> {
        self.put(user_meta(name), value).await
    }

    /// The UUID of the rack, once it was set. A damaged record counts as none: every label and the data directory have
    /// the UUID, too.
    pub async fn rack_uuid(&self) -> Result<Option<[u8; 16]>, CatalogError> {
        self.look_up_one(&key::meta("rack-uuid")).await
    }

    /// Sets the UUID of the rack permanently.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if it has another one already.
    pub async fn set_rack_uuid(&self, uuid: [u8; 16]) -> Result<(), CatalogError> {
        let at = key::meta("rack-uuid");
        let is_readable = self.rack_uuid().await?.is_some();
        let checks = vec![match self.read_to_replace::<[u8; 16]>(&at).await? {
            // With one wrong bit it still shows whose it is.
            Some((known, damaged)) if !is_readable && known.is_none_or(|known| known == uuid) => {
                Check::Is(at.clone(), damaged)
            }
            _ => Check::Absent(at.clone()),
        }];
        let set = self.apply(Batch::new(checks, vec![Write::Put(at, encode(&uuid))])).await?;
        if set || self.rack_uuid().await? == Some(uuid) { Ok(()) } else { Err(CatalogError::PreconditionFailed) }
    }

    /// The origin of modelled time, once it was set. A damaged record counts as none.
    pub async fn clock_anchor(&self) -> Result<Option<ClockAnchor>, CatalogError> {
        self.look_up_one(&key::meta("clock-anchor")).await
    }

    /// Sets the origin of modelled time.
    pub async fn set_clock_anchor(&self, anchor: ClockAnchor) -> Result<(), CatalogError> {
        self.put(key::meta("clock-anchor"), encode(&anchor)).await
    }

    /// The runs of the server that this catalog remembers, each by its random number, the latest last; `None` if their
    /// record is damaged.
    pub async fn runs(&self) -> Result<Option<Vec<u64>>, CatalogError> {
        let found = self.read_to_replace::<Vec<u64>>(&key::meta("runs")).await?;
        Ok(found.map_or_else(|| Some(Vec::new()), |(runs, _)| runs))
    }

    /// Records these runs, and no others.
    pub async fn set_runs(&self, runs: &[u64]) -> Result<(), CatalogError> {
        self.put(key::meta("runs"), encode(&runs)).await
    }

    /// How the runs of the server began that this catalog remembers, the latest last. Earlier versions did not record
    /// it. A damaged record counts as none.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn run_starts(&self) -> Result<Vec<PastRun>, CatalogError> {
        let found: Option<Vec<(u64, u64, u64)>> = self.look_up_one(&key::meta("run-starts")).await?;
        let past = |(run, sequence, blobs_end)| PastRun { run, sequence, blobs_end };
        Ok(found.unwrap_or_default().into_iter().map(past).collect())
    }

    /// Records how these runs began, and no others.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn set_run_starts(&self, starts: &[PastRun]) -> Result<(), CatalogError> {
        let starts: Vec<(u64, u64, u64)> =
            starts.iter().map(|past| (past.run, past.sequence, past.blobs_end)).collect();
        self.put(key::meta("run-starts"), encode(&starts)).await
    }

    /// The run marks of the workshop for which this catalog was remade: the workshop belongs to it although it does not
    /// know these runs. A damaged record counts as none.
    pub async fn adopted_marks(&self) -> Result<Vec<u64>, CatalogError> {
        Ok(self.look_up_one(&key::meta("adopted-marks")).await?.unwrap_or_default())
    }

    /// Records that the workshop with these run marks belongs to this catalog.
    pub async fn set_adopted_marks(&self, runs: &[u64]) -> Result<(), CatalogError> {
        self.put(key::meta("adopted-marks"), encode(&runs)).await
    }

    /// From now on, no data on a drive counts as garbage because this catalog does not know it: the catalog was
    /// recovered, or was older than its rack, and may lack records of that data.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn keep_unknown(&self) -> Result<(), CatalogError> {
        self.put(key::meta("keeps-unknown"), encode(&true)).await
    }

    /// True if data that the catalog does not know may still be needed. A damaged record counts as true.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn keeps_unknown(&self) -> Result<bool, CatalogError> {
        Ok(self.read_to_replace::<bool>(&key::meta("keeps-unknown")).await?.is_some())
    }

    /// The reason why this catalog was found to be older than its data directory, if it was.
    pub async fn found_older(&self) -> Result<Option<String>, CatalogError> {
        self.look_up_one(&key::meta("found-older")).await
    }

    /// Records the reason why this catalog is older than its data directory, or that it is valid nevertheless.
    pub async fn set_found_older(&self, why: Option<&str>) -> Result<(), CatalogError> {
        let at = key::meta("found-older");
        let write = why.map_or_else(|| Write::Delete(at.clone()), |why| Write::Put(at.clone(), encode(&why)));
        self.write(vec![write]).await
    }
}

/// A prefix separates the names of callers from those of the catalog.
fn user_meta(name: &str) -> Vec<u8> {
    key::meta(&format!("user/{name}"))
}
