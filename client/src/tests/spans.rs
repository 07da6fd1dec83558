//! What a subscriber sees, and what it costs if there is none.

use tracing::{Level, Subscriber, span};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt, registry::LookupSpan};

use super::{
    logs::{Fields, Logs, Reader},
    *,
};

/// Its name, its parent's and what was recorded.
type Closed = (String, Option<String>, Fields);

/// Notes each span when it closes, with its parent's name.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Closed>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Reader(span.extensions_mut().get_mut::<Fields>().unwrap()));
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if span.metadata().target() == "damper" || span.name() == "inside" {
            let parent = span.parent().map(|parent| parent.name().to_owned());
            let fields = span.extensions_mut().remove::<Fields>().unwrap();
            self.0.lock().push((span.name().to_owned(), parent, fields));
        }
    }
}

fn fields(more: &[(&str, &str)]) -> Fields {
    let all = [("damper.dependency", "d"), ("damper.operation", "test")];
    let named = all.iter().chain(more);
    named.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn operations_and_attempts_are_spans() {
    let collector = Collector::default();
    let subscriber = tracing_subscriber::registry().with(collector.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let dependency = client(&Fake::new(|_| Step::at_once(Ok(granted())))).dependency("d");
    let operation = safe(&dependency).call(|attempt| async move {
        let _inside = tracing::info_span!("inside").entered();
        match attempt.number() {
            1 => Err(transient()),
            _ => Err(Failure::new(FailureClass::Semantic)),
        }
    });
    let _: CallError<Failure> = Result::<(), _>::unwrap_err(operation.await);
    let inside = || ("inside".to_owned(), Some("attempt".to_owned()), Fields::new());
    let attempt = |more: &[(&str, &str)]| ("attempt".to_owned(), Some("operation".to_owned()), fields(more));
    let expected = vec![
        inside(),
        attempt(&[("error.type", "transient")]),
        inside(),
        attempt(&[("error.type", "semantic"), ("http.request.resend_count", "1")]),
        ("operation".to_owned(), None, fields(&[("damper.reason", "not_retryable")])),
    ];
    assert_eq!(collector.0.lock().clone(), expected);
}

#[test]
fn a_healthy_call_allocates_once_if_nobody_is_interested() {
    let dependency = Damper::inert().dependency("d");
    let once = || {
        let call = safe(&dependency).call(|_| async { Ok::<_, Failure>(()) });
        futures_util::FutureExt::now_or_never(call).unwrap().unwrap();
    };
    once();
    let counted = allocation_counter::measure(once);
    assert_eq!(counted.count_total, 1, "the shared part of the operation");
}

#[tokio::test(start_paused = true)]
async fn the_default_deadline_is_said_once() {
    let (logs, _guard) = Logs::of_this_thread();
    let dependency = client(&Fake::new(|_| Step::at_once(Ok(granted())))).dependency("d");
    let said = || logs.count(Level::INFO, "message", "no deadline");
    call(safe(&dependency).deadline(ms(50)), vec![]).await.unwrap();
    call(safe(&dependency).profile(crate::Profile::stream()), vec![]).await.unwrap();
    assert_eq!(said(), 0);
    for _ in 0..3 {
        call(safe(&dependency), vec![]).await.unwrap();
    }
    assert_eq!(said(), 1);
}
