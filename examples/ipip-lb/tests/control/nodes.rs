//! Two balancers that are each other's peers.

use crate::sync::authority::Authority;
use std::net::SocketAddr;
use std::path::Path;

/// Node `lb-1` or `lb-2` of the two at these addresses, with a certificate in `folder`.
pub fn node(
    number: usize,
    addresses: [SocketAddr; 2],
    (folder, authority): (&Path, &Authority),
) -> String {
    let ([first, second], name) = (addresses, format!("lb-{number}"));
    authority.signed(folder, &name, &name, |_| {});
    let file = folder.join(&name).display().to_string();
    format!(
        "[cluster]\nnode = \"{name}\"\n\
         certificate = \"{file}.pem\"\nkey = \"{file}.key\"\nauthority = \"{file}.ca\"\n\
         peers = [{{ name = \"lb-1\", address = \"{first}\" }}, \
         {{ name = \"lb-2\", address = \"{second}\" }}]\n"
    )
}
