//! Answers by request id, so that a repeated ask gets the same answer and is charged once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::{Asked, Moment, Span};

/// How long an answer is kept: longer than any client repeats an ask, which it does within the ask's window.
const KEPT_FOR: Span = Span::from_secs(60);

/// Most answers kept; beyond it the oldest are forgotten first.
const MOST: usize = 65_536;

/// A request id within its tenant. Names hold no control characters, so the joint is unambiguous.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AnswerKey(Arc<str>);

impl AnswerKey {
    pub(crate) fn new(tenant: &str, request_id: &str) -> Self {
        Self(format!("{tenant}\0{request_id}").into())
    }
}

/// The answers given lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    by_key: HashMap<AnswerKey, Answer>,
    by_age: VecDeque<(Moment, AnswerKey)>,
}

#[derive(Clone, Debug)]
struct Answer {
    until: Moment,
    asked: Box<Asked>,
}

impl Answers {
    pub(crate) fn get(&self, key: &AnswerKey) -> Option<&Asked> {
        self.by_key.get(key).map(|answer| answer.asked.as_ref())
    }

    /// Keeps what became of the ask with this key, in place of what was kept before.
    pub(crate) fn keep(&mut self, now: Moment, key: AnswerKey, asked: Asked) {
        let until = now.after(KEPT_FOR);
        self.by_key.insert(key.clone(), Answer { until, asked: Box::new(asked) });
        self.by_age.push_back((until, key));
        if self.by_age.len() > MOST {
            self.forget_oldest();
        }
    }

    /// A cancelled ask has no answer: a repeat is a new ask.
    pub(crate) fn forget(&mut self, key: &AnswerKey) {
        self.by_key.remove(key);
    }

    /// Forgets what is old. An ask that still waits is not: however long it takes, a repeat waits with it.
    pub(crate) fn advance(&mut self, now: Moment) {
        while self.by_age.front().is_some_and(|(until, _)| now >= *until) {
            let waiting = self.by_age.front().and_then(|(until, key)| self.waiting(*until, key));
            self.forget_oldest();
            if let Some((key, asked)) = waiting {
                self.keep(now, key, asked);
            }
        }
    }

    fn waiting(&self, until: Moment, key: &AnswerKey) -> Option<(AnswerKey, Asked)> {
        let answer = self.by_key.get(key).filter(|answer| answer.until == until)?;
        matches!(*answer.asked, Asked::Waiting(_)).then(|| (key.clone(), Asked::clone(&answer.asked)))
    }

    fn forget_oldest(&mut self) {
        let Some((until, key)) = self.by_age.pop_front() else { return };
        if self.by_key.get(&key).is_some_and(|answer| answer.until == until) {
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AskId, BreakerState, BreakerVersion, Decision, Reason, Verdict};

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Span::from_secs(seconds))
    }

    /// A decision that can be told by its number.
    fn decided(number: u64) -> Asked {
        Asked::Decided(Decision {
            verdict: Verdict::Shed,
            reason: Reason::QueueFull,
            grant: None,
            waited: Span::from_nanos(number),
            retry_after: None,
            suppress: Span::ZERO,
            breaker: BreakerVersion { state: BreakerState::Closed, version: 1 },
            would_have_been: None,
        })
    }

    fn keep(answers: &mut Answers, seconds: u64, request_id: &str, number: u64) {
        answers.keep(at(seconds), AnswerKey::new("t", request_id), decided(number));
    }

    fn get(answers: &Answers, request_id: &str) -> Option<Asked> {
        answers.get(&AnswerKey::new("t", request_id)).cloned()
    }

    #[test]
    fn an_answer_is_kept_for_a_minute_after_it_last_changed() {
        let mut answers = Answers::default();
        keep(&mut answers, 0, "r", 1);
        keep(&mut answers, 30, "r", 2);
        answers.advance(at(60));
        assert_eq!(get(&answers, "r"), Some(decided(2)));
        answers.advance(at(90));
        assert_eq!(get(&answers, "r"), None);
    }

    #[test]
    fn an_ask_that_waits_is_remembered_for_as_long_as_it_does() {
        let (mut answers, key) = (Answers::default(), AnswerKey::new("t", "r"));
        answers.keep(at(0), key.clone(), Asked::Waiting(AskId(7)));
        answers.advance(at(3600));
        assert_eq!(get(&answers, "r"), Some(Asked::Waiting(AskId(7))));
        answers.keep(at(3600), key, decided(1));
        answers.advance(at(3660));
        assert_eq!(get(&answers, "r"), None);
    }

    #[test]
    fn keys_of_different_tenants_never_meet() {
        assert_ne!(AnswerKey::new("a", "b"), AnswerKey::new("ab", ""));
        assert_ne!(AnswerKey::new("a/b", "c"), AnswerKey::new("a", "b/c"));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut answers = Answers::default();
        for number in 0..MOST as u64 + 5 {
            keep(&mut answers, 0, &number.to_string(), number);
        }
        assert_eq!((answers.by_key.len(), answers.by_age.len()), (MOST, MOST));
        assert_eq!(get(&answers, "4"), None);
        assert!(get(&answers, "5").is_some());
    }
}
