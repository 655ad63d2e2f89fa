//! Hash tables by number, for entries that are looked up several times with every event.
//!
//! Entries are placed by their numbers. That makes a look-up several times cheaper than in a tree, and an insertion or
//! removal moves no other entry. Numbers are assigned consecutively, so neighbours in number are neighbours in memory:
//! entries that come and go at once, like most operations of an overloaded rack, find their place in the cache.
//!
//! The data of thousands of waiting operations is stored apart from the table, contiguously, in places that are reused,
//! the last freed one first ([`OpMap`]). So a new operation takes a place that is still in the cache, and operations
//! that wait for minutes are stored close together.
//!
//! Invariant: the order in which entries are stored is never visible. They cannot be iterated; numbers are returned
//! sorted.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hash, Hasher};
use core::ops::Index;
use hashbrown::{HashMap, HashTable};
use model::OpId;

/// Values by number. See the head of this file.
#[derive(Clone, Debug)]
pub struct Numbered<K, V>(HashMap<K, V, BuildHasherDefault<ByNumber>>);

/// The hash of a number is the number itself, except for the seven highest bits, which depend on the whole number: by
/// these the table distinguishes the entries that it finds near one place.
#[derive(Clone, Copy, Debug, Default)]
struct ByNumber(u64);

/// The bits by which the table finds a place; it compares the others.
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

impl ByNumber {
    fn of(op: OpId) -> u64 {
        Self(op.0).finish()
    }
}

/// Finds places by the numbers of operations, which are stored at the places themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacesByOp(HashTable<u32>);

impl PlacesByOp {
    /// The place of `op`. `number_at` returns the operation at a place.
    pub fn get(&self, op: OpId, number_at: impl Fn(u32) -> OpId) -> Option<u32> {
        self.0.find(ByNumber::of(op), |place| number_at(*place) == op).copied()
    }

    /// Stores `place` as the place of `op`, which has none yet.
    pub fn insert(&mut self, op: OpId, place: u32, number_at: impl Fn(u32) -> OpId) {
        self.0.insert_unique(ByNumber::of(op), place, |place| ByNumber::of(number_at(*place)));
    }

