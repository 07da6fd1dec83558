//! How a decision is made out of a reason, counted, and remembered.

use super::Dependency;
use super::gates::Denial;
use crate::answers::AnswerKey;
use crate::leases::Lease;
use crate::refusals::Refusal;
use crate::tenants::TenantKey;
use crate::{Ask, Asked, Decision, Grant, Kind, MicroTokens, Moment, Reason, Span, Verdict};

impl Dependency {
    /// Grants a token for which the pool was paid `paid`.
    pub(super) fn grant(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        kind: Kind,
        reason: Reason,
        paid: MicroTokens,
    ) -> Decision {
        let grant = self.lease_token(now, tenant, kind, paid);
        self.granted = self.granted.saturating_add(paid);
        if reason == Reason::Probe {
            self.breaker_of(tenant).lease_probe(now, tenant, grant.token);
        }
        if kind == Kind::Retry
            && let Some(spender) = self.tenants.get_mut(tenant)
            && self.policy.extra_attempts(&spender.name).is_some()
        {
            spender.count_retry(now);
        }
        let decision = Decision { grant: Some(grant), ..self.decision(tenant, reason) };
        self.count(now, tenant, kind, &decision);
        decision
    }

    pub(super) fn deny(&mut self, tenant: TenantKey, kind: Kind, denial: Denial) -> Decision {
        let Denial { reason, retry_after, suppress } = denial;
        let decision = Decision { retry_after, suppress, ..self.decision(tenant, reason) };
        self.count(self.now, tenant, kind, &decision);
        decision
    }

    /// In shadow mode everything is granted at once, and says what it would have been. An ask that would wait
    /// keeps its place in the queue, so that the queue behaves as it would; nobody waits for its answer.
    pub(super) fn shadow(&mut self, now: Moment, tenant: TenantKey, ask: &Ask, asked: Asked) -> Asked {
        let (would_have_been, grant) = match asked {
            Asked::Decided(decision) => (decision.reason, decision.grant),
            Asked::Waiting(_) => (Reason::AfterDelay, None),
        };
        let grant = grant.unwrap_or_else(|| self.lease_token(now, tenant, Kind::First, MicroTokens::ZERO));
        if let Some(count) = self.shadowed.get_mut(ask.kind.index()) {
            *count += 1;
        }
        Asked::Decided(Decision {
            grant: Some(grant),
            would_have_been: Some(would_have_been),
            ..self.decision(tenant, Reason::Shadow)
        })
    }

    /// Remembers what became of a request, and which request its token answers: once the token is given back,
    /// the answer is worth nothing, and a repeat is a new ask.
    pub(super) fn remember(&mut self, now: Moment, key: AnswerKey, asked: Asked) {
        if let Asked::Decided(Decision { grant: Some(grant), .. }) = &asked {
            self.leases.answers(grant.token, key.clone());
        }
        self.answers.keep(now, key, asked);
    }

    fn lease_token(&mut self, now: Moment, tenant: TenantKey, kind: Kind, cost: MicroTokens) -> Grant {
        let ttl = self.policy.token_ttl;
        Grant {
            token: self.leases.grant(Lease { tenant, kind, cost, expires: now.after(ttl), answer_key: None }),
            ttl,
        }
    }

    fn decision(&mut self, tenant: TenantKey, reason: Reason) -> Decision {
        Decision {
            verdict: reason.verdict(),
            reason,
            grant: None,
            waited: Span::ZERO,
            retry_after: None,
            suppress: Span::ZERO,
            breaker: self.breaker_of(tenant).version(),
            would_have_been: None,
        }
    }

    fn count(&mut self, now: Moment, tenant: TenantKey, kind: Kind, decision: &Decision) {
        let Decision { verdict, reason, .. } = *decision;
        let by_reason = self.decided.get_mut(kind.index());
        if let Some(count) = by_reason.and_then(|counts| counts.get_mut(reason.index())) {
            *count += 1;
        }
        if let Some(spender) = self.tenants.get_mut(tenant) {
            spender.counts.count_decision(verdict);
        }
        if verdict != Verdict::Granted {
            self.refusals.note(Refusal { at: now, tenant, kind, reason });
        }
    }
}
