use std::{io, sync::Arc};

use http::HeaderMap;
use parking_lot::Mutex;
use reqwest_middleware::ClientWithMiddleware;

use super::*;
use crate::{
    Damper, Idempotency, Profile, StopReason,
    core::Switch,
    fake::{Fake, Step, answer, granted},
};

type Answer = std::result::Result<u16, io::ErrorKind>;

/// Headers and body of a request.
type Seen = (HeaderMap, Option<Vec<u8>>);

/// Answers in place of the network, as scripted, and remembers what it was sent.
#[derive(Clone)]
struct Scripted {
    answer: fn(usize) -> Answer,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Scripted {
    fn new(answer: fn(usize) -> Answer) -> Self {
        Self { answer, seen: Arc::default() }
    }

    fn calls(&self) -> usize {
        self.seen.lock().len()
    }

    /// This header of each request.
    fn received(&self, name: &str) -> Vec<Option<String>> {
        let text = |headers: &HeaderMap| Some(headers.get(name)?.to_str().unwrap().to_owned());
        self.seen.lock().iter().map(|(headers, _)| text(headers)).collect()
    }

    fn behind(&self, retry: Retry) -> ClientWithMiddleware {
        let client = client_builder().no_proxy().build().unwrap();
        reqwest_middleware::ClientBuilder::new(client).with(retry).with(self.clone()).build()
    }
}

#[async_trait]
impl Middleware for Scripted {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let body = request.body().and_then(reqwest::Body::as_bytes).map(<[u8]>::to_vec);
        let call = {
            let mut seen = self.seen.lock();
            seen.push((request.headers().clone(), body));
            seen.len()
        };
        match (self.answer)(call) {
            Ok(status) => Ok(http::Response::builder().status(status).body("body").unwrap().into()),
            Err(kind) => Err(Error::middleware(io::Error::from(kind))),
        }
    }
}

fn dependency() -> Dependency {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    Damper::builder("").build_over(fake, Switch::On).dependency("d")
}

