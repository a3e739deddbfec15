//! The live demo's client: curl.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::process;

use super::interrupt;
use super::network::Network;
use super::site::{BACKEND_COUNT, BACKENDS, CLIENT, PAGE_BYTES, VIPS};

/// How long a request may take, in seconds.
const REQUEST_S_MAX: &str = "5";

/// How many pages came from each backend.
pub type Tally = [usize; BACKEND_COUNT];

/// A service's URL. `family` is 0 for IPv4, 1 for IPv6.
fn url(family: usize, path: &str) -> String {
    let vip = VIPS[family];
    if family == 0 { format!("http://{vip}/{path}") } else { format!("http://[{vip}]/{path}") }
}

/// What curl makes of a request; what it says where it fails.
fn curl(network: &Network, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = network.program(CLIENT.host, "curl");
    command.args(["--silent", "--show-error", "--fail", "--globoff"]).args(arguments);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| process::not_started(&command, &error).to_string())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("curl: {}: {}", output.status, said.trim()))
}

/// Fetches a page over a connection of its own, and says which backend it is from.
fn page(network: &Network, family: usize) -> Result<usize, String> {
    let page = curl(network, &["--max-time", REQUEST_S_MAX, &url(family, "")])?;
    if page.len() != PAGE_BYTES {
        return Err(format!("a page of {} bytes, not {PAGE_BYTES}", page.len()));
    }
    backend_of(&page).ok_or_else(|| "a page of no backend".to_owned())
}

/// Whose page it is, by its first line.
fn backend_of(page: &[u8]) -> Option<usize> {
    let line = page.split(|byte| *byte == b'\n').next()?;
    BACKENDS.iter().position(|backend| backend.link.host.as_bytes() == line)
}

/// Fetches so many pages, each over a connection of its own; each must come.
pub fn pages(network: &Network, family: usize, count: usize) -> Result<Tally, Failure> {
    let mut tally = [0; BACKEND_COUNT];
    for request in 1..=count {
        let fetched = page(network, family);
        // Ctrl-C ends curl too.
        interrupt::check()?;
        let backend = fetched.map_err(|why| {
            Failure::failed(format!("request {request} of {count} to {}: {why}", VIPS[family]))
        })?;
        tally[backend] += 1;
    }
    Ok(tally)
}

/// Fetches pages over both families in turn until `is_over`; each must come.
pub fn pages_until(network: &Network, is_over: &AtomicBool) -> Result<Tally, Failure> {
    let mut tally = [0; BACKEND_COUNT];
    while !is_over.load(Ordering::Relaxed) {
        for family in 0..VIPS.len() {
            let pages = pages(network, family, 1)?;
            tally.iter_mut().zip(pages).for_each(|(sum, count)| *sum += count);
        }
    }
    Ok(tally)
}

/// Fetches the long page at this rate, in bytes a second, and returns its length in bytes.
pub fn long_page(network: &Network, rate: usize) -> Result<usize, Failure> {
    let arguments = ["--max-time", "60", "--limit-rate", &rate.to_string(), &url(0, "long")];
    let page = curl(network, &arguments)
        .map_err(|why| Failure::failed(format!("the long page: {why}")))?;
    Ok(page.len())
}

/// Uploads a file under this name.
pub fn upload(network: &Network, family: usize, file: &Path, name: &str) -> Result<(), Failure> {
    let (file, url) = (file.display().to_string(), url(family, &format!("upload/{name}")));
    let arguments = ["--max-time", "20", "--upload-file", &file, &url];
    curl(network, &arguments)
        .map(drop)
        .map_err(|why| Failure::failed(format!("the upload to {}: {why}", VIPS[family])))
}

/// What the client's kernel knows of the way's MTU to a service, in bytes; nothing where it knows no
/// less than its link's.
pub fn path_mtu(network: &Network, family: usize) -> Option<usize> {
    mtu_of(&network.ask(CLIENT.host, &["route", "get", VIPS[family]])?)
}

fn mtu_of(route: &str) -> Option<usize> {
    let mut words = route.split_whitespace();
    words.find(|word| *word == "mtu")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_whose_it_is() {
        assert_eq!(backend_of(b"backend-3\n......"), Some(2));
        assert_eq!(backend_of(b"backend-30\n....."), None);
        assert_eq!(backend_of(b""), None);
    }

    #[test]
    fn the_path_mtu_is_read_from_a_route() {
        let known = "203.0.113.10 via 198.51.100.1 dev eth0 src 198.51.100.2 uid 0 \n    cache expires \
                     598sec mtu 1480";
        assert_eq!(mtu_of(known), Some(1480));
        assert_eq!(mtu_of("203.0.113.10 via 198.51.100.1 dev eth0 src 198.51.100.2"), None);
    }
}
