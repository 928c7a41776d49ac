//! Which URLs may carry credentials and commands.

use std::net::IpAddr;

/// Whether nobody on the way can read or change what is sent to a URL: HTTPS, or a server on the same machine.
pub fn is_secure_url(url: &str) -> bool {
    if url.contains(char::is_whitespace) {
        return false;
    }
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    if let Some(rest) = url.strip_prefix("https://") {
        return !authority(rest).is_empty();
    }
    url.strip_prefix("http://").is_some_and(|rest| is_loopback(&authority(rest)))
}

/// `HOST` or `HOST:PORT`. A user name before the host is not accepted: `localhost@elsewhere.example` is elsewhere.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    !authority.contains('@')
        && (host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_secure_on_the_same_machine_only() {
        for url in [
            "https://ghe.example.org/api/v3",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:8081",
            "http://127.9.9.9",
            "http://localhost/x?y#z",
            "http://LOCALHOST:1",
            "http://[::1]:8080/",
            "http://[::1]",
        ] {
            assert!(is_secure_url(url), "{url}");
        }
        for url in [
            "http://jenkins.example",
            "http://10.0.0.1:8080",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "http://localhost:1@evil.example",
            "http://127.0.0.1.evil.example",
            "http://[::1]evil.example",
            "http://[::2]",
            "http://",
            "https://",
            "https:///path",
            "https://a b",
            "ftp://127.0.0.1",
            "jenkins.example",
            "",
        ] {
            assert!(!is_secure_url(url), "{url}");
        }
    }
}
