//! What an operation shares with its attempts, and with what runs inside them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use damper_protocol::{Dispatch, RecoveryMode, RetryOwner};
use uuid::Uuid;

use crate::{
    Dependency, Idempotency, Profile, Scope,
    context::Context,
    core::{Core, DependencyState, Switch},
    view::View,
};

/// The shared part of an operation: its only allocation.
pub(crate) struct Life {
    pub(crate) dependency: Dependency,
    id: OnceLock<Uuid>,
    pub(crate) idempotency: Idempotency,
    pub(crate) recovery: Option<RecoveryMode>,
    pub(crate) profile: Option<Profile>,
    /// What it was called in.
    outer: Option<Scope>,
    /// Its retries are its own, not those of an operation further out.
    pub(crate) owns: bool,
    /// Attempts that other layers have made already.
    foreign: AtomicU32,
    /// The latest attempt that has brought something.
    progressed: AtomicU32,
    /// The latest attempt in which an operation has spent retries of its own.
    spent: AtomicU32,
    /// The latest attempt that has said something about its dispatch, above the place of the word in
    /// [`Dispatch::ALL`].
    dispatch: AtomicU64,
}

impl Life {
    pub(super) fn new(
        dependency: Dependency,
        idempotency: Idempotency,
        recovery: Option<RecoveryMode>,
        profile: Option<Profile>,
    ) -> Self {
        let outer = Scope::current();
        let foreign = outer.as_ref().map_or(0, Scope::foreign_attempts);
        if let Some(unread) = outer.as_ref().and_then(Scope::take_unread) {
            dependency.pair.state.unread.add(u64::from(unread));
        }
        let innermost = || dependency.pair.state.policy().retry_owner == RetryOwner::Innermost;
        Self {
            owns: outer.as_ref().is_none_or(|outer| !outer.is_claimed() || innermost()),
            id: OnceLock::new(),
            dependency,
            idempotency,
            recovery,
            profile,
            outer,
            foreign: AtomicU32::new(foreign),
            progressed: AtomicU32::new(0),
            spent: AtomicU32::new(0),
            dispatch: AtomicU64::new(0),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.dependency.pair.handle.core
    }

    pub(crate) fn state(&self) -> &Arc<DependencyState> {
        &self.dependency.pair.state
    }

    /// The id that its attempts share. Most operations are never asked for it.
    pub(crate) fn id(&self) -> String {
        self.id.get_or_init(|| self.core().operation_id()).to_string()
    }

    pub(crate) const fn outer(&self) -> Option<&Scope> {
        self.outer.as_ref()
    }

    /// Whether another operation, further out, owns retries too.
    pub(crate) fn is_inside(&self) -> bool {
        self.outer.as_ref().is_some_and(Scope::is_claimed)
    }

    /// Whether somebody owns the retries of what this operation calls: itself, unless it makes none.
    pub(crate) fn claims(&self) -> bool {
        self.claims_itself() || self.is_inside()
    }

    fn claims_itself(&self) -> bool {
        let can_retry = self.core().retries() && !self.state().is_private();
        self.owns && can_retry && self.max_attempts() > 1
    }

    /// What calls from its attempt of this number carry.
    pub(crate) fn context(&self, attempt: u32) -> Option<Context> {
        if !self.claims_itself() {
            let outer = self.outer.as_ref()?;
            let context = outer.context()?;
            return Some(if outer.is_attempt() { context.one_deeper() } else { context });
        }
        let max_attempts = self.max_attempts().max(attempt);
        let operation = Arc::from(self.id());
        Some(Context { operation, attempt, max_attempts, depth: 1, owner: Arc::from(self.core().owner()) })
    }

    /// What the caller set in code, within the server's maximum; else the server's policy, else the default. What
    /// other layers have made already is taken off.
    pub(crate) fn max_attempts(&self) -> u32 {
        let wanted = self.profile.map(|profile| profile.attempts());
        let allowed = self.state().view(View::known_policy).map(|policy| policy.max_attempts);
        let attempts = match (wanted, allowed) {
            _ if self.is_endless() => u32::MAX,
            (Some(wanted), Some(allowed)) => wanted.min(allowed),
            (one, other) => one.or(other).unwrap_or_else(|| Profile::standard().attempts()),
        };
        let attempts = attempts.min(self.core().max_attempts.unwrap_or(u32::MAX));
        if attempts == 0 { 0 } else { attempts.saturating_sub(self.foreign.load(Relaxed)).max(1) }
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.profile.is_some_and(|profile| profile.is_endless())
    }

    /// Whether it may be repeated whatever became of an attempt.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self.recovery {
            Some(RecoveryMode::ProviderIdempotent) => true,
            Some(RecoveryMode::Opaque) => false,
            _ => self.idempotency.allows_repeat(),
        }
    }

    /// What may be done about an unknown effect.
    pub(crate) fn recovery_mode(&self) -> Option<RecoveryMode> {
        self.recovery.or_else(|| self.idempotency.recovery_mode())
    }

    /// Another layer has made so many attempts on top of one of ours.
    pub(crate) fn saw_foreign(&self, attempts: u32) {
        if attempts > 0 {
            self.state().counts.foreign.add(u64::from(attempts));
            self.foreign.fetch_max(attempts, Relaxed);
        }
    }

    pub(crate) fn progress(&self, attempt: u32) {
        self.progressed.fetch_max(attempt, Relaxed);
    }

    pub(super) fn has_progressed(&self, attempt: u32) -> bool {
        self.progressed.load(Relaxed) == attempt
    }

    /// It has spent retries in vain, which the operation that it is inside of must not multiply.
    pub(super) fn spend_outer(&self) {
        if let Some(outer) = &self.outer {
            outer.spend();
        }
    }

    pub(crate) fn spend(&self, attempt: u32) {
        self.spent.fetch_max(attempt, Relaxed);
    }

    pub(super) fn has_spent(&self, attempt: u32) -> bool {
        self.spent.load(Relaxed) == attempt
    }

    /// What an attempt says about itself. An earlier one that is late has nothing to say about a later one.
    pub(crate) fn note_dispatch(&self, attempt: u32, dispatch: Dispatch) {
        let place = Dispatch::ALL.iter().position(|word| *word == dispatch).unwrap_or_default();
        let note = u64::from(attempt) << 32 | u64::try_from(place).unwrap_or_default();
        let later = |noted: u64| (noted >> 32 <= u64::from(attempt)).then_some(note);
        let _ = self.dispatch.fetch_update(Relaxed, Relaxed, later);
    }

    /// What the attempt has noted.
    pub(super) fn noted_dispatch(&self, attempt: u32) -> Option<Dispatch> {
        let note = self.dispatch.load(Relaxed);
        let place = usize::try_from(note & u64::from(u32::MAX)).ok()?;
        Dispatch::ALL.get(place).copied().filter(|_| note >> 32 == u64::from(attempt))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.core().switch != Switch::Inert
    }
}
