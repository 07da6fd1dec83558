//! Drives one dependency in virtual time, by its own wake-ups.

use std::collections::BTreeMap;

use crate::{
    Ask, AskId, Asked, Class, Decision, Dependency, Dispatch, Failure, Kind, Moment, Policy, PolicyDraft,
    Priority, Reason, Report, Span, Totals,
};

pub(super) struct Bench {
    pub(super) dependency: Dependency,
    pub(super) now: Moment,
    /// Decisions about asks that waited, with the moment of each.
    pub(super) released: BTreeMap<AskId, (Moment, Decision)>,
    logical: u64,
}

pub(super) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// A retry that is safe to repeat, with ten seconds left.
pub(super) fn retry() -> Ask {
    Ask {
        request_id: None,
        tenant: "checkout".into(),
        kind: Kind::Retry,
        attempt: 2,
        failure: Some(failure(Class::Transient)),
        idempotent: true,
        recovery_mode: None,
        priority: Priority::Normal,
        cost: 1,
        deadline: Span::from_secs(10),
        earliest: Span::ZERO,
        expected: Span::ZERO,
        max_wait: None,
    }
}

/// The same, decided at once.
pub(super) fn retry_now() -> Ask {
    Ask { max_wait: Some(Span::ZERO), ..retry() }
}

pub(super) fn failure(class: Class) -> Failure {
    Failure {
        class,
        reason: None,
        dispatch: Dispatch::Ambiguous,
        do_not_retry: false,
        caller_rejected: false,
        retry_after: None,
    }
}

impl Bench {
    /// A dependency whose pool has had a minute to fill.
    pub(super) fn new(edit: impl FnOnce(&mut PolicyDraft)) -> Self {
        let mut bench = Self::cold(edit);
        bench.pass(Span::from_secs(60));
        bench
    }

    /// A dependency that has just been made.
    pub(super) fn cold(edit: impl FnOnce(&mut PolicyDraft)) -> Self {
        let mut draft = PolicyDraft::default();
        edit(&mut draft);
        let policy = Policy::new(&draft).unwrap();
        let dependency = Dependency::new(Moment::ORIGIN, policy.into(), 7);
        Self { dependency, now: Moment::ORIGIN, released: BTreeMap::new(), logical: 0 }
    }

    /// A plain fixed pool, full.
    pub(super) fn fixed(per_s: f64) -> Self {
        Self::new(|draft| draft.retry.per_s = Some(per_s))
    }

    /// A plain fixed pool that has just been emptied.
    pub(super) fn dry(per_s: f64) -> Self {
        let mut bench = Self::cold(|draft| draft.retry.per_s = Some(per_s));
        while bench.decide(&retry_now()).grant.is_some() {}
        bench
    }

    /// How many asks are granted if one comes every millisecond for so long.
    pub(super) fn grants_within(&mut self, span: Span, ask: &Ask) -> u64 {
        (0..span.as_millis())
            .map(|_| {
                let granted = self.decide(ask).grant.is_some();
                self.pass(ms(1));
                u64::from(granted)
            })
            .sum()
    }

    pub(super) fn ask(&mut self, ask: &Ask) -> Asked {
        let asked = self.dependency.ask(self.now, ask).unwrap();
        self.collect();
        asked
    }

    /// Decides an ask that does not wait.
    pub(super) fn decide(&mut self, ask: &Ask) -> Decision {
        match self.ask(ask) {
            Asked::Decided(decision) => decision,
            Asked::Waiting(_) => panic!("waits: {ask:?}"),
        }
    }

    pub(super) fn reason(&mut self, ask: &Ask) -> Reason {
        self.decide(ask).reason
    }

    pub(super) fn wait(&mut self, ask: &Ask) -> AskId {
        match self.ask(ask) {
            Asked::Waiting(id) => id,
            Asked::Decided(decision) => panic!("decided: {decision:?}"),
        }
    }

    /// Lets time pass, waking the dependency only when it wants to be woken.
    pub(super) fn pass(&mut self, span: Span) {
        let end = self.now.after(span);
        while let Some(next) = self.dependency.next_wakeup().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.dependency.poll(self.now);
            self.collect();
        }
        self.now = end;
        self.dependency.poll(end);
        self.collect();
    }

    /// The reason with which a waiting ask was released, if it was.
    pub(super) fn released(&self, id: AskId) -> Option<Reason> {
        self.released.get(&id).map(|(_, decision)| decision.reason)
    }

    /// A client reports first attempts.
    pub(super) fn report_first_attempts(&mut self, started: u64, succeeded: u64) {
        self.report(Totals { logical: started, physical: started, success: succeeded, ..Totals::default() });
    }

    /// A client nobody has heard of reports `totals`.
    pub(super) fn report(&mut self, totals: Totals) {
        self.logical += 1;
        let client = self.logical.to_string().into();
        let report = Report { client, tenant: "checkout".into(), totals, ..Report::default() };
        self.dependency.sync(self.now, &report);
        self.collect();
    }

    /// A breaker that has seen nothing but failures.
    pub(super) fn trip(&mut self) {
        let mut totals = Totals::default();
        totals.failures[Class::Transient.index()] = 1000;
        self.report(totals);
    }

    pub(super) fn issued(&self) -> u64 {
        self.dependency.pool.bank().issued().as_micros() / 1_000_000
    }

    fn collect(&mut self) {
        for (id, decision) in self.dependency.take_released() {
            let twice = self.released.insert(id, (self.now, decision));
            assert!(twice.is_none(), "{id:?} was answered twice");
        }
    }
}
