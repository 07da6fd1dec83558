//! How long a response asks to be left alone.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, header};

use super::rules::StatusRules;
use crate::retry_after;

/// Headers of some services that say milliseconds.
const MILLISECONDS: [&str; 3] = ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"];

/// How far the clocks of two machines that both work can be apart: a wrong time zone is the worst.
const MOST_SKEW: Duration = Duration::from_secs(86_400);

/// A pause, and how many headers could not be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) pause: Option<Duration>,
    pub(super) unread: u32,
}

/// The exact header if it counts at all, else the longest valid `Retry-After`, else the hint of `RateLimit`.
pub(super) fn of(headers: &HeaderMap, rules: StatusRules, now: SystemTime) -> Asked {
    let ms = if rules.millisecond_headers { milliseconds(headers) } else { Asked::default() };
    let now = date(headers, now).unwrap_or(now);
    let retry_after = headers.get_all(header::RETRY_AFTER).iter();
    let whole = longest(retry_after.map(|value| retry_after::parse(value.as_bytes(), now)));
    let pause = ms.pause.or(whole.pause).or_else(|| rate_limit(headers));
    Asked {
        pause: pause.map(|pause| pause.min(retry_after::LONGEST)),
        unread: ms.unread.saturating_add(whole.unread),
    }
}

fn milliseconds(headers: &HeaderMap) -> Asked {
    let values = MILLISECONDS.iter().flat_map(|name| headers.get_all(*name));
    let read = |value: &HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes()).ok()?.trim_matches([' ', '\t']);
        retry_after::digits(text).map(Duration::from_millis)
    };
    longest(values.map(read))
}

fn longest(values: impl Iterator<Item = Option<Duration>>) -> Asked {
    values.fold(Asked::default(), |sum, value| match value {
        Some(pause) => Asked { pause: sum.pause.max(Some(pause)), ..sum },
        None => Asked { unread: sum.unread.saturating_add(1), ..sum },
    })
}

/// The dependency's own clock, so that a wrong local one does no harm. One that is more than a day off is no clock but
/// a cached page, a device that does not know the date, or junk.
fn date(headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    let date = httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()?;
    let off = date.duration_since(now).unwrap_or_else(|early| early.duration());
    (off <= MOST_SKEW).then_some(date)
}

/// `RateLimit: "burst";r=0;t=30` of the IETF draft: the longest reset of a quota that is used up.
fn rate_limit(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("ratelimit").iter().filter_map(|line| line.to_str().ok());
    let resets = lines.flat_map(|line| {
        let plain = unquoted(line);
        let resets: Vec<u64> = plain.split(',').filter_map(reset).collect();
        resets
    });
    resets.max().map(Duration::from_secs)
}

fn reset(quota: &str) -> Option<u64> {
    let of = |name: &str| {
        let values = quota.split(';').skip(1).filter_map(|part| part.trim().strip_prefix(name));
        values.last().and_then(retry_after::digits)
    };
    let used_up = of("r=").is_none_or(|left| left == 0);
    if used_up { of("t=") } else { None }
}

/// Without the quoted names, in which separators have no meaning.
fn unquoted(line: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    let outside = |sign: &char| {
        let was_quoted = quoted;
        quoted ^= *sign == '"' && !escaped;
        escaped = quoted && *sign == '\\' && !escaped;
        !was_quoted && *sign != '"'
    };
    line.chars().filter(outside).collect()
}
