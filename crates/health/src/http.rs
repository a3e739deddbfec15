//! The HTTP of a probe: a request, and the part of the answer up to its status (RFC 9112).

use crate::settings::HttpProbe;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// Maximum number of bytes of an answer to examine: its status line, and interim answers before it.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of bytes to show an operator of an answer that isn't HTTP.
const SHOWN_BYTES: usize = 40;

/// The request to `server`. `default_port` is the scheme's, which `Host` leaves out (RFC 9110, section 7.2).
fn request(probe: &HttpProbe, server: SocketAddr, default_port: u16) -> String {
    let HttpProbe { path, user_agent, .. } = probe;
    let host = match server.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let port = server.port();
    let port = if port == default_port { String::new() } else { format!(":{port}") };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: {user_agent}\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    )
}

/// A request, with the received part of its answer: it can be interrupted at any byte, and
/// continued.
#[derive(Debug)]
pub struct Exchange {
    request: String,
    sent_bytes: usize,
    head: Vec<u8>,
    expect_status: u16,
}

impl Exchange {
    /// The exchange of `probe` with `server`, without anything sent yet.
    pub fn new(probe: &HttpProbe, server: SocketAddr, default_port: u16) -> Self {
        let request = request(probe, server, default_port);
        Self { request, sent_bytes: 0, head: Vec::new(), expect_status: probe.expect_status }
    }

    /// Sends the request, and reads up to the status.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is more to come. The stream's error, or
    /// [`ErrorKind::Other`] with a text if the answer doesn't have the expected status.
    pub fn advance<S: Read + Write>(&mut self, stream: &mut S) -> io::Result<()> {
        while self.sent_bytes < self.request.len() {
            self.sent_bytes += stream.write(&self.request.as_bytes()[self.sent_bytes..])?;
        }
        stream.flush()?;
        let mut chunk = [0; 1024];
        while !self.is_answered()? {
            match stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.head.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }

    /// Whether the expected status has come.
    fn is_answered(&self) -> io::Result<bool> {
        let (head, expected) = (&self.head, self.expect_status);
        match Answer::read(head, expected) {
            Answer::Partial if head.len() >= HEAD_BYTES_MAX => Err(io::Error::other(format!(
                "no status within {HEAD_BYTES_MAX} bytes of the answer"
            ))),
            Answer::Partial => Ok(false),
            Answer::Status(status) if status == expected => Ok(true),
            Answer::Status(status) => {
                Err(io::Error::other(format!("status {status}, expected {expected}")))
            }
            Answer::Foreign => {
                let shown = head[..head.len().min(SHOWN_BYTES)].escape_ascii();
                Err(io::Error::other(format!("not HTTP/1: the answer begins \"{shown}\"")))
            }
        }
    }
}

/// The beginning of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    /// Not enough yet.
    Partial,
    /// The status. Interim answers (1xx) before it are skipped, unless one is expected.
    Status(u16),
    /// The answer isn't HTTP/1.
    Foreign,
}

impl Answer {
    fn read(mut head: &[u8], expect_status: u16) -> Self {
        loop {
            match status_line(head) {
                Self::Status(status) if (100..200).contains(&status) && status != expect_status => {
                    match end_of_fields(head) {
                        Some(end) => head = &head[end..],
                        None => return Self::Partial,
                    }
                }
                answer => return answer,
            }
        }
    }
}

/// Reads `HTTP/1.1 200 OK` and the end of its line; the reason phrase may be missing.
fn status_line(head: &[u8]) -> Answer {
    /// `d` stands for a digit.
    const SHAPE: &[u8] = b"HTTP/1.d ddd";
    let fits = |(&byte, &shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        _ => byte == shape,
    };
    if !head.iter().zip(SHAPE).all(fits) {
        return Answer::Foreign;
    }
    let Some((line, rest)) = head.split_at_checked(SHAPE.len()) else { return Answer::Partial };
    match rest.first() {
        None => Answer::Partial,
        Some(b' ' | b'\r' | b'\n') if rest.contains(&b'\n') => {
            let digits = line[line.len() - 3..].iter();
            Answer::Status(digits.fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
        }
        Some(b' ' | b'\r' | b'\n') => Answer::Partial,
        Some(_) => Answer::Foreign,
    }
}

/// The end of the empty line after a head; lines may end in a bare line feed (RFC 9112, section
/// 2.2).
fn end_of_fields(head: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let line_bytes = head[end..].iter().position(|&byte| byte == b'\n')? + 1;
        let line = &head[end..end + line_bytes];
        end += line_bytes;
        if matches!(line, b"\n" | b"\r\n") {
            return Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Answer::{Foreign, Partial, Status};

    /// Answers, and their results if 200 is expected.
    const ANSWERS: &[(&[u8], Answer)] = &[
        (b"HTTP/1.1 200 OK\r\n", Status(200)),
        (b"HTTP/1.0 404 \r\nmore", Status(404)),
        (b"HTTP/1.1 503\r\n", Status(503)),
        (b"HTTP/1.1 204\n", Status(204)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\n", Status(200)),
        (b"HTTP/1.1 100 Continue\n\nHTTP/1.1 101 Odd\r\n\r\nHTTP/1.1 500 No\r\n", Status(500)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", Partial),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Foreign),
        (b"HTTP/2 200\r\n", Foreign),
        (b"HTTP/1.1 2000 OK\r\n", Foreign),
        (b"HTTP/1.1 20x OK\r\n", Foreign),
        (b"HTTP/1.1 100 Continue\r\n\r\nnonsense", Foreign),
        (b"\r\nHTTP/1.1 200 OK\r\n", Foreign),
    ];

    #[test]
    fn an_answer_is_read_whatever_pieces_it_comes_in() {
        for &(answer, expected) in ANSWERS {
            assert_eq!(Answer::read(answer, 200), expected, "{}", answer.escape_ascii());
            let mut before = Partial;
            for count in 0..=answer.len() {
                let now = Answer::read(&answer[..count], 200);
                assert!(before == Partial || now == before, "{} at {count}", answer.escape_ascii());
                before = now;
            }
        }
    }

    #[test]
    fn an_interim_status_passes_where_it_is_expected() {
        let answer = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(Answer::read(answer, 101), Status(101));
        assert_eq!(Answer::read(answer, 200), Partial);
    }

    #[test]
    fn the_request_names_the_host_as_urls_do() {
        let probe =
            HttpProbe { path: "/healthz?deep=1".into(), expect_status: 200, user_agent: "test" };
        let host = |address: &str, port, default_port| {
            let server = SocketAddr::new(address.parse().unwrap(), port);
            let request = request(&probe, server, default_port);
            assert!(request.starts_with("GET /healthz?deep=1 HTTP/1.1\r\nHost: "), "{request}");
            assert!(request.ends_with("\r\nConnection: close\r\n\r\n"), "{request}");
            request.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(host("10.0.0.1", 80, 80), "Host: 10.0.0.1");
        assert_eq!(host("10.0.0.1", 8080, 80), "Host: 10.0.0.1:8080");
        assert_eq!(host("2001:db8::1", 443, 443), "Host: [2001:db8::1]");
        assert_eq!(host("2001:db8::1", 80, 443), "Host: [2001:db8::1]:80");
    }
}
