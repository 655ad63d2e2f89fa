//! Panics of a run, collected instead of printed: shrinking repeats a failing run many times.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local! {
    static GATHERED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOKED: Once = Once::new();

/// Collects the panics of this thread until it is dropped.
pub(crate) struct Gathering;

impl Gathering {
    pub(crate) fn begin() -> Self {
        HOOKED.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !gather(info) {
                    before(info);
                }
            }));
        });
        GATHERED.with_borrow_mut(|gathered| *gathered = Some(Vec::new()));
        Self
    }

    /// The panics so far, as text.
    pub(crate) fn all() -> Vec<String> {
        GATHERED.with_borrow(|gathered| gathered.clone().unwrap_or_default())
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        GATHERED.with_borrow_mut(|gathered| *gathered = None);
    }
}

/// The last panic, as text.
pub(crate) fn last() -> String {
    Gathering::all().pop().unwrap_or_else(|| "a task panicked".to_owned())
}

fn gather(info: &PanicHookInfo<'_>) -> bool {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    let at = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
    GATHERED.with_borrow_mut(|gathered| match gathered {
        Some(gathered) => {
            gathered.push(format!("{text}{at}"));
            true
        }
        None => false,
    })
}
