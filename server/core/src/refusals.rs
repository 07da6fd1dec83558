//! The last refusals, for whoever asks why.

use std::collections::VecDeque;

use crate::tenants::TenantKey;
use crate::{Kind, Moment, Reason};

/// How many are kept.
const KEPT: usize = 16;

/// One refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) at: Moment,
    pub(crate) tenant: TenantKey,
    pub(crate) kind: Kind,
    pub(crate) reason: Reason,
}

/// The last refusals, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(VecDeque<Refusal>);

impl Refusals {
    pub(crate) fn note(&mut self, refusal: Refusal) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(refusal);
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Refusal> {
        self.0.iter()
    }
}
