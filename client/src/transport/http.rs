//! The transport over HTTP.

mod io;

use std::time::Duration;

use damper_protocol::{AskRequest, ReturnRequest, SyncRequest, SyncResponse, problem::Problem};
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;

use super::{Bytestream, Fault, Pending, Transport};
use crate::{clock, retry_after};

/// An endpoint that takes longer to connect to is as good as dead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest answer to an ask.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Largest answer to a sync.
const MAX_SYNC_BYTES: usize = 4 * 1024 * 1024;

/// How long a busy server is left alone that does not say.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// A connection pool and the addresses of the calls. They may hold a password, and are never printed.
pub(crate) struct Http {
    client: Client,
    tokens: Url,
    returns: Url,
    sync: Url,
    watch: Url,
}

impl Http {
    /// Builds the pool; no connection is made. The client's own re-sends are switched off: they would be hidden
    /// repeats of an ask.
    pub(crate) fn new(
        endpoint: &Url,
        tenant: Option<&str>,
        authorization: Option<HeaderValue>,
    ) -> Result<Self, reqwest::Error> {
        let headers = authorization.map(|value| (header::AUTHORIZATION, value)).into_iter().collect();
        let client = Client::builder()
            .retry(reqwest::retry::never())
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let at = |path: &str| {
            let mut url = endpoint.clone();
            url.set_path(&format!("{}/{path}", endpoint.path().trim_end_matches('/')));
            url
        };
        let mut watch = at("v1/watch");
        if let Some(tenant) = tenant {
            watch.query_pairs_mut().append_pair("tenant", tenant);
        }
        Ok(Self {
            client,
            tokens: at("v1/tokens"),
            returns: at("v1/tokens/return"),
            sync: at("v1/sync"),
            watch,
        })
    }
}

impl Transport for Http {
    fn ask(&self, ask: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        let request = self.client.post(self.tokens.clone()).json(ask);
        let admitted = async {
            let response = send(request).await?;
            Ok(read(response, MAX_ANSWER_BYTES).boxed())
        };
        admitted.boxed()
    }

    fn give_back(&self, token: String) -> BoxFuture<'static, ()> {
        let request = self.client.post(self.returns.clone()).json(&ReturnRequest { token });
        async { drop(io::guarded(request.timeout(CONNECT_TIMEOUT).send()).await) }.boxed()
    }

    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        let request = self.client.post(self.sync.clone()).json(sync);
        async { read(send(request).await?, MAX_SYNC_BYTES).await }.boxed()
    }

    fn watch(&self, last_id: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        let mut request = self.client.get(self.watch.clone()).header(header::ACCEPT, "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let opened = async {
            let response = send(request).await?;
            if response.status() != StatusCode::OK || !is_event_stream(&response) {
                return Err(Fault::Rejected(response.status().as_u16()));
            }
            Ok(response.bytes_stream().map_err(|_| Fault::NoAnswer).boxed())
        };
        opened.boxed()
    }
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// A response with a success status, or what its failure means.
async fn send(request: RequestBuilder) -> Result<Response, Fault> {
    let response = io::guarded(request.send()).await?.map_err(|error| match error.is_connect() {
        true => Fault::Unreachable,
        false => Fault::NoAnswer,
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    match status.as_u16() {
        429 => Err(Fault::Busy(pause(response).await.unwrap_or(BUSY_FOR))),
        // Without a pause it need not be the server's own: something on the way answers for one that is not there.
        503 => Err(pause(response).await.map_or(Fault::NoAnswer, Fault::Unavailable)),
        408 => Err(Fault::NoAnswer),
        status @ 300..=499 => Err(Fault::Rejected(status)),
        _ => Err(Fault::NoAnswer),
    }
}

/// The milliseconds of the problem, else the seconds of the header.
async fn pause(response: Response) -> Option<Duration> {
    let header = response.headers().get(header::RETRY_AFTER);
    let header = header.and_then(|value| retry_after::parse(value.as_bytes(), clock::wall()));
    let problem = read::<Problem>(response, MAX_ANSWER_BYTES).await.ok();
    let exact = problem.and_then(|problem| problem.retry_after_ms).map(Duration::from_millis);
    exact.or(header)
}

/// Reads a bounded body.
async fn read<T: DeserializeOwned>(mut response: Response, most: usize) -> Result<T, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Fault::NoAnswer)? {
        if body.len().saturating_add(chunk.len()) > most {
            return Err(Fault::NoAnswer);
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|_| Fault::NoAnswer)
}

#[cfg(test)]
mod tests;
