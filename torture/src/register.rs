//! A register that clients write and read at once, and the values that may be seen in it.
//!
//! A write happens at one moment between its start and its end, if it happens at all; an unanswered write may happen
//! until the life of the server ends. So a value cannot be seen any more if another write surely happened and began
//! after the value's own write had ended. And a look that sees a value proves that any other value whose write had
//! ended before the look began has been replaced. The register never excludes a value that may be there, in any order
//! of the writes.

/// A moment, counted in starts and ends.
pub(crate) type Moment = u64;

/// A write whose value may be there.
#[derive(Clone, Debug)]
struct Candidate<T> {
    number: u64,
    value: T,
    begun: Moment,
    /// The write happened before this, if it did; `None` while it is under way.
    ended: Option<Moment>,
    /// The write surely happened.
    sure: bool,
    /// The value that it replaced, and a moment: any write of another value that began after that moment came after it.
    replaced: Option<(T, Moment)>,
}

/// A register.
#[derive(Clone, Debug)]
pub(crate) struct Register<T> {
    candidates: Vec<Candidate<T>>,
    /// Every write that ever began, for looks that are under way.
    begun: Vec<(Moment, T)>,
    /// Every write that was acknowledged.
    acknowledged: Vec<(Moment, T)>,
    moment: Moment,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteId(u64);

/// A look that is under way: the writes whose values might be there when it began.
#[derive(Clone, Debug)]
pub(crate) struct Look<T> {
    at: Moment,
    writes: Vec<(u64, T)>,
}

impl<T: Clone + PartialEq> Register<T> {
    /// A register that holds `value`.
    pub(crate) fn new(value: T) -> Self {
        let first = Candidate { number: 0, value: value.clone(), begun: 0, ended: Some(0), sure: true, replaced: None };
        Self { candidates: vec![first], begun: vec![(0, value)], acknowledged: Vec::new(), moment: 0 }
    }

