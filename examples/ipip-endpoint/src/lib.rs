//! The other end of a load balancer's IP-in-IP tunnels, on a TAP interface.

#![forbid(unsafe_code)]
