//! What kinds of attempts a caller can make in a loop of its own.

use crate::Failure;

/// What an attempt is that a caller makes in a loop of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// The first of its operation.
    #[default]
    First,
    /// Another one, after so many attempts of which the last ended like this.
    Retry {
        /// How the last one ended: what [`Permit::finish`](crate::Permit::finish) returns.
        after: Failure,
        /// How many there were, from 1.
        attempts: u32,
    },
    /// One beside another that still runs. The operation has to be declared as one that may be repeated.
    Hedge,
}

impl Admission {
    pub(super) fn into_failure(self) -> Option<Failure> {
        match self {
            Self::Retry { after, .. } => Some(after),
            Self::First | Self::Hedge => None,
        }
    }
}
