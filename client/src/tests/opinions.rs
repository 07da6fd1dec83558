//! Whose opinion on an outcome counts: classifiers, hooks of the client, and attempts made by hand.

use damper_protocol::AskKind;

use super::*;
use crate::{Admission, Advice, FailureEvent, Hooks, Outcome, Verdict};

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
}

fn says(class: FailureClass) -> Verdict {
    Verdict::Failure(Failure::new(class))
}

/// Fails what is 1, and takes a semantic failure for none.
fn opinionated(outcome: &Outcome<'_>) -> Verdict {
    let semantic = |failure: &Failure| failure.class == FailureClass::Semantic;
    match (outcome.value::<u32>(), outcome.error().and_then(|error| error.downcast_ref::<Failure>())) {
        (Some(1), _) => says(FailureClass::Transient),
        (_, Some(failure)) if semantic(failure) => Verdict::Success,
        _ => Verdict::Pass,
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_judges_values_and_errors() {
    let dependency = client(&granting()).dependency("d");
    let operation = || safe(&dependency).classifier(opinionated);
    assert_eq!(call(operation(), vec![]).await.unwrap(), 2, "the first value was a failure");
    let none = call(operation(), vec![Failure::new(FailureClass::Semantic)]).await.unwrap_err();
    assert!(!none.had_no_effect(), "it counts as done");
    assert_eq!((none.reason, none.failure, none.attempts), (StopReason::NotAFailure, None, 1));
    assert_eq!(none.last.unwrap().class, FailureClass::Semantic);
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.success, totals.failures.transient), (2, 2, 1));
    assert_eq!((totals.failures.semantic, totals.affected, totals.recovered), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_classifier_goes_before_the_judge_and_a_success_is_final() {
    let dependency = client(&granting()).dependency("d");
    let good = |outcome: &Outcome<'_>| outcome.value::<u32>().map_or(Verdict::Pass, |_| Verdict::Success);
    let attempt = |attempt: crate::Attempt| async move { Ok::<_, Failure>(attempt.number()) };
    let bad = |_: &u32| says(FailureClass::Fatal);
    assert_eq!(safe(&dependency).classifier(good).call_judged(attempt, bad).await.unwrap(), 1);
    assert!(safe(&dependency).call_judged(attempt, bad).await.is_err());
}

/// Everything is transient, and nothing is retried on the archive.
struct Everywhere;

impl Hooks for Everywhere {
    fn classify(&self, outcome: &Outcome<'_>) -> Verdict {
        outcome.error().map_or(Verdict::Pass, |_| says(FailureClass::Transient))
    }

    fn on_failure(&self, event: &FailureEvent<'_>) -> Advice {
        match event.dependency {
            "archive" => Advice::Drop,
            "broken" => panic!("a bug in a hook"),
            _ => Advice::Retry,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_s_hooks_have_a_say_after_the_operation_s_own() {
    let builder = Damper::builder("").hooks(Everywhere);
    let damper = builder.build_over(granting() as Arc<dyn Transport>, Switch::On);
    let semantic = || vec![Failure::new(FailureClass::Semantic)];
    for name in ["d", "broken"] {
        let operation = safe(&damper.dependency(name));
        assert_eq!(call(operation, semantic()).await.unwrap(), 2, "{name}");
    }
    let archive = || safe(&damper.dependency("archive"));
    let dropped = call(archive().on_failure(|_| Advice::Retry), semantic()).await.unwrap_err();
    assert_eq!(dropped.reason, StopReason::DroppedByHook, "a veto is final whoever says it");
    let own = safe(&damper.dependency("d")).on_failure(|_| Advice::Drop);
    assert_eq!(call(own, semantic()).await.unwrap_err().reason, StopReason::DroppedByHook);
    let fatal =
        |outcome: &Outcome<'_>| outcome.error().map_or(Verdict::Pass, |_| says(FailureClass::Invalid));
    let own = safe(&damper.dependency("broken")).classifier(fatal);
    assert_eq!(call(own, semantic()).await.unwrap_err().failure.unwrap().class, FailureClass::Invalid);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_understands_is_counted() {
    let dependency = client(&granting()).dependency("d");
    let fail = |status: u16, header: &'static str| {
        let dependency = dependency.clone();
        async move {
            let headers = [(http::header::RETRY_AFTER, header.parse().unwrap())].into_iter().collect();
            let failure = Failure::from_http(http::StatusCode::from_u16(status).unwrap(), &headers);
            call(safe(&dependency).profile(crate::Profile::never()), vec![failure.unwrap()])
                .await
                .unwrap_err()
        }
    };
    fail(503, "1").await;
    fail(503, "1.5").await;
    fail(418, "1.5").await;
    let says = |word: &'static str| [("x-should-retry", word), ("damper-retry", "no")];
    for lines in [says("perhaps"), says("true")] {
        let headers = lines.map(|(name, word)| (name.parse().unwrap(), word.parse().unwrap()));
        let failure = Failure::from_http(http::StatusCode::NOT_FOUND, &headers.into_iter().collect());
        call(safe(&dependency), vec![failure.unwrap()]).await.unwrap_err();
    }
    let unknown = safe(&dependency).call(|_| async { Err::<(), _>(std::fmt::Error) }).await.unwrap_err();
    assert_eq!((unknown.reason, unknown.attempts), (StopReason::NotRetryable, 1));
    assert_eq!((dependency.unclassified(), dependency.unread_headers()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_the_caller_s_own_is_admitted_attempt_by_attempt() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let first = safe(&dependency).admit().await.unwrap();
    let failure = first.finish(&Outcome::Error(&transient())).unwrap();
    let retry = Admission::Retry { after: failure, attempts: 1 };
    let second = safe(&dependency).admit_as(retry).await.unwrap();
    assert_eq!(second.attempt().number(), 2);
    assert_eq!(second.finish(&Outcome::Value(&"done")), None);
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical, totals.affected), (1, 2, 1));
    assert_eq!((totals.success, totals.recovered, dependency.in_flight()), (1, 1, 0));
    let ask = fake.asks.lock()[0].1.clone();
    assert_eq!((ask.kind, ask.attempt, ask.failure.is_some()), (AskKind::Retry, 2, true));
    drop(safe(&dependency).admit_as(Admission::Hedge).await.unwrap());
    assert_eq!(dependency.totals().abandoned, 1);
}

/// What is admitted, on which operation, and why not.
#[tokio::test(start_paused = true)]
async fn retries_and_hedges_by_hand_obey_the_rules() {
    let retry = |failure: Failure, attempts| Admission::Retry { after: failure, attempts };
    let unsent = || transient().with_dispatch(Dispatch::NotSent);
    let cases = [
        (retry(transient(), 1), Idempotency::Safe, None),
        (retry(transient(), 4), Idempotency::Safe, Some(StopReason::AttemptsExhausted)),
        (retry(transient(), 1), Idempotency::Unsafe, Some(StopReason::AmbiguousNotRepeatable)),
        (retry(unsent(), 1), Idempotency::Unsafe, None),
        (retry(Failure::new(FailureClass::Fatal), 1), Idempotency::Safe, Some(StopReason::NotRetryable)),
        (Admission::Hedge, Idempotency::Safe, None),
        (Admission::Hedge, Idempotency::keyed("k"), None),
        (Admission::Hedge, Idempotency::Unsafe, Some(StopReason::AmbiguousNotRepeatable)),
    ];
    for (admission, idempotency, refused) in cases {
        let fake = granting();
        let dependency = client(&fake).dependency("d");
        let operation = dependency.operation("o").idempotency(idempotency);
        let admitted = operation.admit_as(admission.clone()).await;
        assert_eq!(admitted.as_ref().err().map(|error| error.reason), refused, "{admission:?}");
        let asks: Vec<AskKind> = fake.asks.lock().iter().map(|(_, ask)| ask.kind).collect();
        let kind = if admission == Admission::Hedge { AskKind::Hedge } else { AskKind::Retry };
        assert_eq!(asks, if refused.is_some() { vec![] } else { vec![kind] });
        assert_eq!(dependency.totals().logical, 0, "it has been counted by its first attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_never_waits_and_a_refused_one_ends_nothing() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))));
    let dependency = client(&fake).dependency("d");
    let error = safe(&dependency).admit_as(Admission::Hedge).await.unwrap_err();
    assert_eq!(error.reason, StopReason::BudgetExhausted);
    let ask = fake.asks.lock()[0].1.clone();
    assert_eq!((ask.kind, ask.attempt, ask.max_wait_ms), (AskKind::Hedge, 2, Some(0)));
    assert_eq!(dependency.totals(), Totals::default());
}

/// Says that everything is worth a retry.
fn optimist(_: &Outcome<'_>) -> Verdict {
    says(FailureClass::Transient)
}

#[tokio::test(start_paused = true)]
async fn no_classifier_overrules_a_veto_or_loses_a_pause() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let vetoed = transient().never_retried().with_retry_after(ms(4000));
    let error = call(safe(&dependency).classifier(optimist), vec![vetoed.clone()]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 1));
    assert_eq!(error.retry_after, Some(ms(4000)));
    let permit = safe(&dependency).classifier(optimist).admit().await.unwrap();
    assert!(permit.finish(&Outcome::Error(&vetoed)).unwrap().do_not_retry);

    let contested =
        Failure::from_http(http::StatusCode::INTERNAL_SERVER_ERROR, &http::HeaderMap::new()).unwrap();
    assert!(contested.do_not_retry, "on which implementations disagree");
    let retried = call(safe(&dependency).classifier(optimist_on_errors), vec![contested]).await;
    assert_eq!(retried.unwrap(), 2, "a default is no veto");
}

fn optimist_on_errors(outcome: &Outcome<'_>) -> Verdict {
    outcome.error().map_or(Verdict::Pass, |_| says(FailureClass::Transient))
}

#[tokio::test(start_paused = true)]
async fn a_retry_by_hand_of_what_may_have_taken_effect_says_so() {
    let dependency = client(&granting()).dependency("d");
    let retry = |dispatch| Admission::Retry { after: transient().with_dispatch(dispatch), attempts: 1 };
    let operation = || dependency.operation("o");
    let error = operation().admit_as(retry(Dispatch::Ambiguous)).await.unwrap_err();
    assert_eq!(error.reason, StopReason::AmbiguousNotRepeatable);
    assert!(error.ambiguous && !error.had_no_effect());
    let permit = operation().admit_as(retry(Dispatch::NotSent)).await.unwrap();
    let error = permit.failed(Failure::new(FailureClass::Fatal)).await.unwrap_err();
    assert!(error.ambiguous, "the second attempt");
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_an_attempt_by_hand_reaches_the_fleet() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let permit = safe(&dependency).admit().await.unwrap();
    let _ = permit.finish(&Outcome::Error(&transient().with_retry_after(ms(5000))));
    tokio::time::sleep(ms(10)).await;
    let pauses: Vec<Option<u64>> =
        fake.asks.lock().iter().map(|(_, ask)| ask.failure.as_ref().unwrap().retry_after_ms).collect();
    assert_eq!(pauses, [Some(5000)]);
    assert_eq!(fake.returned.lock().len(), 1, "nothing is charged for the message");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_is_done_without_while_no_server_answers() {
    let hung = Fake::new(|_| Step::hung());
    *hung.told.lock() = Some(told(|told| {
        told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.5, ..Default::default() }
    }));
    for fake in [Fake::dead(), hung] {
        let dependency = client(&fake).dependency("d");
        for _ in 0..50 {
            call(safe(&dependency), vec![]).await.unwrap();
            tokio::time::sleep(ms(100)).await;
        }
        let error = safe(&dependency).admit_as(Admission::Hedge).await.unwrap_err();
        assert_eq!(error.reason, StopReason::EmergencyExhausted);
        assert_eq!(dependency.totals().emergency, 0);
    }

    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))));
    let builder = Damper::builder("");
    let observing = builder.build_over(Arc::clone(&fake) as Arc<dyn Transport>, Switch::Observe);
    let dependency = observing.dependency("d");
    drop(safe(&dependency).admit_as(Admission::Hedge).await.unwrap());
    assert_eq!(fake.asks.lock().len(), 1, "asked, and not obeyed");
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_drops_is_dropped_in_a_loop_of_one_s_own_too() {
    let dependency = client(&granting()).dependency("d");
    let permit = safe(&dependency).on_failure(|_| Advice::Drop).admit().await.unwrap();
    let after = permit.finish(&Outcome::Error(&transient())).unwrap();
    let error = safe(&dependency).admit_as(Admission::Retry { after, attempts: 1 }).await.unwrap_err();
    assert_eq!(error.reason, StopReason::NotRetryable);
}

/// One operation whose loop is the caller's, however many of its attempts leave doubt.
#[tokio::test(start_paused = true)]
async fn an_operation_is_ambiguous_once() {
    let dependency = client(&granting()).dependency("d");
    let keyed = || dependency.operation("charge").idempotency(Idempotency::keyed("k"));
    let permit = keyed().admit().await.unwrap();
    let after = permit.finish(&Outcome::Error(&transient())).unwrap();
    let permit = keyed().admit_as(Admission::Retry { after: after.clone(), attempts: 1 }).await.unwrap();
    permit.finish(&Outcome::Error(&transient())).unwrap();
    keyed().admit_as(Admission::Retry { after, attempts: 4 }).await.unwrap_err();
    assert_eq!(dependency.totals().ambiguous, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_nobody_waits_for_any_more_counts_nowhere() {
    let dependency = client(&Fake::new(|_| Step::hung())).dependency("d");
    let hedge = safe(&dependency).admit_as(Admission::Hedge);
    assert!(tokio::time::timeout(ms(5), hedge).await.is_err());
    assert_eq!(dependency.totals(), Totals::default());
}

#[tokio::test(start_paused = true)]
async fn the_fleet_hears_of_a_pause_from_who_has_no_time_left() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let operation = safe(&dependency).deadline(ms(1000)).call(|_| async {
        tokio::time::sleep(Duration::from_micros(999_500)).await;
        Err::<(), _>(transient().with_retry_after(ms(30_000)))
    });
    assert_eq!(operation.await.unwrap_err().attempts, 1);
    tokio::time::sleep(ms(10)).await;
    let (_, ask) = fake.asks.lock()[0].clone();
    assert_eq!((ask.deadline_ms, ask.failure.unwrap().retry_after_ms), (1000, Some(30_000)));
}
