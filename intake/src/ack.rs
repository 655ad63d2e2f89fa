//! The answer to a change, sent once it is durable: a thread can wait for it, or use it as a future of any runtime.

use crate::error::PutError;
use crate::record::Sequence;
use parking_lot::{Condvar, Mutex};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The number of the change, or the reason why it has none.
pub type Answer = Result<Sequence, PutError>;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// A future answer. Dropping it does not revoke the change.
#[derive(Debug)]
#[must_use = "without its answer a change may or may not be durable"]
pub struct Ack(Arc<Shared>);

impl Ack {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn wait(self) -> Answer {
        let mut state = self.0.state.lock();
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            self.0.answered.wait(&mut state);
        }
    }
}

impl Future for Ack {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.0.state.lock();
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(answer);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The other end of an [`Ack`]. If it is dropped, the answer is [`PutError::Closed`].
#[derive(Debug)]
pub(crate) struct Answerer(Option<Arc<Shared>>);

/// A new answer and its other end.
pub(crate) fn ack() -> (Answerer, Ack) {
    let shared = Arc::new(Shared::default());
    (Answerer(Some(Arc::clone(&shared))), Ack(shared))
}

impl Answerer {
    pub(crate) fn answer(mut self, answer: Answer) {
        self.send(answer);
    }

    fn send(&mut self, answer: Answer) {
        let Some(shared) = self.0.take() else { return };
        let mut state = shared.state.lock();
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        shared.answered.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.send(Err(PutError::Closed));
    }
}
