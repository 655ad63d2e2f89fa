//! One step of a rack: the time at which an event is applied, and the resulting actions.

use crate::action::Action;
use alloc::vec::Vec;
use model::Time;

/// The current time, and the list that receives actions.
pub(crate) struct Step<'a> {
    pub now: Time,
    pub actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    /// Asks the world for `action`, after the actions before.
    pub fn ask(&mut self, action: Action) {
        self.actions.push(action);
    }
}
