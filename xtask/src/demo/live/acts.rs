//! What happens in the live demo, act by act.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::failure::Failure;
use crate::workspace::Workspace;

use super::super::heading;
use super::client::{self, Tally};
use super::ctl::Balancer;
use super::ledger::Ledger;
use super::network::Network;
use super::running::{Running, wait_until};
use super::site::{
    BACK, BACKEND_COUNT, BACKENDS, CLIENT, FRONT, LONG_PAGE_BYTES, Site, TUNNEL_ENDS, VIPS,
};

/// How many pages are fetched at once, over either family.
const PAGE_COUNT: usize = 40;

/// The backend that is killed, and the one that is drained.
const KILLED: usize = 0;
const DRAINED: usize = 1;

/// How often the configuration is reloaded under load, and the pause in between.
const RELOAD_COUNT: usize = 10;
const RELOAD_INTERVAL: Duration = Duration::from_millis(300);

/// How many clients fetch pages meanwhile.
const CLIENT_COUNT: usize = 3;

/// The rate at which the long page is read meanwhile, in bytes a second.
const LONG_PAGE_RATE: usize = 512 << 10;

/// How many bytes are uploaded.
const UPLOAD_BYTES: usize = 1 << 20;

/// The balancer's `mtu`, and so each link's, in bytes.
const LINK_MTU: usize = 1500;

/// Everybody who takes part, and where. Programs end before their network does.
pub struct Stage {
    balancer: Running,
    endpoints: Vec<Running>,
    servers: Vec<Running>,
    network: Network,
    site: Site,
}

impl Stage {
    /// Makes the network and starts all programs.
    pub fn set(workspace: &Workspace) -> Result<Self, Failure> {
        heading("A network of veth pairs and namespaces");
        let links: Vec<_> =
            [CLIENT, FRONT, BACK].into_iter().chain(BACKENDS.map(|backend| backend.link)).collect();
        let network = Network::make(&links)?;
        network.route(&FRONT, &[&format!("{}/32", VIPS[0]), &format!("{}/128", VIPS[1])])?;
        network.route(
            &BACK,
            &[&format!("{}/32", TUNNEL_ENDS[0]), &format!("{}/128", TUNNEL_ENDS[1])],
        )?;
        let site = Site::make(workspace)?;
        site.configure([1; BACKEND_COUNT])?;

        let (mut servers, mut endpoints) = (Vec::new(), Vec::new());
        for backend in &BACKENDS {
            servers.push(site.start_server(&network, backend)?);
            endpoints.push(site.start_endpoint(&network, backend)?);
        }
        let balancer = site.start_balancer(&network)?;
        show_topology();
        Ok(Self { balancer, endpoints, servers, network, site })
    }

    /// All backends serve both services.
    pub fn pages(&self) -> Result<(), Failure> {
        heading(&format!("{PAGE_COUNT} pages over each family, each over a connection of its own"));
        let tallies = self.fetch()?;
        for (family, tally) in tallies.iter().enumerate() {
            if tally.contains(&0) {
                let vip = VIPS[family];
                return Err(Failure::failed(format!("a backend sent no page of {vip}: {tally:?}")));
            }
        }
        Ok(())
    }

    /// A backend whose server is killed gets no connections once its health check has failed, and
    /// some again when it is back.
    pub fn killed_backend(&mut self) -> Result<(), Failure> {
        let name = BACKENDS[KILLED].link.host;
        heading(&format!("The server of {name} is killed"));
        let balancer = Balancer(&self.site);
        let started = Instant::now();
        drop(self.servers.remove(KILLED));
        wait_until(&format!("{name}'s health check to fail"), || Ok(!balancer.is_up(KILLED)?))?;
        println!("  down by its health check after {} ms", started.elapsed().as_millis());
        balancer.show_backends()?;
        self.expect_none_from(KILLED)?;

        let started = Instant::now();
        self.servers.insert(KILLED, self.site.start_server(&self.network, &BACKENDS[KILLED])?);
        wait_until(&format!("{name}'s health check to pass"), || balancer.is_up(KILLED))?;
        println!("  started again, and up after {} ms", started.elapsed().as_millis());
        let tallies = self.fetch()?;
        expect_some_from(KILLED, &tallies)
    }

