//! Things by places that stay the same while they are there.
//!
//! Invariant: a place that was left is taken again before there is a new one, so there are as many as there were ever
//! things at once.

/// Things, each at a place of its own.
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
    /// Puts something somewhere; answers with its place.
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

    /// What is at a place, which is taken.
    pub fn get(&self, place: u32) -> &T {
        self.things[place as usize].as_ref().expect("a place that is referred to is taken")
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        self.things[place as usize].as_mut().expect("a place that is referred to is taken")
    }

    /// Takes out what is at a place.
    pub fn take(&mut self, place: u32) -> T {
        let thing = self.things[place as usize].take().expect("a place that is left was taken");
        self.free.push(place);
        thing
    }

    /// Whether no place is taken.
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
