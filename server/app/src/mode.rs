//! How far the server's decisions can be trusted at the moment.

use damper_core::Span;
use damper_engine::MemoryEngine;
use damper_protocol::Mode;

/// The present mode of the server as a whole. A dependency that was made later learns for a while by itself.
pub(crate) fn of(engine: &MemoryEngine) -> Mode {
    if engine.learns_for() > Span::ZERO { Mode::Learning } else { Mode::Normal }
}
