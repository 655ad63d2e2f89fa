//! One step of a rack: the moment at which an event is applied, and the actions it leads to.

use crate::action::Action;
use alloc::vec::Vec;
use model::Time;

/// The present moment, and where actions go.
pub(crate) struct Step<'a> {
    pub now: Time,
    pub actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    /// Asks the world for `action`, behind what it is asked for already.
    pub fn ask(&mut self, action: Action) {
        self.actions.push(action);
    }
}
