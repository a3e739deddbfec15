//! Has the kernel drop all packets received on an interface, by a chain of nf_tables at the
//! interface's ingress with the policy drop (nft(8), "NETDEV ADDRESS FAMILY";
//! `linux/netfilter/nf_tables.h`). Packet sockets get their packets earlier.

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// The socket that owns the table: the kernel deletes the table when the socket is closed, even by
/// the end of the process (`NFT_TABLE_F_OWNER`, from Linux 5.12 on).
#[derive(Debug)]
pub(super) struct Silence {
    _owner: Socket,
}

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`, as the high byte of messages, and by itself.
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;

/// `NFPROTO_NETDEV`.
const FAMILY_NETDEV: u8 = 5;

/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_CREATE` and `NLM_F_EXCL`.
const REQUEST: u16 = 0x1;
const NEW: u16 = REQUEST | 0x4 | 0x400 | 0x200;

/// `NLMSG_ERROR`, which also reports success.
const ERROR: u16 = 2;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_OWNER: u32 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
/// An attribute that holds others (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
/// `NF_NETDEV_INGRESS`.
const INGRESS: u32 = 0;
/// `NF_DROP`.
const DROP: u32 = 0;

impl Silence {
    /// Starts dropping the packets that this interface of the thread's network namespace receives.
    pub(super) fn begin(interface: &str) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let table = text(&format!("hotloop-{interface}"));
        let new_table =
            [attribute(TABLE_NAME, &table), attribute(TABLE_FLAGS, &TABLE_OWNER.to_be_bytes())];
        let hook = [
            attribute(HOOK_NUMBER, &INGRESS.to_be_bytes()),
            attribute(HOOK_PRIORITY, &0_u32.to_be_bytes()),
            attribute(HOOK_DEVICE, &text(interface)),
        ];
        let new_chain = [
            attribute(CHAIN_TABLE, &table),
            attribute(CHAIN_NAME, &text("ingress")),
            attribute(CHAIN_HOOK | NESTED, &hook.concat()),
            attribute(CHAIN_POLICY, &DROP.to_be_bytes()),
            attribute(CHAIN_TYPE, &text("filter")),
        ];
        let batch = [
            message(BATCH_BEGIN, REQUEST, 0, NF_TABLES, &[]),
            message(NEW_TABLE, NEW, FAMILY_NETDEV, 0, &new_table.concat()),
            message(NEW_CHAIN, NEW, FAMILY_NETDEV, 0, &new_chain.concat()),
            message(BATCH_END, REQUEST, 0, NF_TABLES, &[]),
        ];
        socket.send(&batch.concat(), 0)?;
        // One answer for the table, and one for the chain; a single error may replace both.
        let mut answered = 0;
        while answered < 2 {
            let mut datagram = Vec::with_capacity(1 << 13);
            socket.recv(&mut datagram, 0)?;
            answered += errors(&datagram)?;
        }
        Ok(Self { _owner: socket })
    }
}

/// A message with netfilter's own header: its family, a version of 0, and a number.
fn message(kind: u16, flags: u16, family: u8, number: u16, attributes: &[u8]) -> Vec<u8> {
    let len = (16 + 4 + attributes.len()) as u32;
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and sender: there is one request.
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

/// An attribute, padded with zeros to a multiple of 4 bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A string as attributes hold it.
fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Number of requests that a datagram answers.
///
/// # Errors
/// That of the first refused request.
fn errors(mut datagram: &[u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(header) = datagram.first_chunk::<20>() {
        let number = |at: usize| header[at..at + 4].try_into().map_or(0, i32::from_ne_bytes);
        if u16::from_ne_bytes([header[4], header[5]]) == ERROR {
            match number(16) {
                0 => count += 1,
                error => return Err(io::Error::from_raw_os_error(-error)),
            }
        }
        let len = usize::try_from(number(0)).unwrap_or(0).max(16).next_multiple_of(4);
        datagram = datagram.get(len..).unwrap_or(&[]);
    }
    Ok(count)
}
