//! Things in places that stay the same while the things exist.
//!
//! Invariant: a free place is reused before a new one is added, so there are as many places as there were things at
//! most at the same time.

/// Things, each in its own place.
#[derive(Clone, Debug)]
pub(crate) struct Places<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    /// Stores a thing; returns its place.
    pub fn put(&mut self, thing: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            (self.things.len() - 1) as u32
        });
        let there = &mut self.things[place as usize];
        assert!(there.is_none(), "a thing takes the place of another");
        *there = Some(thing);
        place
    }

    /// The thing in a place, which must be taken.
    pub fn get(&self, place: u32) -> &T {
        self.things[place as usize].as_ref().expect("a place that is referred to is taken")
    }

    /// The thing in a place, mutable.
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        self.things[place as usize].as_mut().expect("a place that is referred to is taken")
    }

    /// Removes the thing from a place, and returns it.
    pub fn take(&mut self, place: u32) -> T {
        let thing = self.things[place as usize].take().expect("a place that is left was taken");
        self.free.push(place);
        thing
    }

    /// True if no place is taken.
    pub fn is_empty(&self) -> bool {
        self.things.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_left_is_taken_again() {
        let mut places = Places::default();
        let (first, second) = (places.put('a'), places.put('b'));
        assert_eq!((*places.get(first), places.take(second)), ('a', 'b'));
        assert_eq!((places.put('c'), places.put('d')), (second, second + 1));
        *places.get_mut(first) = 'e';
        assert_eq!([first, second, second + 1].map(|place| places.take(place)), ['e', 'c', 'd']);
        assert!(places.is_empty());
    }
}
