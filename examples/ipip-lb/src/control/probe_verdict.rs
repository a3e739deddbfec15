//! The location of the fault if a backend's probes fail, directly or through its tunnel, and
//! commands to find it. Pure functions of outcomes.

use hotloop_health::settings::TunnelPath;
use hotloop_health::{ICMP, TIMED_OUT};
use std::net::IpAddr;
use std::time::Duration;

/// The outcome of a probe: its duration, or an error.
type ProbeResult = Result<Duration, String>;

/// The fault of a backend, from the outcomes of its last probes; `None` if there is none. `direct`
/// is `None` for a backend that is not probed directly.
pub fn verdict(
    backend: IpAddr,
    path: &TunnelPath,
    direct: Option<&ProbeResult>,
    tunnel: &ProbeResult,
) -> Option<String> {
    Some(match (direct, tunnel) {
        (None | Some(Ok(_)), Ok(_)) => return None,
        (Some(Err(why)), Ok(_)) => format!(
            "it answers clients, and fails the direct probe alone: {why}; the server may listen on the \
             VIP alone, or a firewall keeps the balancer's host away"
        ),
        (Some(Err(_)), Err(why)) => format!(
            "the server: it answers neither directly nor through the tunnel ({why}); look whether \
             it runs, and listens: ss -ltn"
        ),
        // A kernel without the VIP drops the packet over IPv4, and reports no route over IPv6.
        (_, Err(why)) if why.starts_with(ICMP) => format!(
            "the tunnel is refused: {why}; on the backend: {}, ip address show to {}",
            tunnel_command(backend),
            path.vip
        ),
        (Some(Ok(_)), Err(why)) if why.starts_with(TIMED_OUT) => silent(backend, path),
        (None, Err(why)) if why.starts_with(TIMED_OUT) => {
            format!("{}; or the server itself is down: via = \"both\" tells", silent(backend, path))
        }
        (_, Err(why)) => format!(
            "through the tunnel: {why}; on the backend, see what listens on the VIP: ss -ltn"
        ),
    })
}

/// The four faults that look alike from here, and the route of replies.
fn silent(backend: IpAddr, path: &TunnelPath) -> String {
    let TunnelPath { vip, probe_source, .. } = path;
    let rp_filter = match vip {
        IpAddr::V4(_) => {
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tunl0.rp_filter (0 both)"
        }
        IpAddr::V6(_) => "ip6tables-save | grep rpfilter, nft list ruleset | grep fib",
    };
    format!(
        "the tunnel is silent, though the server answers: on the backend, no tunnel ({}), no VIP (ip \
         address show to {vip}), rp_filter ({rp_filter}) or a firewall (nft list ruleset, \
         iptables-save); or replies do not find back to {probe_source} (ip route get {probe_source} \
         from {vip})",
        tunnel_command(backend)
    )
}

fn tunnel_command(backend: IpAddr) -> &'static str {
    match backend {
        IpAddr::V4(_) => "ip -d link show type ipip up",
        IpAddr::V6(_) => "ip -d link show type ip6tnl up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(direct: Option<Result<(), &str>>, tunnel: Result<(), &str>) -> String {
        let outcome = |result: Result<(), &str>| -> ProbeResult {
            result.map(|()| Duration::from_millis(1)).map_err(str::to_owned)
        };
        let path = TunnelPath {
            vip: "203.0.113.10".parse().unwrap(),
            probe_source: "192.0.2.9".parse().unwrap(),
            source_v4: "192.0.2.1".parse().unwrap(),
            source_v6: None,
        };
        let (direct, backend) = (direct.map(outcome), "10.0.0.1".parse().unwrap());
        verdict(backend, &path, direct.as_ref(), &outcome(tunnel)).unwrap_or_default()
    }

    const LATE: Result<(), &str> = Err("timed out after 1000 ms while connecting");

    #[test]
    fn a_backend_that_passes_has_none() {
        assert_eq!(verdict_of(Some(Ok(())), Ok(())), "");
        assert_eq!(verdict_of(None, Ok(())), "");
    }

    #[test]
    fn a_silent_tunnel_names_four_causes_and_the_commands_that_check_them() {
        let verdict = verdict_of(Some(Ok(())), LATE);
        for part in [
            "no tunnel (ip -d link show type ipip up)",
            "no VIP (ip address show to 203.0.113.10)",
            "rp_filter (sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tunl0.rp_filter",
            "a firewall (nft list ruleset, iptables-save)",
            "ip route get 192.0.2.9 from 203.0.113.10",
        ] {
            assert!(verdict.contains(part), "{part}: {verdict}");
        }
        assert!(verdict_of(None, LATE).contains("via = \"both\" tells"));
    }

    #[test]
    fn each_other_fault_is_called_by_its_name() {
        let icmp = Err("ICMP protocol unreachable from 10.0.0.1");
        for direct in [Some(Ok(())), None] {
            let verdict = verdict_of(direct, icmp);
            assert!(verdict.starts_with("the tunnel is refused: ICMP protocol unreachable from"));
        }
        for tunnel in [LATE, icmp, Err("connection refused")] {
            let verdict = verdict_of(Some(Err("connection refused")), tunnel);
            assert!(verdict.starts_with("the server: "), "{verdict}");
        }
        assert!(verdict_of(Some(LATE), Ok(())).starts_with("it answers clients"));
        let refused = verdict_of(Some(Ok(())), Err("connection refused"));
        assert!(refused.starts_with("through the tunnel: connection refused"), "{refused}");
    }
}
