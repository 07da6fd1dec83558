//! The tasks in the background: one of each kind, for as long as there is a runtime and a handle.

use std::sync::{Arc, atomic::Ordering};

use tokio::runtime::Handle;

use super::{Core, Switch, sync, watch};

impl Core {
    /// Starts the background tasks that do not run, if this is a tokio runtime. One that ends before the client does,
    /// with its runtime or by a panic, starts again on the next call.
    pub(crate) fn start(self: &Arc<Self>, stop: &tokio::sync::watch::Sender<()>) {
        let all_run = self.running.load(Ordering::Relaxed) == Task::Sync.bit() | Task::Watch.bit();
        if all_run || self.switch == Switch::Inert || self.is_shut_down() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(running) = Running::claim(self, Task::Sync) {
            runtime.spawn(sync::run(running, stop.subscribe()));
        }
        if let Some(running) = Running::claim(self, Task::Watch) {
            runtime.spawn(watch::run(running, stop.subscribe()));
        }
    }
}

/// What runs in the background.
#[derive(Clone, Copy, Debug)]
enum Task {
    Sync,
    Watch,
}

impl Task {
    const fn bit(self) -> u8 {
        match self {
            Self::Sync => 1,
            Self::Watch => 2,
        }
    }
}

/// Lives as long as its task does, so that there is one of a kind.
pub(super) struct Running {
    pub(super) core: Arc<Core>,
    task: Task,
}

impl Running {
    fn claim(core: &Arc<Core>, task: Task) -> Option<Self> {
        let before = core.running.fetch_or(task.bit(), Ordering::Relaxed);
        (before & task.bit() == 0).then(|| Self { core: Arc::clone(core), task })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.running.fetch_and(!self.task.bit(), Ordering::Relaxed);
    }
}
