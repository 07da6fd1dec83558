use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use parking_lot::Mutex;

use super::*;
use crate::{
    Damper, FailureClass, Idempotency, Profile,
    core::Switch,
    fake::{Fake, Step, granted},
};

type Answer = Result<Response<&'static str>, std::io::Error>;

/// A service that answers as scripted and remembers what it was sent.
#[derive(Clone)]
struct Scripted {
    answer: Arc<dyn Fn(u32) -> Answer + Send + Sync>,
    calls: Arc<AtomicU32>,
    bytes: Arc<AtomicU32>,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
    trailers: Arc<Mutex<Vec<Option<HeaderMap>>>>,
}

impl Scripted {
    fn new(answer: impl Fn(u32) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            calls: Arc::default(),
            bytes: Arc::default(),
            headers: Arc::default(),
            trailers: Arc::default(),
        }
    }

    /// This header of each request.
    fn received(&self, name: &str) -> Vec<Option<String>> {
        let text = |headers: &HeaderMap| Some(headers.get(name)?.to_str().unwrap().to_owned());
        self.headers.lock().iter().map(text).collect()
    }
}

impl<B> Service<Request<B>> for Scripted
where
    B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
{
    type Response = Response<&'static str>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            this.headers.lock().push(request.headers().clone());
            let body = request.into_body().collect().await.unwrap();
            this.trailers.lock().push(body.trailers().cloned());
            let body = body.to_bytes();
            this.bytes.fetch_add(u32::try_from(body.len()).unwrap(), Relaxed);
            (this.answer)(this.calls.fetch_add(1, Relaxed) + 1)
        })
    }
}

fn status(code: u16) -> Answer {
    Ok(Response::builder().status(code).body("body").unwrap())
}

fn dependency() -> Dependency {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    Damper::builder("").build_over(fake, Switch::On).dependency("d")
}

