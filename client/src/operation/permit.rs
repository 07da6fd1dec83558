//! The right to start one attempt.

use std::sync::Arc;

use damper_protocol::{AskResponse, Reason};
use tokio::runtime::Handle;

use crate::core::Core;

/// The right to start one attempt; a token that is not used goes back.
#[derive(Default)]
pub(super) struct Permit {
    held: Option<(Arc<Core>, String)>,
    is_probe: bool,
}

impl Permit {
    pub(super) fn granted(core: &Arc<Core>, answer: AskResponse) -> Self {
        let held = answer.token.map(|token| (Arc::clone(core), token));
        Self { held, is_probe: answer.reason == Reason::Probe }
    }

    /// Uses it. A probe's token comes back, for the report on how it ended.
    pub(super) fn start(&mut self) -> Option<String> {
        let used = self.held.take();
        used.filter(|_| self.is_probe).map(|(_, token)| token)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let (Some((core, token)), Ok(runtime)) = (self.held.take(), Handle::try_current()) {
            runtime.spawn(core.transport.give_back(token));
        }
    }
}
