//! What an operation shares with its attempts, and with what runs inside them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
};

use damper_protocol::{Dispatch, RecoveryMode, RetryOwner};

use crate::{
    Dependency, Idempotency, Profile, Scope,
    context::Context,
    core::{Core, DependencyState, Switch},
    view::View,
};

/// The shared part of an operation: its only allocation.
pub(crate) struct Life {
    pub(crate) dependency: Dependency,
    id: OnceLock<u64>,
    pub(crate) idempotency: Idempotency,
    pub(crate) recovery: Option<RecoveryMode>,
    pub(crate) profile: Option<Profile>,
    /// What it was called in.
    outer: Option<Scope>,
    /// Its retries are its own, not those of an operation further out.
    pub(crate) owns: bool,
    /// Attempts that other layers have made already.
    foreign: AtomicU32,
    progressed: AtomicBool,
    /// An operation inside of it has spent retries of its own.
    spent: AtomicBool,
    /// One more than the place of the noted word in [`Dispatch::ALL`]; 0 for none.
    dispatch: AtomicU8,
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
            progressed: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            dispatch: AtomicU8::new(0),
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
        self.core().global_id(*self.id.get_or_init(|| self.core().next_id()))
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

    pub(crate) fn progressed(&self) {
        self.progressed.store(true, Relaxed);
    }

    pub(super) fn take_progress(&self) -> bool {
        self.progressed.swap(false, Relaxed)
    }

    /// It has spent retries in vain, which the operation that it is inside of must not multiply.
    pub(super) fn spend_outer(&self) {
        if let Some(outer) = &self.outer {
            outer.spend();
        }
    }

    pub(crate) fn spend(&self) {
        self.spent.store(true, Relaxed);
    }

    pub(super) fn take_spent(&self) -> bool {
        self.spent.swap(false, Relaxed)
    }

    pub(crate) fn note_dispatch(&self, dispatch: Dispatch) {
        let place = Dispatch::ALL.iter().position(|word| *word == dispatch);
        let code = place.and_then(|place| u8::try_from(place.saturating_add(1)).ok()).unwrap_or(0);
        self.dispatch.store(code, Relaxed);
    }

    /// What the attempt that ends has noted.
    pub(super) fn take_dispatch(&self) -> Option<Dispatch> {
        let place = usize::from(self.dispatch.swap(0, Relaxed)).checked_sub(1)?;
        Dispatch::ALL.get(place).copied()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.core().switch != Switch::Inert
    }
}
