//! A slow, plain model of the balancer's rules, and random packets for both.
//!
//! The model shares nothing with the balancer but the types of the configuration and Maglev's tables,
//! which have tests of their own; and with classification, of which it takes one thing: whether a
//! frame is malformed. It writes down, byte by byte, what must leave.
//!
//! # The rules, by the numbers that the code has
//!
//! 1. What is not IP is punted, what is malformed or ends within its packet dropped.
//! 2. Tunnels to an own address, from backends and peers, are unwrapped once.
//! 3. ICMP errors about what a service sent go where its connection goes.
//! 4. What is not for a service's address goes to its client, if it came from a service, or is punted.
//! 5. Echo requests are answered, dropped or forwarded; anything else has its most specific service.
//! 6. Later fragments follow their first, or wait for it.
//! 7. Connections: known ones keep their backend, new ones get one from the scheduler.
//! 8. Hops, lengths and the tunnel to the backend.
//! 9. The way back to the client, for headers whose checksum is right.
//! 10. Tunnels to a service's address are packets like any other, and no connections.
//! 11. What is martian, loops through tunnels or may enter no further one is not wrapped.
//!
//! # Where the rules can be read in more than one way
//!
//! - An ICMP error that a service sends to a client, in a backend's tunnel, is on the return path like
//!   any other packet: errors are to be followed where they are about what a *service* sent.
//!   It says nothing of any connection.
//! - A packet of a connection that is known, with a backend that is there, is not asked for its service
//!   again: a reload that changes ports moves no connection.
//! - IPv6 fragments are of one datagram when addresses and identification are equal (RFC 8200).
//! - Later fragments are not asked for their service: they have no port, and their first was.
//! - A later fragment whose first went to a backend that is gone is dropped, as `no_backend` or as
//!   `flushed`.
//! - What a nested tunnel carries is classified when the outer one is off: it is `malformed` if that
//!   is, and the flow inside it decides.
//! - In a new connection that is none of TCP's beginnings, a FIN counts: with no server seen, it is
//!   closing.
//! - A packet of a flushed connection, though it is dropped, keeps it from being forgotten.
//! - A connection that gets another backend because its own is gone keeps its state: also by a SYN,
//!   unless it is over.
//! - Of a flushed connection any SYN begins another: there is none left that it could end.
//! - A SYN changes nothing of a connection that is open, and opens one that is closing. With data, which
//!   comes after no goodbye, another has begun elsewhere: it is established.
//! - `admitted` counts those that are balanced without being remembered too; `no_backend` is not
//!   admitted.
//! - A SYN on a known connection spends nothing of `new_connections_per_second_max`.
//! - Errors about connections whose backend is gone go by the consistent choice; of flushed ones they
//!   are dropped.
//! - A target that is gone doesn't say how long its tunnel's header was: MSS options are lowered to
//!   what IPv6's leaves.

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
