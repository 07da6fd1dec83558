//! A granted token.

use std::sync::Arc;

use damper_protocol::{AskResponse, Reason};
use tokio::runtime::Handle;

use crate::core::Core;

/// The right to start one attempt; it goes back if it is not used.
#[derive(Default)]
pub(super) struct Token {
    held: Option<(Arc<Core>, String)>,
    is_probe: bool,
}

impl Token {
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

impl Drop for Token {
    fn drop(&mut self) {
        if let Some((core, token)) = self.held.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(core.transport.give_back(token));
        }
    }
}
