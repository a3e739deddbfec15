//! The part of HTTP/1.1 (RFC 9112) that a scrape needs: one request per connection, without a body.

use crate::family::Format;

/// The longest head of a request, in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// The meaning of the bytes that a client has sent so far.
#[derive(Debug, Eq, PartialEq)]
pub enum Head {
    /// The head is incomplete.
    Partial,
    /// A request for the metrics in a format.
    Scrape(Format),
    /// Any other request, or no valid one: a status and a remedy.
    Refused(&'static str, &'static str),
}

impl Head {
    /// Parses the head of a request.
    pub fn read(bytes: &[u8]) -> Self {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() < HEAD_BYTES_MAX {
                Self::Partial
            } else {
                Self::Refused("431 Request Header Fields Too Large", "send fewer header fields")
            };
        };
        let malformed = Self::Refused("400 Bad Request", "send GET /metrics HTTP/1.1");
        let Ok(head) = std::str::from_utf8(&bytes[..end]) else { return malformed };
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return malformed;
        };
        if !version.starts_with("HTTP/1.") {
            return malformed;
        }
        if target.split('?').next() != Some("/metrics") {
            return Self::Refused("404 Not Found", "the metrics are at /metrics");
        }
        if method != "GET" {
            return Self::Refused("405 Method Not Allowed", "use GET");
        }
        let mut fields = lines.filter_map(|line| line.split_once(':'));
        let wants_open_metrics = fields.any(|(name, value)| {
            name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
        });
        Self::Scrape(if wants_open_metrics { Format::OpenMetrics } else { Format::Text })
    }
}

/// The answer to a scrape.
pub fn found(format: Format, body: &str) -> Vec<u8> {
    let content_type = match format {
        Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };
    response("200 OK", content_type, body)
}

/// The answer to any other request.
pub fn refused(status: &str, what: &str) -> Vec<u8> {
    let allow = if status.starts_with("405") { "\r\nAllow: GET" } else { "" };
    response(status, &format!("text/plain; charset=utf-8{allow}"), &format!("{what}\n"))
}

fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_told_from_everything_else() {
        let text = Head::Scrape(Format::Text);
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", text),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", Head::Scrape(Format::Text)),
            (
                "GET /metrics HTTP/1.1\r\nACCEPT: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n",
                Head::Scrape(Format::OpenMetrics),
            ),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Head::Partial),
            ("", Head::Partial),
        ] {
            assert_eq!(Head::read(request.as_bytes()), expected, "{request}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            (long.as_str(), "431"),
        ] {
            let Head::Refused(found, what) = Head::read(request.as_bytes()) else {
                panic!("{request}")
            };
            assert!(found.starts_with(status), "{request}: {found}");
            let answer = String::from_utf8(refused(found, what)).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert_eq!(answer.contains("\r\nAllow: GET\r\n"), status == "405", "{answer}");
        }
        let Head::Refused(status, _) = Head::read(b"\xff\r\n\r\n") else { panic!("accepted") };
        assert_eq!(status, "400 Bad Request");
    }
}
