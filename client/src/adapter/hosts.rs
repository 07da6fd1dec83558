//! Where the headers of damper may go.

use std::{net::Ipv6Addr, sync::Arc};

use http::{HeaderMap, header, uri::Authority};

/// The hosts that are told who retries.
#[derive(Clone, Default)]
pub(crate) enum Hosts {
    #[default]
    None,
    All,
    /// Names, and domains with their leading dot; in lower case.
    Listed(Arc<[String]>),
}

impl Hosts {
    pub(crate) fn listed<I>(hosts: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::Listed(hosts.into_iter().map(|host| plain(&portless(host.as_ref()))).collect())
    }

    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether a request may be told so that goes to this host, or else to the one that its headers name.
    pub(crate) fn allow(&self, host: Option<&str>, headers: &HeaderMap) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Listed(hosts) => {
                let host = host.map(plain).or_else(|| of_headers(headers));
                host.is_some_and(|host| hosts.iter().any(|listed| is_in(&host, listed)))
            }
        }
    }
}

fn of_headers(headers: &HeaderMap) -> Option<String> {
    let authority: Authority = headers.get(header::HOST)?.to_str().ok()?.parse().ok()?;
    Some(plain(authority.host()))
}

/// What is listed as it stands in a URI: without its port, and an IPv6 address in its brackets.
fn portless(listed: &str) -> String {
    if listed.parse::<Ipv6Addr>().is_ok() {
        return format!("[{listed}]");
    }
    let host = listed.rsplit_once(':').filter(|(host, port)| {
        let is_whole = !host.contains(':') || host.ends_with(']');
        is_whole && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    host.map_or(listed, |(host, _)| host).to_owned()
}

/// A name with or without its last dot is the same.
fn plain(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// `.internal` lists all names below it.
fn is_in(host: &str, listed: &str) -> bool {
    match listed.starts_with('.') {
        true => host.ends_with(listed),
        false => host == listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host of the URI, the header, and whether they are told.
    #[test]
    fn only_listed_hosts_are_told() {
        let hosts = Hosts::listed(["Stock.internal", "10.0.0.7", "[::1]", ".svc.cluster.local"]);
        let cases = [
            (Some("stock.internal"), None, true),
            (Some("STOCK.internal."), None, true),
            (Some("10.0.0.7"), None, true),
            (Some("[::1]"), None, true),
            (Some("a.b.svc.cluster.local"), None, true),
            (Some("svc.cluster.local"), None, false),
            (Some("evil-svc.cluster.local"), None, false),
            (Some("stock.internal.example"), None, false),
            (Some("x.stock.internal"), None, false),
            (Some("a.svc.cluster.local.example"), None, false),
            (Some(""), None, false),
            (None, Some("stock.internal:8080"), true),
            (None, Some("api.example"), false),
            (None, Some("junk, junk"), false),
            (None, None, false),
            (Some("api.example"), Some("stock.internal"), false),
        ];
        for (host, header, told) in cases {
            let headers = header.map(|value| (header::HOST, value.parse().unwrap())).into_iter().collect();
            assert_eq!(hosts.allow(host, &headers), told, "{host:?} {header:?}");
            assert!(Hosts::All.allow(host, &headers) && !Hosts::None.allow(host, &headers));
        }
    }

    /// As it is listed, the host of the URI, and whether that is told.
    #[test]
    fn ports_do_not_count_in_the_list_either() {
        let cases = [
            ("stock.internal:8080", "stock.internal", true),
            ("Stock.internal.:8080", "stock.internal", true),
            (".internal:8080", "stock.internal", true),
            ("10.0.0.7:80", "10.0.0.7", true),
            ("[::1]:80", "[::1]", true),
            ("[FD00::7]:80", "[fd00::7]", true),
            ("::1", "[::1]", true),
            ("fd00::8080", "[fd00::8080]", true),
            ("fd00::8080", "[fd00::]", false),
            ("[fd00::80]", "[fd00::80]", true),
            ("stock.internal:http", "stock.internal", false),
            ("a:1:2", "a:1", false),
            (":80", "stock.internal", false),
        ];
        for (listed, host, told) in cases {
            assert_eq!(Hosts::listed([listed]).allow(Some(host), &HeaderMap::new()), told, "{listed} {host}");
        }
    }
}