fn request<B>(method: &str, body: B) -> Request<B> {
    Request::builder().method(method).uri("http://d/").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_in_memory_is_sent_again_and_the_answer_comes_through() {
    let service = Scripted::new(|call| status(if call < 3 { 503 } else { 200 }));
    let dependency = dependency();
    let mut retry = RetryLayer::new(dependency.clone()).layer(service.clone());
    let response = retry.call(request("PUT", Full::from("12345"))).await.unwrap();
    assert_eq!((response.status().as_u16(), *response.body()), (200, "body"));
    assert_eq!((service.calls.load(Relaxed), service.bytes.load(Relaxed)), (3, 15));
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical, totals.recovered), (1, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_response_is_an_answer_and_an_unsafe_request_is_sent_once() {
    for (method, calls) in [("POST", 1), ("GET", 4)] {
        let service = Scripted::new(|_| status(503));
        let mut retry = RetryLayer::new(dependency()).layer(service.clone());
        let response = retry.call(request(method, Full::from(""))).await.unwrap();
        assert_eq!((response.status().as_u16(), service.calls.load(Relaxed)), (503, calls), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_below_keeps_its_place_as_the_source() {
    let service = Scripted::new(|_| Err(std::io::ErrorKind::ConnectionRefused.into()));
    let layer = RetryLayer::new(dependency()).shape(|operation| operation.profile(Profile::interactive()));
    let error = layer.layer(service.clone()).call(request("POST", Full::from("x"))).await.unwrap_err();
    let RetryError::Stopped(error) = error else { panic!("{error}") };
    assert_eq!((error.attempts, service.calls.load(Relaxed)), (2, 2), "refused connections were never sent");
    assert_eq!(error.failure.as_ref().map(|failure| failure.class), Some(FailureClass::Transient));
    let io = error.source().and_then(Error::source).and_then(|error| error.downcast_ref::<std::io::Error>());
    assert_eq!(io.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_twice_is_sent_once_and_counted() {
    let service = Scripted::new(|_| status(503));
    let dependency = dependency();
    let layer = RetryLayer::new(dependency.clone());
    let stream = StreamBody::new(futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(
        Bytes::from_static(b"abc"),
    ))]));
    layer.layer(service.clone()).call(request("PUT", stream)).await.unwrap();
    assert_eq!((service.calls.load(Relaxed), service.bytes.load(Relaxed)), (1, 3));
    for (size, calls) in [(64 * 1024, 4), (64 * 1024 + 1, 1)] {
        let service = Scripted::new(|_| status(503));
        layer.layer(service.clone()).call(request("PUT", Full::from(vec![0; size]))).await.unwrap();
        assert_eq!(service.calls.load(Relaxed), calls, "{size}");
    }
    assert_eq!(dependency.not_replayable(), 2);
    layer.layer(Scripted::new(|_| status(200))).call(request("GET", Empty::new())).await.unwrap();
    assert_eq!(dependency.not_replayable(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_cut_off_at_the_deadline() {
    #[derive(Clone)]
    struct Hangs;
    impl Service<Request<ReplayBody<Full<Bytes>>>> for Hangs {
        type Response = Response<()>;
        type Error = std::io::Error;
        type Future = std::future::Pending<Result<Response<()>, std::io::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
            Poll::Pending
        }
        fn call(&mut self, _: Request<ReplayBody<Full<Bytes>>>) -> Self::Future {
            std::future::pending()
        }
    }
    let layer = RetryLayer::new(dependency())
        .shape(|operation| operation.deadline(std::time::Duration::from_millis(50)));
    let error = layer.layer(Hangs).call(request("GET", Full::from(""))).await.unwrap_err();
    assert!(
        matches!(error, RetryError::Stopped(error) if error.reason == crate::StopReason::DeadlineExceeded)
    );
}

/// What a request has for a key, what the shape makes of it, and what each attempt carries.
#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_keyed_request_carries_its_key() {
    let cases = [
        (None, Idempotency::keyed("order \"42\""), Some(r#""order \"42\"""#), 3),
        (Some("raw"), Idempotency::keyed("other"), Some("raw"), 3),
        (None, Idempotency::Idempotent, None, 3),
        (None, Idempotency::Unsafe, None, 1),
    ];
    for (own, idempotency, carried, attempts) in cases {
        let service = Scripted::new(|call| status(if call < 3 { 503 } else { 200 }));
        let layer =
            RetryLayer::new(dependency()).shape(move |operation| operation.idempotency(idempotency.clone()));
        let mut request = request("POST", Full::from("1"));
        request.headers_mut().extend(own.map(|key| (crate::policy::key::HEADER, key.parse().unwrap())));
        layer.layer(service.clone()).call(request).await.unwrap();
        let expected = vec![carried.map(str::to_owned); attempts];
        assert_eq!(service.received("idempotency-key"), expected, "{own:?} {carried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_sent_is_an_error_and_nothing_is() {
    let service = Scripted::new(|_| status(200));
    let dependency = dependency();
    let layer = RetryLayer::new(dependency.clone())
        .shape(|operation| operation.idempotency(Idempotency::keyed("order\n42")));
    let error = layer.layer(service.clone()).call(request("POST", Full::from("1"))).await.unwrap_err();
    let RetryError::Stopped(error) = error else { panic!("{error}") };
    assert_eq!((error.reason, error.attempts), (crate::StopReason::NotRetryable, 1));
    let last = error.last.as_ref().unwrap().to_string();
    assert!(last.contains(r#""order\n42" cannot be sent"#), "{last}");
    assert_eq!(service.calls.load(Relaxed), 0);
    assert_eq!(
        dependency.totals().failures,
        crate::Totals::default().failures,
        "no word about the dependency"
    );
}

#[tokio::test(start_paused = true)]
async fn the_shape_may_depend_on_the_request() {
    let layer =
        RetryLayer::new(dependency()).shape_with(|operation, request| match request.headers.get("order") {
            Some(order) if request.uri.path() == "/charge" => {
                operation.idempotency(Idempotency::keyed(order.to_str().unwrap()))
            }
            _ => operation,
        });
    for (path, expected) in [("/charge", Some("\"7\"".to_owned())), ("/other", None)] {
        let service = Scripted::new(|_| status(200));
        let request =
            Request::post(format!("http://d{path}")).header("order", "7").body(Full::from("")).unwrap();
        layer.layer(service.clone()).call(request).await.unwrap();
        assert_eq!(service.received("idempotency-key"), [expected], "{path}");
    }
}

/// The settings, and whether each of two hosts gets `Damper-Context` and `x-envoy-max-retries`.
#[tokio::test(start_paused = true)]
async fn headers_go_only_where_they_are_meant_to_go() {
    type Set = fn(RetryLayer) -> RetryLayer;
    type Told = (bool, bool);
    let cases: [(Set, Told, Told); 5] = [
        (|layer| layer, (false, false), (false, false)),
        (RetryLayer::propagate, (true, false), (true, false)),
        (|layer| layer.propagate_to([".internal"]), (true, false), (false, false)),
        (|layer| layer.propagate_to([".internal"]).silence_mesh(), (true, true), (false, false)),
        (RetryLayer::silence_mesh, (false, true), (false, true)),
    ];
    for (set, internal, public) in cases {
        for (uri, expected) in [("http://stock.internal:80/", internal), ("http://api.example/", public)] {
            let service = Scripted::new(|_| status(200));
            let request = Request::get(uri).body(Full::from("")).unwrap();
            set(RetryLayer::new(dependency())).layer(service.clone()).call(request).await.unwrap();
            let silenced = service.received("x-envoy-max-retries") == [Some("0".to_owned())];
            let told = service.received("damper-context")[0].is_some();
            assert_eq!((told, silenced), expected, "{uri}");
        }
    }
}

/// A body of so many bytes, of which these frames come before it fails or hangs.
struct Promised {
    size: u64,
    frames: Vec<Frame<Bytes>>,
    fails: bool,
}

impl Body for Promised {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.frames.pop() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if self.fails => Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            None if self.size == 0 => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.size)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_costs_the_deadline_and_no_attempt() {
    let service = Scripted::new(|_| status(200));
    let dependency = dependency();
    let half =
        || Promised { size: 10, frames: vec![Frame::data(Bytes::from_static(b"12345"))], fails: false };
    let deadline = std::time::Duration::from_millis(50);
    let layer = RetryLayer::new(dependency.clone()).shape(move |operation| operation.deadline(deadline));
    let start = tokio::time::Instant::now();
    let error = layer.layer(service.clone()).call(request("PUT", half())).await.unwrap_err();
    let RetryError::Stopped(error) = error else { panic!("{error}") };
    assert_eq!((error.reason, error.attempts), (crate::StopReason::DeadlineTooShort, 0));
    assert!(start.elapsed() >= deadline && start.elapsed() < 2 * deadline, "{:?}", start.elapsed());
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical, totals.slow, service.calls.load(Relaxed)), (1, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_not_the_dependency_s_fault() {
    let service = Scripted::new(|_| status(200));
    let dependency = dependency();
    let broken = Promised { size: 10, frames: vec![], fails: true };
    let error =
        RetryLayer::new(dependency.clone()).layer(service).call(request("PUT", broken)).await.unwrap_err();
    assert!(matches!(error, RetryError::Body(_)), "{error}");
    assert_eq!(dependency.totals(), crate::Totals::default());
}

/// The time that the body takes is the operation's.
#[tokio::test(start_paused = true)]
async fn what_the_body_leaves_is_left_for_the_attempts() {
    let slow = http_body_util::Limited::new(
        StreamBody::new(futures_util::stream::once(Box::pin(async {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc")))
        }))),
        8,
    );
    let service = Scripted::new(|_| status(200));
    let layer = RetryLayer::new(dependency())
        .shape(|operation| operation.deadline(std::time::Duration::from_millis(50)))
        .propagate();
    layer.layer(service.clone()).call(request("PUT", slow)).await.unwrap();
    assert_eq!(service.received("damper-timeout-ms"), [Some("20".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn trailers_are_sent_with_every_attempt() {
    let trailers: HeaderMap = [(http::header::ETAG, "checksum".parse().unwrap())].into_iter().collect();
    for data in ["", "12345"] {
        let service = Scripted::new(|call| status(if call < 3 { 503 } else { 200 }));
        let body = Full::from(data).with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        // Its size is not known once it has trailers, unless somebody limits it.
        let body = http_body_util::Limited::new(body, 5);
        RetryLayer::new(dependency()).layer(service.clone()).call(request("PUT", body)).await.unwrap();
        assert_eq!(service.bytes.load(Relaxed) as usize, 3 * data.len());
        assert_eq!(*service.trailers.lock(), vec![Some(trailers.clone()); 3], "{data:?}");
    }
}

#[test]
fn a_whole_body_knows_its_size() {
    let whole = Whole::default();
    assert_eq!((whole.is_end_stream(), whole.size_hint().exact()), (true, Some(0)));
}
