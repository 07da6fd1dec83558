//! Runtimes that cannot open a connection: tokio panics where one was built without I/O, in the task that asks.

use std::{any::Any, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use super::Fault;

/// The runtime that was last found to have no I/O. It is not tried again: each panic is printed by the panic hook.
static WITHOUT_IO: Mutex<Option<Id>> = Mutex::new(None);

/// What becomes of a request, a panic included.
pub(super) async fn guarded<T>(request: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
    if runtime.is_none() || runtime == *WITHOUT_IO.lock() {
        return Err(Fault::Unreachable);
    }
    match AssertUnwindSafe(request).catch_unwind().await {
        Ok(outcome) => Ok(outcome),
        Err(panic) if is_for_want_of_io(&*panic) => {
            *WITHOUT_IO.lock() = runtime;
            tracing::error!(
                target: "damper",
                "this tokio runtime has no I/O, and no server can be reached from it: build it with enable_all"
            );
            Err(Fault::Unreachable)
        }
        Err(_) => Err(Fault::NoAnswer),
    }
}

fn is_for_want_of_io(panic: &(dyn Any + Send)) -> bool {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.is_some_and(|text| text.contains("enable_io"))
}