    /// A drained backend gets no new connections, until a reload returns to what the file says.
    pub fn drained_backend(&self) -> Result<(), Failure> {
        let name = BACKENDS[DRAINED].link.host;
        heading(&format!("ctl drain: no new connections for {name}"));
        let balancer = Balancer(&self.site);
        balancer.drain(DRAINED)?;
        self.expect_none_from(DRAINED)?;
        balancer.reload()?;
        println!("  ctl reload returns to what the file says");
        expect_some_from(DRAINED, &self.fetch()?)
    }

    /// Reloads with other weights while pages are fetched: no request fails, and a connection that
    /// lasts through all of them stays where it is.
    pub fn reload_under_load(&self) -> Result<(), Failure> {
        heading(&format!(
            "{RELOAD_COUNT} reloads with other weights while pages are fetched, and one is read slowly"
        ));
        let is_over = AtomicBool::new(false);
        let (pages, long, reloads) = thread::scope(|scope| {
            let fetch = || client::pages_until(&self.network, &is_over);
            let pages: Vec<_> = (0..CLIENT_COUNT).map(|_| scope.spawn(fetch)).collect();
            let long = scope.spawn(|| client::long_page(&self.network, LONG_PAGE_RATE));
            let reloads = self.reload_often();
            is_over.store(true, Ordering::Relaxed);
            let pages: Vec<_> = pages.into_iter().map(|thread| thread.join()).collect();
            (pages, long.join(), reloads)
        });
        reloads?;
        let mut tally = [0; BACKEND_COUNT];
        for pages in pages {
            let pages = pages.map_err(|_| Failure::failed("a fetching thread panicked"))??;
            tally.iter_mut().zip(pages).for_each(|(sum, count)| *sum += count);
        }
        let long_bytes = long.map_err(|_| Failure::failed("the reading thread panicked"))??;
        if long_bytes != LONG_PAGE_BYTES {
            return Err(Failure::failed(format!("{long_bytes} bytes of the long page came")));
        }
        let count: usize = tally.iter().sum();
        print_tally("meanwhile", &tally);
        println!("  no request of {count} failed; the long page came whole, {long_bytes} bytes");
        if count < RELOAD_COUNT {
            return Err(Failure::failed(format!("only {count} pages were fetched meanwhile")));
        }
        Ok(())
    }