const URL: &str = "http://d.test/charge";

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_keyed_request_carries_its_key_and_body() {
    let service = Scripted::new(|call| Ok(if call < 3 { 503 } else { 200 }));
    let dependency = dependency();
    let retry = Retry::new(dependency.clone()).shape_with(|operation, request| {
        let order = request.url().path().trim_start_matches('/').to_owned();
        operation.idempotency(Idempotency::keyed(order))
    });
    let response = service.behind(retry.clone()).post(URL).body("12345").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(service.received("idempotency-key"), vec![Some("\"charge\"".to_owned()); 3]);
    assert!(service.seen.lock().iter().all(|(_, body)| body.as_deref() == Some(b"12345")));
    let own = Scripted::new(|_| Ok(200));
    own.behind(retry).post(URL).header("idempotency-key", "raw").send().await.unwrap();
    assert_eq!(own.received("idempotency-key"), [Some("raw".to_owned())]);
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical, totals.recovered), (2, 4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_sent_is_an_error_and_nothing_is() {
    let service = Scripted::new(|_| Ok(200));
    let retry = Retry::new(dependency()).shape(|operation| operation.idempotency(Idempotency::keyed("a\nb")));
    let error = service.behind(retry).post(URL).send().await.unwrap_err();
    assert!(error.to_string().contains(r#""a\nb" cannot be sent"#), "{error}");
    assert_eq!(service.calls(), 0);
}

/// The method, what it brings each time, and how often it is sent.
#[tokio::test(start_paused = true)]
async fn an_unsafe_request_is_repeated_only_if_it_never_left() {
    let failing: [fn(usize) -> Answer; 3] =
        [|_| Ok(503), |_| Err(io::ErrorKind::ConnectionReset), |_| Err(io::ErrorKind::ConnectionRefused)];
    for (method, calls) in [("POST", [1, 1, 4]), ("PATCH", [1, 1, 4]), ("GET", [4, 4, 4])] {
        for (answer, calls) in failing.into_iter().zip(calls) {
            let service = Scripted::new(answer);
            let client = service.behind(Retry::new(dependency()));
            let outcome = client.request(method.parse().unwrap(), URL).send().await;
            assert_eq!(service.calls(), calls, "{method} {outcome:?}");
            match outcome {
                Ok(response) => assert_eq!(response.status(), 503, "it comes through as it is"),
                Err(Error::Middleware(error)) => assert!(error.is::<io::Error>(), "{error:?}"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// The body, and how often it is sent.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_twice_is_sent_once_and_counted() {
    let streamed = || reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, io::Error>("abc")]));
    let cases: [(reqwest::Body, usize); 4] =
        [("".into(), 4), (vec![0; 64 * 1024].into(), 4), (vec![0; 64 * 1024 + 1].into(), 1), (streamed(), 1)];
    let dependency = dependency();
    for (body, calls) in cases {
        let service = Scripted::new(|_| Ok(503));
        let client = service.behind(Retry::new(dependency.clone()));
        let response = client.put(URL).body(body).send().await.unwrap();
        assert_eq!((response.status().as_u16(), service.calls()), (503, calls));
    }
    assert_eq!(dependency.not_replayable(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_of_the_middleware_unless_there_is_an_answer() {
    let fake = Fake::new(|_| {
        Step::at_once(Ok(answer(damper_protocol::Decision::Shed, damper_protocol::Reason::BudgetExhausted)))
    });
    let dependency = Damper::builder("").build_over(fake, Switch::On).dependency("d");
    let service = Scripted::new(|_| Ok(503));
    let response = service.behind(Retry::new(dependency.clone())).get(URL).send().await.unwrap();
    assert_eq!((response.status().as_u16(), service.calls()), (503, 1));

    let late = Retry::new(dependency).shape(|operation| operation.deadline(Duration::ZERO));
    let Err(Error::Middleware(error)) = service.behind(late).get(URL).send().await else {
        panic!("it was sent")
    };
    let error = error.downcast_ref::<CallError<Infallible>>().unwrap();
    assert_eq!((error.reason, error.attempts), (StopReason::DeadlineTooShort, 0));
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cut_off_is_an_error_of_the_middleware() {
    struct Hangs;
    #[async_trait]
    impl Middleware for Hangs {
        async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
            std::future::pending().await
        }
    }
    let retry = Retry::new(dependency()).shape(|operation| operation.deadline(Duration::from_millis(50)));
    let client = client_builder().no_proxy().build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(client).with(retry).with(Hangs).build();
    let Err(Error::Middleware(error)) = client.get(URL).send().await else { panic!("nothing answers") };
    let error = error.downcast_ref::<CallError<Infallible>>().unwrap();
    assert_eq!((error.reason, error.attempts), (StopReason::DeadlineExceeded, 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_error_comes_through_as_it_came() {
    let service = Scripted::new(|_| Err(io::ErrorKind::ConnectionRefused));
    let retry = Retry::new(dependency()).shape(|operation| operation.profile(Profile::interactive()));
    let Err(Error::Middleware(error)) = service.behind(retry).post(URL).send().await else {
        panic!("nobody is there")
    };
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(service.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn headers_go_only_to_listed_hosts() {
    let retry = Retry::new(dependency()).propagate_to(["stock.internal"]).silence_mesh();
    for (url, told) in [("http://stock.internal:80/", true), ("http://api.example/", false)] {
        let service = Scripted::new(|_| Ok(200));
        service.behind(retry.clone()).get(url).send().await.unwrap();
        for name in ["damper-context", "damper-timeout-ms", "baggage", "x-envoy-max-retries"] {
            assert_eq!(service.received(name)[0].is_some(), told, "{url} {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_inert_client_sends_the_key_and_nothing_else() {
    let service = Scripted::new(|_| Ok(200));
    let retry = Retry::new(Damper::inert().dependency("d"))
        .shape(|operation| operation.idempotency(Idempotency::keyed("k")))
        .propagate()
        .silence_mesh();
    service.behind(retry).post(URL).send().await.unwrap();
    let headers = service.seen.lock()[0].0.clone();
    let names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["idempotency-key"]);
}