    /// Forgets the place of `op`.
    pub fn remove(&mut self, op: OpId, number_at: impl Fn(u32) -> OpId) -> Option<u32> {
        let found = self.0.find_entry(ByNumber::of(op), |place| number_at(*place) == op);
        Some(found.ok()?.remove().0)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Values by the number of an operation. See the head of this file.
#[derive(Clone, Debug)]
pub struct OpMap<V> {
    places: PlacesByOp,
    /// Has as many entries as were ever used at once. A freed entry keeps its operation's number.
    things: Vec<(OpId, Option<V>)>,
    free: Vec<u32>,
}

impl<V> Default for OpMap<V> {
    fn default() -> Self {
        Self { places: PlacesByOp::default(), things: Vec::new(), free: Vec::new() }
    }
}

impl<V> OpMap<V> {
    fn place(&self, op: OpId) -> Option<usize> {
        Some(self.places.get(op, |place| self.things[place as usize].0)? as usize)
    }

    /// The value of `op`.
    pub fn get(&self, op: OpId) -> Option<&V> {
        self.things[self.place(op)?].1.as_ref()
    }

    /// The value of `op`, mutable.
    pub fn get_mut(&mut self, op: OpId) -> Option<&mut V> {
        let place = self.place(op)?;
        self.things[place].1.as_mut()
    }

    /// Stores the value of `op` and returns the previous one.
    pub fn insert(&mut self, op: OpId, thing: V) -> Option<V> {
        if let Some(known) = self.get_mut(op) {
            return Some(core::mem::replace(known, thing));
        }
        let place = if let Some(place) = self.free.pop() {
            self.things[place as usize] = (op, Some(thing));
            place
        } else {
            self.things.push((op, Some(thing)));
            u32::try_from(self.things.len() - 1).expect("operations that are open at once are counted by a u32")
        };
        let things = &self.things;
        self.places.insert(op, place, |place| things[place as usize].0);
        assert!(self.places.len() + self.free.len() == self.things.len(), "a place is used or free");
        None
    }

    /// Removes and returns the value of `op`.
    pub fn remove(&mut self, op: OpId) -> Option<V> {
        let things = &self.things;
        let place = self.places.remove(op, |place| things[place as usize].0)?;
        self.free.push(place);
        let thing = self.things[place as usize].1.take();
        assert!(thing.is_some(), "{op} lies where it was put");
        thing
    }

    /// True if `op` has a value.
    pub fn contains(&self, op: OpId) -> bool {
        self.place(op).is_some()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if `is` holds for any value.
    pub fn any(&self, is: impl FnMut(&V) -> bool) -> bool {
        self.things.iter().filter_map(|(_, thing)| thing.as_ref()).any(is)
    }

    /// Changes each value by itself, in no particular order.
    pub fn change_each(&mut self, change: impl FnMut(&mut V)) {
        self.things.iter_mut().filter_map(|(_, thing)| thing.as_mut()).for_each(change);
    }

    /// All numbers, ascending.
    pub fn numbers(&self) -> Vec<OpId> {
        let open = self.things.iter().filter(|(_, thing)| thing.is_some());
        let mut numbers: Vec<OpId> = open.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Values by the numbers of open operations. The newest one is stored apart: an overloaded rack refuses most requests
/// at once, so these never get into the table, where they would evict others from the cache.
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
    /// The value of `op`.
    pub fn get(&self, op: OpId) -> Option<&V> {
        match &self.newest {
            Some((newest, thing)) if *newest == op => Some(thing),
            _ => self.others.get(op),
        }
    }

    /// The value of `op`, mutable.
    pub fn get_mut(&mut self, op: OpId) -> Option<&mut V> {
        match &mut self.newest {
            Some((newest, thing)) if *newest == op => Some(thing),
            _ => self.others.get_mut(op),
        }
    }

    /// Stores the value of `op` and returns the previous one.
    pub fn insert(&mut self, op: OpId, thing: V) -> Option<V> {
        let before = self.remove(op);
        if let Some((earlier, thing)) = self.newest.replace((op, thing)) {
            self.others.insert(earlier, thing);
        }
        before
    }

    /// Removes and returns the value of `op`.
    pub fn remove(&mut self, op: OpId) -> Option<V> {
        let newest = self.newest.take_if(|(newest, _)| *newest == op);
        newest.map(|(_, thing)| thing).or_else(|| self.others.remove(op))
    }

    /// True if `op` has a value.
    pub fn contains(&self, op: OpId) -> bool {
        self.get(op).is_some()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.others.len() + usize::from(self.newest.is_some())
    }

    /// True if there are no values.
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
    /// The value of `number`.
    pub fn get(&self, number: &K) -> Option<&V> {
        self.0.get(number)
    }

    /// The value of `number`, mutable.
    pub fn get_mut(&mut self, number: &K) -> Option<&mut V> {
        self.0.get_mut(number)
    }

    /// The value of `number`, mutable; made by `fresh` if there is none yet.
    pub fn get_or_insert_with(&mut self, number: K, fresh: impl FnOnce() -> V) -> &mut V {
        self.0.entry(number).or_insert_with(fresh)
    }

    /// Removes and returns the value of `number`.
    pub fn remove(&mut self, number: &K) -> Option<V> {
        self.0.remove(number)
    }

    /// The number whose value comes first by `rank`, among those that have a rank. No two ranks may be equal, so that
    /// the answer does not depend on the order in which entries are stored.
    pub fn first_by<R: Ord>(&self, mut rank: impl FnMut(&K, &V) -> Option<R>) -> Option<K> {
        let ranked = self.0.iter().filter_map(|(number, thing)| Some((rank(number, thing)?, *number)));
        let first = ranked.min_by(|a, b| {
            assert!(a.0 != b.0, "no two ranks are equal");
            a.0.cmp(&b.0)
        });
        first.map(|(_, number)| number)
    }
}

impl<V> Index<OpId> for OpMap<V> {
    type Output = V;

    fn index(&self, op: OpId) -> &V {
        self.get(op).expect("a thing is asked for by a number that it has")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, Rng};
    use std::collections::BTreeMap;

    #[test]
    fn numbers_come_out_ascending_however_they_went_in() {
        let mut map = OpMap::default();
        for number in [7, 3, 1 << 63, 5] {
            assert_eq!(map.insert(OpId(number), number), None);
        }
        assert_eq!(map.remove(OpId(3)), Some(3));
        assert_eq!(map.numbers(), [OpId(5), OpId(7), OpId(1 << 63)]);
        assert!(map.any(|number| *number == 7) && !map.any(|number| *number == 3));
    }

    #[test]
    fn what_waits_is_found_as_in_a_tree_and_places_are_used_again() {
        let (mut map, mut tree, mut rng) = (OpMap::default(), BTreeMap::new(), Rng::new(1));
        let mut most = 0;
        for number in 0..20_000_u64 {
            let op = OpId(rng.below(300) << (rng.below(2) * 60));
            if rng.below(2) == 0 {
                assert_eq!(map.insert(op, number), tree.insert(op, number));
            } else {
                assert_eq!(map.remove(op), tree.remove(&op));
            }
            most = most.max(tree.len());
            assert_eq!((map.len(), map.get(op), map.contains(op)), (tree.len(), tree.get(&op), tree.contains_key(&op)));
        }
        map.change_each(|thing| *thing += 1);
        assert!(map.numbers().into_iter().eq(tree.keys().copied()) && !map.is_empty());
        assert!(tree.iter().all(|(op, number)| map[*op] == number + 1));
        assert_eq!(map.things.len(), most);
    }

    #[test]
    fn the_first_by_rank_does_not_depend_on_where_it_lies() {
        let mut groups = Numbered::default();
        for number in [7, 5, 9] {
            assert_eq!(*groups.get_or_insert_with(GroupId(number), || number), number);
        }
        assert_eq!(groups.first_by(|_, number| Some(*number)), Some(GroupId(5)));
        assert_eq!(groups.first_by(|_, number| (*number > 5).then_some(*number)), Some(GroupId(7)));
        assert_eq!(groups.first_by(|_, _| None::<u64>), None);
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
