//! Addresses on the command lines of both programs.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// An address, with a port or without: 192.0.2.1, 192.0.2.1:53, 2001:db8::1, \[2001:db8::1]:53.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The port, from 1.
    pub port: Option<u16>,
}

/// A text that is not an address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "write an address, with a port from 1 to 65535 or without: 192.0.2.1, 192.0.2.1:53, [2001:db8::1]:53"
)]
pub struct BadAddress;

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let unbracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = unbracketed.unwrap_or(text).parse() {
            return Ok(Self { ip, port: None });
        }
        let address: SocketAddr = text.parse().map_err(|_| BadAddress)?;
        if address.port() == 0 {
            return Err(BadAddress);
        }
        Ok(Self { ip: address.ip(), port: Some(address.port()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        let read = |text: &str| {
            text.parse::<Address>().map(|address| (address.ip.to_string(), address.port))
        };
        for (text, ip, port) in [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:53", "192.0.2.1", Some(53)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:53", "2001:db8::1", Some(53)),
        ] {
            assert_eq!(read(text), Ok((ip.to_owned(), port)));
        }
        for text in ["", "host", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2"] {
            assert_eq!(read(text), Err(BadAddress), "{text}");
        }
    }
}
