//! Hash tables by number, for what is looked up several times with every event.
//!
//! Entries lie by their numbers, which makes a look-up several times cheaper than in a tree, and moves no other entry
//! when one comes or goes. Numbers are given out one after the other, so neighbours in number lie side by side: what
//! comes and goes at once, as most operations of a rack that is asked for too much, finds its place in the cache.
//!
//! Invariant: nothing shows in which order the entries lie. There is no way to walk them; numbers are given out sorted.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hash, Hasher};
use core::ops::Index;
use hashbrown::HashMap;
use model::OpId;

/// Things by their numbers. See the head of this file.
#[derive(Clone, Debug)]
pub struct Numbered<K, V>(HashMap<K, V, BuildHasherDefault<ByNumber>>);

/// The hash of a number is the number itself, but for the seven highest bits, by which the table tells entries apart
/// that it finds near one place: these depend on all of it.
#[derive(Clone, Copy, Debug, Default)]
struct ByNumber(u64);

/// The bits that the table finds a place by; it compares the others.
const PLACE_BITS: u32 = 57;

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        let place = self.0 & ((1 << PLACE_BITS) - 1);
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> PLACE_BITS << PLACE_BITS;
        mixed | place
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a number is written as one");
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Things by the number of an operation.
pub type OpMap<V> = Numbered<OpId, V>;

/// Things by the numbers of operations that are not over. The newest one is kept apart: of what a rack is asked for too
/// much, most is refused at once, and so never gets into the table, where it would drive others out of the cache.
#[derive(Clone, Debug)]
pub struct OpenOps<V> {
    newest: Option<(OpId, V)>,
    others: OpMap<V>,
}

impl<V> Default for OpenOps<V> {
    fn default() -> Self {
        Self { newest: None, others: OpMap::default() }
    }
}

impl<V> OpenOps<V> {
    /// The thing of this number.
    pub fn get(&self, op: OpId) -> Option<&V> {
        match &self.newest {
            Some((newest, thing)) if *newest == op => Some(thing),
            _ => self.others.get(&op),
        }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, op: OpId) -> Option<&mut V> {
        match &mut self.newest {
            Some((newest, thing)) if *newest == op => Some(thing),
            _ => self.others.get_mut(&op),
        }
    }

    /// Puts something there, and takes out what was there before.
    pub fn insert(&mut self, op: OpId, thing: V) -> Option<V> {
        let before = self.remove(op);
        if let Some((earlier, thing)) = self.newest.replace((op, thing)) {
            self.others.insert(earlier, thing);
        }
        before
    }

    /// Takes it out.
    pub fn remove(&mut self, op: OpId) -> Option<V> {
        let newest = self.newest.take_if(|(newest, _)| *newest == op);
        newest.map(|(_, thing)| thing).or_else(|| self.others.remove(&op))
    }

    /// Whether there is something of this number.
    pub fn contains(&self, op: OpId) -> bool {
        self.get(op).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.others.len() + usize::from(self.newest.is_some())
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, V> Default for Numbered<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Copy + Ord + Hash, V> Numbered<K, V> {
    /// The thing of this number.
    pub fn get(&self, number: &K) -> Option<&V> {
        self.0.get(number)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: &K) -> Option<&mut V> {
        self.0.get_mut(number)
    }

    /// The same; made by `fresh` if there is nothing yet.
    pub fn get_or_insert_with(&mut self, number: K, fresh: impl FnOnce() -> V) -> &mut V {
        self.0.entry(number).or_insert_with(fresh)
    }

    /// Puts something there, and takes out what was there before.
    pub fn insert(&mut self, number: K, thing: V) -> Option<V> {
        self.0.insert(number, thing)
    }

    /// Takes it out.
    pub fn remove(&mut self, number: &K) -> Option<V> {
        self.0.remove(number)
    }

    /// Whether there is something of this number.
    pub fn contains_key(&self, number: &K) -> bool {
        self.0.contains_key(number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them is like this.
    pub fn any(&self, is: impl FnMut(&V) -> bool) -> bool {
        self.0.values().any(is)
    }

    /// Changes each for itself, in no particular order.
    pub fn change_each(&mut self, change: impl FnMut(&mut V)) {
        self.0.values_mut().for_each(change);
    }

    /// The number whose thing comes first by `rank`, of those that have one. No two ranks may be equal, so that the
    /// answer does not depend on how the entries lie.
    pub fn first_by<R: Ord>(&self, mut rank: impl FnMut(&K, &V) -> Option<R>) -> Option<K> {
        let ranked = self.0.iter().filter_map(|(number, thing)| Some((rank(number, thing)?, *number)));
        let first = ranked.min_by(|a, b| {
            assert!(a.0 != b.0, "no two ranks are equal");
            a.0.cmp(&b.0)
        });
        first.map(|(_, number)| number)
    }

    /// All numbers, ascending.
    pub fn numbers(&self) -> Vec<K> {
        let mut numbers: Vec<K> = self.0.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}

impl<K: Copy + Ord + Hash, V> Index<&K> for Numbered<K, V> {
    type Output = V;

    fn index(&self, number: &K) -> &V {
        &self.0[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out_ascending_however_they_went_in() {
        let mut map = OpMap::default();
        for number in [7, 3, 1 << 63, 5] {
            assert_eq!(map.insert(OpId(number), number), None);
        }
        assert_eq!(map.remove(&OpId(3)), Some(3));
        assert_eq!(map.numbers(), [OpId(5), OpId(7), OpId(1 << 63)]);
        assert!(map.any(|number| *number == 7) && !map.any(|number| *number == 3));
        assert_eq!(map.first_by(|_, number| Some(*number)), Some(OpId(5)));
        assert_eq!(map.first_by(|_, number| (*number > 5).then_some(*number)), Some(OpId(7)));
        assert_eq!(map.first_by(|_, _| None::<u64>), None);
    }

    #[test]
    fn the_newest_operation_is_found_like_any_other() {
        let mut open = OpenOps::default();
        for number in [1, 2, 3] {
            assert_eq!(open.insert(OpId(number), number), None);
        }
        assert_eq!((open.get(OpId(3)), open.get(OpId(1)), open.get(OpId(4))), (Some(&3), Some(&1), None));
        assert_eq!((open.insert(OpId(3), 4), open.insert(OpId(1), 5), open.len()), (Some(3), Some(1), 3));
        assert_eq!(open.get_mut(OpId(1)).map(|thing| core::mem::replace(thing, 6)), Some(5));
        assert_eq!([3, 1, 1, 2].map(|number| open.remove(OpId(number))), [Some(4), Some(6), None, Some(2)]);
        assert!(open.is_empty() && !open.contains(OpId(2)));
    }
}
