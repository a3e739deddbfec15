//! The states of TCP connections.

use crate::lab::{FIRST, HOST, Lab, SERVER, at_gateway, at_host};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use nat44::nat::{NatDrop, Side};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Sends segments with these flags, and checks that each one passes.
fn converse(lab: &mut Lab, segments: &[(Side, u8)]) {
    for (from, flags) in segments {
        let packet = |from, to| -> PacketBuilder { tcp().from(from).to(to).tcp_flags(*flags) };
        if *from == Side::Lan {
            assert_eq!(lab.host_sends(packet(HOST, SERVER)), at_gateway(packet(FIRST, SERVER)));
        } else {
            assert_eq!(lab.gateway_sends(packet(SERVER, FIRST)), at_host(packet(SERVER, HOST)));
        }
    }
}

/// Whether a connection ends after this time in minutes.
fn ends_after(lab: &mut Lab, minutes: u32) -> bool {
    lab.wait(minutes * MINUTE - Duration::from_secs(1));
    let is_kept = lab.connections() == 1;
    lab.wait(Duration::from_secs(2));
    is_kept && lab.connections() == 0
}

#[test]
fn a_connection_that_both_ends_open_at_once_is_established() {
    let mut lab = Lab::new();
    let both = [(Side::Lan, SYN), (Side::Wan, SYN), (Side::Lan, SYN | ACK), (Side::Wan, SYN | ACK)];
    converse(&mut lab, &both);
    assert!(ends_after(&mut lab, 124));
}

#[test]
fn an_unsolicited_syn_is_dropped_and_the_host_can_still_open_the_connection() {
    let mut lab = Lab::new();
    let syn = || tcp().from(SERVER).to(FIRST);
    assert_eq!(lab.dropped(Side::Wan, syn()), NatDrop::NoConnection);
    lab.wait(Duration::from_secs(5));
    converse(&mut lab, &[(Side::Lan, SYN), (Side::Wan, SYN), (Side::Lan, SYN | ACK)]);
    assert!(ends_after(&mut lab, 124));
}

#[test]
fn a_reset_shortens_the_timeout_until_the_next_segment() {
    let opening = [(Side::Lan, SYN), (Side::Wan, SYN | ACK), (Side::Lan, ACK)];
    for from in [Side::Lan, Side::Wan] {
        let mut lab = Lab::new();
        converse(&mut lab, &opening);
        converse(&mut lab, &[(from, RST)]);
        assert!(ends_after(&mut lab, 4), "{from:?}");

        // A forged one does no harm.
        let mut lab = Lab::new();
        converse(&mut lab, &opening);
        converse(&mut lab, &[(from, RST), (Side::Lan, ACK)]);
        assert!(ends_after(&mut lab, 124), "{from:?}");
    }
}

#[test]
fn a_connection_that_has_ended_can_be_opened_again_by_the_same_ports() {
    let mut lab = Lab::new();
    let whole = [
        (Side::Lan, SYN),
        (Side::Wan, SYN | ACK),
        (Side::Lan, FIN | ACK),
        (Side::Wan, FIN | ACK),
        (Side::Lan, ACK),
    ];
    converse(&mut lab, &whole);
    converse(&mut lab, &[(Side::Lan, SYN)]);
    let mut opening = Lab::new();
    converse(&mut opening, &[(Side::Lan, SYN)]);
    assert!(ends_after(&mut opening, 4));
    converse(&mut lab, &[(Side::Wan, SYN | ACK), (Side::Lan, ACK)]);
    assert!(ends_after(&mut lab, 124));
}
