//! What comes too late, or breaks while the connection is made. Time is virtual, or stands still until the answer has
//! begun.

use std::{io::ErrorKind, time::Duration};

use damper_client::{
    Damper, Deadline, Dispatch, Failure, FailureClass as Class, FailureReason,
    reqwest_middleware::client_builder,
};

use crate::{
    meaning,
    wire::{Undecided, Unresolvable, stalling},
};

const URL: &str = "http://nowhere.test/";

/// The connect timeout of `client_builder` is what tells a connection that was never made from a request that hangs.
#[tokio::test(start_paused = true)]
async fn a_connect_timeout_has_sent_nothing() {
    let client = client_builder().no_proxy().dns_resolver(Undecided).build().unwrap();
    let start = tokio::time::Instant::now();
    let failure = meaning(&client, URL).await;
    assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::NotSent), "{failure:?}");
    assert!((4..7).contains(&start.elapsed().as_secs()), "five seconds: {:?}", start.elapsed());
}

/// A client whose total timeout is the shorter one does not say that it was still connecting.
#[tokio::test(start_paused = true)]
async fn a_total_timeout_while_connecting_is_ambiguous() {
    let client =
        client_builder().no_proxy().dns_resolver(Undecided).timeout(Duration::from_secs(1)).build().unwrap();
    let failure = meaning(&client, URL).await;
    assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::Ambiguous), "{failure:?}");
    assert_eq!(failure.reason, Some(FailureReason::Timeout));
}

/// What would be ambiguous on a connection is not while there is none.
#[tokio::test]
async fn a_connection_that_breaks_while_it_is_made_has_sent_nothing() {
    let kinds = [
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::TimedOut,
        ErrorKind::UnexpectedEof,
        ErrorKind::HostUnreachable,
    ];
    for kind in kinds {
        let client = client_builder().no_proxy().dns_resolver(Unresolvable(kind)).build().unwrap();
        let failure = meaning(&client, URL).await;
        assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::NotSent), "{kind:?}");
    }
}

/// A body that stops half-way is seen only by whoever reads it inside the attempt.
#[tokio::test]
async fn a_body_that_stalls_is_ambiguous_and_late() {
    let url = stalling(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await;
    let client = client_builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    let read = |_| async {
        let response = client.get(&url).send().await?;
        assert_eq!(response.status(), 200);
        // The head is there: from here on, time may pass.
        tokio::time::pause();
        response.bytes().await
    };
    let operation =
        Damper::inert().dependency("d").operation("get").deadline(Deadline::after(Duration::from_secs(600)));
    let failure: Failure = *operation.call(read).await.unwrap_err().failure.unwrap();
    assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::Ambiguous), "{failure:?}");
    assert_eq!((failure.reason, failure.caller_rejected), (Some(FailureReason::Timeout), false));
}
