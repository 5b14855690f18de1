//! Places where the toolkit's own tests make the process die (feature `fail-points`; not for users:
//! nothing about it is stable, and a program that has it can be made to abort).
//!
//! Every await of a request's flow is one, and of what goes on in the background: renewals,
//! repairs, the reconciler. In the code they are marked with `point!`, which without the feature is
//! the awaited future and nothing else.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use uuid::Uuid;

/// Longest time from the first wait at an await to the death there.
const DYING: Duration = Duration::from_millis(3);

/// When, at an await, the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // there is no fourth
pub enum Moment {
    /// What is awaited has not begun.
    Before,
    /// It is under way: a random instant after it had to wait for the first time, or before its
    /// answer is seen if that is there at once. What was asked of a store may be carried out or not.
    During,
    /// It is done, and nothing that follows has begun.
    After,
}

/// A place that has been marked in the code.
#[doc(hidden)]
#[derive(Debug)]
pub struct Marked(pub &'static str);

inventory::collect!(Marked);

#[derive(Debug)]
struct Armed {
    name: String,
    moment: Moment,
    /// Passes that are survived.
    before: u32,
}

static ANY_ARMED: AtomicBool = AtomicBool::new(false);
static ARMED: Mutex<Option<Armed>> = Mutex::new(None);

/// The names of all points, in alphabetical order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = inventory::iter::<Marked>.into_iter().map(|m| m.0).collect();
    names.sort_unstable();
    names
}

/// Makes the process abort at this point when it comes there for the `nth` time from now, counted
/// from 1. Only the point armed last counts. False if there is no such point.
pub fn arm(name: &str, moment: Moment, nth: u32) -> bool {
    if !names().contains(&name) {
        return false;
    }
    *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Armed {
        name: name.to_owned(),
        moment,
        before: nth.saturating_sub(1),
    });
    ANY_ARMED.store(true, Ordering::Release);
    true
}

/// Comes to a point. Says when the process dies there, if it does.
fn come_to(name: &str) -> Option<Moment> {
    if !ANY_ARMED.load(Ordering::Acquire) {
        return None;
    }
    let mut slot = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
    let armed = slot.as_mut().filter(|armed| armed.name == name)?;
    if armed.before > 0 {
        armed.before -= 1;
        return None;
    }
    slot.take().map(|armed| armed.moment)
}

/// A death after an await that may be given up, as the other branches of a `select!` are: then the
/// next pass counts.
struct Postponed(Option<&'static str>);

impl Drop for Postponed {
    fn drop(&mut self) {
        if let Some(name) = self.0 {
            arm(name, Moment::After, 1);
        }
    }
}

pub(crate) async fn around<F: Future>(name: &'static str, future: F) -> F::Output {
    let death = come_to(name);
    let mut postponed = Postponed((death == Some(Moment::After)).then_some(name));
    if death == Some(Moment::Before) {
        std::process::abort();
    }
    let mut future = pin!(future);
    let output = poll_fn(|context| {
        let poll = future.as_mut().poll(context);
        if death == Some(Moment::During) {
            // The thread stands still: nothing else of this request's flow goes on, while what was
            // sent is carried out, or not yet.
            let part = f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0;
            thread::sleep(DYING.mul_f64(part));
            std::process::abort();
        }
        poll
    })
    .await;
    postponed.0 = None;
    if death == Some(Moment::After) {
        std::process::abort();
    }
    output
}

/// Marks the future of an await as a place where a test can make the process die.
macro_rules! point {
    ($name:literal, $future:expr) => {{
        ::inventory::submit!($crate::fail_points::Marked($name));
        $crate::fail_points::around($name, $future)
    }};
}
pub(crate) use point;
