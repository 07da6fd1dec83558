//! Answers that come before the body is through, to requests that expect `100 Continue` first.

use std::time::Duration;

use damper_client::{
    Damper, Dispatch, Failure, FailureClass as Class, StatusRules, reqwest_middleware::client_builder,
};

use crate::wire::{Rest, early};

/// More than the sockets hold.
const LARGE: usize = 16 * 1024 * 1024;

/// What becomes of a POST of so many bytes. Servers wait for them: a client that did so too would hang.
async fn post(url: &str, bytes: usize) -> Result<(), Failure> {
    let client = client_builder().no_proxy().build().unwrap();
    let request = |_| client.post(url).header("expect", "100-continue").body(vec![b'x'; bytes]).send();
    let operation = Damper::inert().dependency("d").operation("post").classifier(StatusRules::new());
    operation.call(request).await.map(drop).map_err(|error| *error.failure.unwrap())
}

/// The head of an answer, and what it means.
type Refusal = (&'static [u8], (Class, Dispatch, Option<Duration>));

fn refusals() -> [Refusal; 5] {
    let pause = Some(Duration::from_secs(7));
    [
        (b"417 Expectation Failed\r\n", (Class::Invalid, Dispatch::Processed, None)),
        (b"401 Unauthorized\r\n", (Class::Permission, Dispatch::Processed, None)),
        (b"413 Content Too Large\r\n", (Class::Invalid, Dispatch::Processed, None)),
        (b"413 Content Too Large\r\nretry-after: 7\r\n", (Class::Transient, Dispatch::Processed, pause)),
        (b"503 Service Unavailable\r\nretry-after: 7\r\n", (Class::Transient, Dispatch::Ambiguous, pause)),
    ]
}

fn answer(head: &[u8]) -> &'static [u8] {
    [b"HTTP/1.1 ", head, b"content-length: 0\r\n\r\n"].concat().leak()
}

#[tokio::test]
async fn an_early_answer_counts_by_its_status() {
    for (head, expected) in refusals() {
        for (bytes, rest) in [(9, Rest::Left), (LARGE, Rest::Left), (LARGE, Rest::Read)] {
            let failure = post(&early(answer(head), rest).await, bytes).await.unwrap_err();
            let seen = (failure.class, failure.dispatch, failure.retry_after);
            assert_eq!(seen, expected, "{} {bytes} {rest:?}", String::from_utf8_lossy(head));
        }
    }
}

/// Whether the answer or the broken connection is seen is a race; either way the request was sent.
#[tokio::test]
async fn a_server_that_hangs_up_on_the_body_leaves_it_open_what_became_of_it() {
    let open = (Class::Transient, Dispatch::Ambiguous);
    for (head, (class, dispatch, _)) in refusals() {
        let failure = post(&early(answer(head), Rest::Cut).await, LARGE).await.unwrap_err();
        let seen = (failure.class, failure.dispatch);
        assert!(seen == open || seen == (class, dispatch), "{failure:?}");
    }
    let failure = post(&early(b"", Rest::Cut).await, LARGE).await.unwrap_err();
    assert_eq!((failure.class, failure.dispatch), open, "the answer is lost for certain: {failure:?}");
}

#[tokio::test]
async fn a_go_ahead_is_no_answer() {
    let go_ahead: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let created = [go_ahead, b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n"].concat().leak();
    post(&early(created, Rest::Read).await, LARGE).await.unwrap();
    let failure = post(&early(go_ahead, Rest::Cut).await, 9).await.unwrap_err();
    assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::Ambiguous));
}
