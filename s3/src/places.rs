//! A limited number of places, and shares of them: for all unsigned requests, for each user, for each unknown address.
//!
//! Memory: an entry for each requester that has a place.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// The requester that a request counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    /// The user who signed it.
    User(String),
    /// An unsigned sender at this address.
    Peer(IpAddr),
}

/// The number of places, and the shares of requesters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// All places.
    pub all: usize,
    /// Of those, the most for one user.
    pub user: usize,
    /// Of those, the most for unsigned requests from one address.
    pub peer: usize,
    /// Of those, the most for all unsigned requests.
    pub unsigned: usize,
}

impl Shares {
    /// The shares of `all` places in the ratio of these.
    pub fn scaled(self, all: usize) -> Self {
        let part = |share: usize| (share.min(self.all) * all).div_ceil(self.all.max(1)).max(1);
        Self { all, user: part(self.user), peer: part(self.peer), unsigned: part(self.unsigned) }
    }
}

/// The reason that no place is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// All places are taken.
    All,
    /// The requester has its whole share.
    OfRequester,
    /// Unsigned requests have their whole share.
    Unsigned,
}

/// The taken places.
#[derive(Debug, Default)]
pub(crate) struct Places {
    all: usize,
    unsigned: usize,
    by_requester: HashMap<Requester, usize>,
}

impl Places {
    /// The number of taken places.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Of those, the places of unsigned requests.
    pub fn unsigned(&self) -> usize {
        self.unsigned
    }

    /// Takes a place for `requester`.
    ///
    /// # Errors
    /// [`Excess`] if no place is free within `shares`; then none is taken.
    pub fn take(&mut self, requester: &Requester, shares: &Shares) -> Result<(), Excess> {
        let (is_unsigned, most) = match requester {
            Requester::User(_) => (false, shares.user),
            Requester::Peer(_) => (true, shares.peer),
        };
        if self.all >= shares.all {
            return Err(Excess::All);
        } else if self.by_requester.get(requester).is_some_and(|places| *places >= most) {
            return Err(Excess::OfRequester);
        } else if is_unsigned && self.unsigned >= shares.unsigned {
            return Err(Excess::Unsigned);
        }
        self.all += 1;
        self.unsigned += usize::from(is_unsigned);
        let places = self.by_requester.entry(requester.clone()).or_default();
        *places += 1;
        assert!(self.all <= shares.all && *places <= most, "a place is taken within its shares");
        Ok(())
    }

    /// Releases a place of `requester`.
    pub fn give_back(&mut self, requester: &Requester) {
        assert!(self.all > 0, "a place that is given back was taken");
        self.all -= 1;
        self.unsigned -= usize::from(matches!(requester, Requester::Peer(_)));
        uncount(&mut self.by_requester, requester);
    }
}

/// Subtracts one from the count of `of`, and removes a count of zero.
pub(crate) fn uncount<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    let count = counts.get_mut(of).expect("what is counted less was counted before");
    *count -= 1;
    if *count == 0 {
        counts.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_their_ratio() {
        let shares = Shares { all: 256, user: 192, peer: 64, unsigned: 128 };
        let scaled = Shares { all: 4096, user: 3072, peer: 1024, unsigned: 2048 };
        assert_eq!(shares.scaled(4096), scaled);
        assert_eq!(shares.scaled(1), Shares { all: 1, user: 1, peer: 1, unsigned: 1 });
    }
}
