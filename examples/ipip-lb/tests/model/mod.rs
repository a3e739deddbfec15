//! A slow, simple model of the balancer's rules, and random packets for both.
//!
//! The model shares nothing with the balancer except the types of the configuration, Maglev's
//! tables, which have their own tests, and one result of classification: whether a frame is
//! malformed. It writes the expected output byte by byte.
//!
//! # The rules, by the numbers that the code has
//!
//! 1. A packet other than IP is punted, and one that is malformed or ends within its packet is
//!    dropped.
//! 2. Tunnels to an own address, from backends and peers, are unwrapped once.
//! 3. ICMP errors about a service's packets go to the target of their connection.
//! 4. A packet not to a service's address goes to its client, if it came from a service, or is
//!    punted.
//! 5. Echo requests are answered, dropped or forwarded; any other packet has its most specific
//!    service.
//! 6. Later fragments follow their first, or wait for it.
//! 7. Connections: known ones keep their backend, new ones get one from the scheduler.
//! 8. Hops, lengths and the tunnel to the backend.
//! 9. The way back to the client, for headers with a right checksum.
//! 10. Tunnels to a service's address are packets like any other, and no connections.
//! 11. A packet is not wrapped if it is martian, loops through tunnels or may enter no further one.
//!
//! # Where the rules can be read in more than one way
//!
//! - An ICMP error from a service to a client, in a backend's tunnel, is on the return path like
//!   any other packet: only errors about packets of a *service* are followed. It affects no
//!   connection.
//! - A packet of a known connection with a present backend is not checked for its service again: a
//!   reload that changes ports moves no connection.
//! - IPv6 fragments belong to one datagram if addresses and identification are equal (RFC 8200).
//! - Later fragments are not checked for their service: they have no port, and their first fragment
//!   was checked.
//! - A later fragment with a first that went to a removed backend is dropped, as `no_backend` or as
//!   `flushed`.
//! - The content of a nested tunnel is classified after the outer tunnel is removed: the packet is
//!   `malformed` if its content is, and the inner flow decides.
//! - In a new connection with none of TCP's beginnings, a FIN counts: with no server seen, it is
//!   closing.
//! - A packet of a flushed connection keeps it from being forgotten, although the packet is
//!   dropped.
//! - A connection that gets another backend because its own is gone keeps its state: also after a
//!   SYN, unless it is over.
//! - After a flushed connection any SYN begins another: there is none left that it could end.
//! - A SYN changes nothing in an open connection, and opens a closing one. Data, which never
//!   follows a FIN, shows that another connection has begun elsewhere: it is established.
//! - `admitted` also counts connections that are balanced without being remembered; `no_backend` is
//!   not admitted.
//! - A SYN on a known connection uses nothing of `new_connections_per_second_max`.
//! - Errors about connections with a removed backend go to the consistent choice; for flushed
//!   connections they are dropped.
//! - The length of a removed target's tunnel header is unknown: MSS options are lowered to the
//!   value for IPv6.

mod choose;
pub mod compare;
mod connections;
mod deliver;
mod describe;
mod lab;
mod net;
mod oddities;
mod packet;
mod rules;
mod scene;
mod table;
mod traffic;
mod wire;
