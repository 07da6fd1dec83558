//! What a query finds out.

use std::future::{Ready, ready};

use crate::Failure;

/// What became of an operation whose last attempt brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect<T> {
    /// It took effect, and this is its result.
    Done(T),
    /// It did not, and will not any more.
    NotDone,
    /// Nobody knows.
    Unknown,
}

/// The query of an operation that has none.
pub(super) fn nobody_knows<T>(_: &Failure) -> Ready<Effect<T>> {
    ready(Effect::Unknown)
}