    fn next(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// A write of `value` begins.
    pub(crate) fn begin(&mut self, value: T) -> WriteId {
        let at = self.next();
        self.begun.push((at, value.clone()));
        self.candidates.push(Candidate { number: at, value, begun: at, ended: None, sure: false, replaced: None });
        WriteId(at)
    }

    /// The write was acknowledged.
    pub(crate) fn done(&mut self, write: WriteId) {
        let at = self.next();
        if let Some(found) = self.candidates.iter_mut().find(|found| found.number == write.0) {
            found.ended = Some(found.ended.map_or(at, |ended| ended.min(at)));
            found.sure = true;
            self.acknowledged.push((at, found.value.clone()));
        }
        self.prune();
    }

    /// The write was acknowledged, and it replaced `old`, which was seen before it began. So every write that began
    /// while `old` was there came after it, except another write of `old`.
    pub(crate) fn done_in_place_of(&mut self, write: WriteId, old: T) {
        let writes = self.begun.iter().filter(|(_, value)| *value == old).count();
        let acknowledged = self.acknowledged.iter().find(|(_, value)| *value == old).map(|(at, _)| *at);
        let since = acknowledged.filter(|_| writes == 1).unwrap_or(write.0);
        if let Some(found) = self.candidates.iter_mut().find(|found| found.number == write.0) {
            found.replaced = Some((old, since));
        }
        self.done(write);
    }

    /// Sets the values that are placeholders by `is_it` to `value`, which is now known.
    pub(crate) fn adopt(&mut self, is_it: impl Fn(&T) -> bool, value: &T) {
        if self.candidates.iter().any(|found| found.value == *value) {
            return;
        }
        let found = self.candidates.iter_mut().map(|found| &mut found.value);
        let begun = self.begun.iter_mut().map(|(_, begun)| begun);
        for unknown in found.chain(begun).filter(|known| is_it(known)) {
            *unknown = value.clone();
        }
    }

    /// The write surely did not happen.
    pub(crate) fn refused(&mut self, write: WriteId) {
        self.next();
        self.candidates.retain(|found| found.number != write.0);
        self.begun.retain(|(at, _)| *at != write.0);
    }

    /// The life of the server has ended: no write that is under way can happen any more.
    pub(crate) fn life_ended(&mut self) {
        let at = self.next();
        for found in &mut self.candidates {
            found.ended = found.ended.or(Some(at));
        }
        self.begun.retain(|(_, value)| self.candidates.iter().any(|found| found.value == *value));
    }

    fn prune(&mut self) {
        let sure = self.candidates.iter().filter(|found| found.sure).map(|found| (found.begun, found.value.clone()));
        let sure: Vec<(Moment, T)> = sure.collect();
        self.candidates.retain(|found| {
            let is_over = found.ended.is_some_and(|ended| sure.iter().any(|(begun, _)| *begun > ended));
            let came_after = |(old, since): &(T, Moment)| {
                sure.iter().any(|(begun, value)| *begun > *since && *begun != found.begun && value != old)
            };
            !is_over && !found.replaced.as_ref().is_some_and(came_after)
        });
    }

    /// True if a write of `value` ever began.
    pub(crate) fn ever(&self, value: &T) -> bool {
        self.begun.iter().any(|(_, begun)| begun == value) || self.acknowledged.iter().any(|(_, done)| done == value)
    }

    /// A look begins.
    pub(crate) fn look(&mut self) -> Look<T> {
        let at = self.next();
        Look { at, writes: self.candidates.iter().map(|found| (found.number, found.value.clone())).collect() }
    }

    /// The look saw a value, selected by `is_it`. False if that is impossible.
    pub(crate) fn saw(&mut self, look: &Look<T>, is_it: impl Fn(&T) -> bool) -> bool {
        let later = self.begun.iter().filter(|(at, _)| *at > look.at);
        let possible = look.writes.iter().chain(later).filter(|(_, value)| is_it(value));
        let possible: Vec<u64> = possible.map(|(number, _)| *number).collect();
        if possible.is_empty() {
            return false;
        }
        let now = self.next();
        // A value that was written before the look began and was not seen had been replaced by then.
        self.candidates.retain(|found| is_it(&found.value) || found.ended.is_none_or(|ended| ended > look.at));
        // If several writes of this value were possible, any of them may have been seen; a single one surely was.
        if let [only] = possible[..]
            && let Some(only) = self.candidates.iter_mut().find(|found| found.number == only)
        {
            only.sure = true;
            only.ended = Some(only.ended.map_or(now, |ended| ended.min(now)));
        }
        self.prune();
        true
    }

    /// The values that may be in it now.
    pub(crate) fn values(&self) -> Vec<T> {
        self.candidates.iter().map(|found| found.value.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(register: &mut Register<u64>, value: u64) -> bool {
        let look = register.look();
        register.saw(&look, |found| *found == value)
    }

    #[test]
    fn what_was_acknowledged_last_is_there_and_nothing_else() {
        let mut register = Register::new(0);
        let write = register.begin(1);
        register.done(write);
        assert!(sees(&mut register, 1) && !sees(&mut register, 0));
    }

    #[test]
    fn of_two_writes_at_once_either_may_be_the_last_until_one_is_seen() {
        let mut register = Register::new(0);
        let (one, two) = (register.begin(1), register.begin(2));
        register.done(one);
        register.done(two);
        assert_eq!(register.values(), [1, 2]);
        assert!(sees(&mut register, 1) && !sees(&mut register, 2));
    }

    #[test]
    fn a_write_without_an_answer_may_happen_until_the_life_ends() {
        let mut register = Register::new(0);
        register.begin(1);
        assert!(sees(&mut register, 0) && sees(&mut register, 1) && !sees(&mut register, 0));
        let write = register.begin(2);
        register.life_ended();
        assert!(sees(&mut register, 1) && !sees(&mut register, 2), "it did not happen, and cannot any more");
        register.refused(write);
        assert_eq!(register.values(), [1]);
    }

    #[test]
    fn a_look_may_see_what_is_replaced_meanwhile() {
        let mut register = Register::new(0);
        let look = register.look();
        let write = register.begin(1);
        register.done(write);
        assert!(register.saw(&look, |found| *found == 0));
        assert!(!sees(&mut register, 0));
    }

    #[test]
    fn a_look_that_may_have_seen_what_is_gone_says_nothing_of_a_write_that_is_under_way() {
        let mut register = Register::new(7);
        let (look, delete) = (register.look(), register.begin(0));
        assert!(sees(&mut register, 0));
        let later = register.look();
        let put = register.begin(8);
        assert!(register.saw(&look, |found| *found != 0), "it saw 7");
        register.done(delete);
        assert!(sees(&mut register, 0), "8 may not have been put yet");
        register.done(put);
        assert!(register.saw(&later, |found| *found == 0) && !sees(&mut register, 0));
        // The same where a value is written once more.
        let look = register.look();
        let (one, again) = (register.begin(1), register.begin(8));
        register.done(one);
        assert!(register.saw(&look, |found| *found == 8), "the one before");
        assert!(sees(&mut register, 1), "the second 8 may not have been put yet");
        register.done(again);
    }

    #[test]
    fn what_replaced_a_value_that_was_there_is_not_the_last() {
        let mut register = Register::new(0);
        let (one, two) = (register.begin(1), register.begin(2));
        register.done(two);
        register.done_in_place_of(one, 0);
        assert_eq!(register.values(), [2]);
        let (three, two) = (register.begin(3), register.begin(2));
        register.done_in_place_of(three, 2);
        register.done(two);
        assert_eq!(register.values(), [3, 2], "it may have been there before");
    }

    #[test]
    fn what_was_begun_once_a_value_was_there_comes_after_what_replaced_it() {
        let mut register = Register::new(0);
        let first = register.begin(1);
        register.done(first);
        let (put, delete) = (register.begin(2), register.begin(0));
        register.done(put);
        register.done_in_place_of(delete, 1);
        assert_eq!(register.values(), [2]);
    }

    #[test]
    fn a_refused_write_is_never_seen() {
        let mut register = Register::new(0);
        let write = register.begin(1);
        register.refused(write);
        assert!(!sees(&mut register, 1) && sees(&mut register, 0));
    }
}