    /// By `ctl reload` and by SIGHUP in turn, each time with another backend that gets no new
    /// connections; in the end as it was.
    fn reload_often(&self) -> Result<(), Failure> {
        let balancer = Balancer(&self.site);
        let count_before = balancer.reloads()?.count;
        for turn in 1..RELOAD_COUNT {
            let mut weights = [1, 2, 3];
            weights[turn % BACKEND_COUNT] = 0;
            self.site.configure(weights)?;
            if turn % 2 == 0 {
                balancer.reload()?;
            } else {
                self.balancer.signal(Signal::HUP)?;
            }
            thread::sleep(RELOAD_INTERVAL);
        }
        self.site.configure([1; BACKEND_COUNT])?;
        balancer.reload()?;
        let reloads = balancer.reloads()?;
        if reloads.count - count_before == RELOAD_COUNT as u64 && reloads.reload_failure.is_none() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "not every reload went well: {count_before}, then {reloads:?}"
        )))
    }

    /// A megabyte over each family, in segments that don't fit the tunnel until the balancer has
    /// said so.
    pub fn uploads(&self) -> Result<(), Failure> {
        heading(&format!("{UPLOAD_BYTES} bytes are uploaded over each family"));
        let file = self.site.path("upload");
        // No two packets alike.
        let text: String = (0..UPLOAD_BYTES / 16).map(|line| format!("{line:015}\n")).collect();
        self.site.write(&file, &text)?;
        // Whose answers take a tunnel may know of its MTU from large pages, and would tell the client
        // in its SYN-ACKs.
        for tunnelled in (0..BACKEND_COUNT).filter(|it| BACKENDS[*it].replies_through.is_some()) {
            Balancer(&self.site).drain(tunnelled)?;
        }
        for family in 0..VIPS.len() {
            self.upload(family, &file, text.as_bytes())?;
        }
        Balancer(&self.site).reload()
    }

    fn upload(&self, family: usize, file: &std::path::Path, text: &[u8]) -> Result<(), Failure> {
        let (vip, name) = (VIPS[family], format!("upload-{family}"));
        if let Some(mtu) = client::path_mtu(&self.network, family) {
            return Err(Failure::failed(format!(
                "{vip}: the client knows a path MTU of {mtu} early"
            )));
        }
        let dropped_before = Balancer(&self.site).dropped("too_big")?;
        client::upload(&self.network, family, file, &name)?;
        let dropped = Balancer(&self.site).dropped("too_big")? - dropped_before;
        let mtu = client::path_mtu(&self.network, family);

        let arrived = BACKENDS.iter().filter_map(|backend| {
            let host = backend.link.host;
            let path = self.site.pages(host).join("upload").join(&name);
            fs::read(path).ok().map(|bytes| (host, bytes))
        });
        let arrived: Vec<_> = arrived.collect();
        let [(host, bytes)] = &arrived[..] else {
            return Err(Failure::failed(format!(
                "the upload to {vip} is at {} backends",
                arrived.len()
            )));
        };
        if bytes != text {
            return Err(Failure::failed(format!("the upload to {vip} came to {host} as another")));
        }
        let mtu = mtu.filter(|mtu| *mtu < LINK_MTU).ok_or_else(|| {
            Failure::failed(format!("{vip}: the client has found no path MTU below {LINK_MTU}"))
        })?;
        if dropped == 0 {
            return Err(Failure::failed("no packet of the upload was dropped as too_big"));
        }
        println!(
            "  {vip:<16} came whole to {host}; {dropped} packets too_big, and the client knows a path \
             MTU of {mtu}"
        );
        Ok(())
    }

    /// Everybody ends, and leaves a whole ledger.
    pub fn end(self) -> Result<(), Failure> {
        heading("The ledgers");
        let balancer = Ledger::judge("ipip-lb", &self.balancer.stop()?)?;
        balancer.print("ipip-lb");
        println!(
            "  (net_af_packet shows programs what is for the kernel too, such as health checks)"
        );
        let mut told_count = 0;
        for (backend, running) in BACKENDS.iter().zip(self.endpoints) {
            let program = format!("ipip-endpoint {}", backend.link.host);
            let ledger = Ledger::judge(&program, &running.stop()?)?;
            ledger.print(&program);
            told_count += ledger.dropped("too_big");
        }
        let (too_big, created) = (balancer.dropped("too_big"), balancer.created());
        if too_big == 0 || created < too_big {
            return Err(Failure::failed(format!(
                "ipip-lb answered {created} times about {too_big} packets too_big"
            )));
        }
        if told_count == 0 {
            return Err(Failure::failed("no endpoint said that an answer was too big"));
        }
        Ok(())
    }

    /// Pages over both families, shown.
    fn fetch(&self) -> Result<[Tally; 2], Failure> {
        let tallies = [
            client::pages(&self.network, 0, PAGE_COUNT)?,
            client::pages(&self.network, 1, PAGE_COUNT)?,
        ];
        for (tally, family) in tallies.iter().zip(["IPv4", "IPv6"]) {
            print_tally(family, tally);
        }
        Ok(tallies)
    }

    fn expect_none_from(&self, backend: usize) -> Result<(), Failure> {
        let tallies = self.fetch()?;
        if tallies.iter().any(|tally| tally[backend] > 0) {
            let name = BACKENDS[backend].link.host;
            return Err(Failure::failed(format!("{name} got new connections: {tallies:?}")));
        }
        Ok(())
    }
}

fn expect_some_from(backend: usize, tallies: &[Tally]) -> Result<(), Failure> {
    if tallies.iter().any(|tally| tally[backend] == 0) {
        let name = BACKENDS[backend].link.host;
        return Err(Failure::failed(format!("{name} got no new connections: {tallies:?}")));
    }
    Ok(())
}

fn print_tally(what: &str, tally: &Tally) {
    let pages: Vec<_> = BACKENDS
        .iter()
        .zip(tally)
        .map(|(backend, count)| format!("{count:>4} from {}", backend.link.host))
        .collect();
    println!("  {what:<10} {}", pages.join(", "));
}

fn show_topology() {
    let at = |host: &str, text: &str| println!("  {host:<12} {text}");
    at("client", &format!("{}; curl", CLIENT.addresses().join(", ")));
    at("router", "joins them all");
    at("balancer", &format!("ipip-lb on net_af_packet, for {}", VIPS.join(" and ")));
    for backend in &BACKENDS {
        let way = match backend.replies_through {
            Some(_) => "through the balancer",
            None => "straight to clients",
        };
        at(
            backend.link.host,
            &format!("nginx behind ipip-endpoint, tunnel to {}, answers {way}", backend.address()),
        );
    }
}
