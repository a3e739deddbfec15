//! Katran's XDP program, which the kernel runs through `BPF_PROG_TEST_RUN`, and its driver.
//!
//! Nothing of Katran or of libbpf is linked: the benchmark compiles `katran/csrc/side.c` when it runs, and the
//! functions of `side.h` are loaded from there.

mod packets;

use crate::traffic::ACK;
use hotloop_measure::random::Random;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use packets::{FRAME_BYTES, check_wrapped, frame};

/// Number of times taken one after the other in one run of the program: their median counts.
const SEGMENT_COUNT: u32 = 16;

/// Maximum length of a returned packet, in bytes.
const OUT_BYTES_MAX: usize = 256;

/// The seed of the driver's random flows, the same as between our source and sink.
const SEED: u64 = 7;

/// Number of packets in one run while the connection table is filled: fewer than Katran enters in a
/// second.
const FILL_COUNT: u32 = 100_000;

/// Time until Katran enters that number again.
const FILL_PAUSE: Duration = Duration::from_millis(1_010);

/// The files of Katran and its driver.
#[derive(Clone, Debug)]
pub struct Files {
    /// `side.c` as a shared object.
    pub library: PathBuf,
    /// Katran's object file.
    pub katran: PathBuf,
    /// The driver's object file.
    pub driver: PathBuf,
}

/// Katran's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of VIPs.
    pub service_count: u32,
    /// Number of backends of each VIP, the same for all.
    pub backend_count: u32,
    /// Capacity of its connection table.
    pub connections_max: u32,
}

/// Katran's counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets to its VIPs.
    pub packets: u64,
    /// Packets of connections that Katran did not know.
    pub misses: u64,
    /// Packets for which Katran found no connection table.
    pub fallbacks: u64,
    /// Packets that Katran has sent to a backend.
    pub sent: u64,
}

/// As `struct setup` of `side.h`.
#[repr(C)]
struct Setup {
    katran: *const c_char,
    driver: *const c_char,
    services: u32,
    backends: u32,
    connections: u32,
    head: [u8; FRAME_BYTES],
}

#[repr(C)]
struct Side {
    _opaque: [u8; 0],
}

/// The functions of `side.h`.
struct Functions {
    probe: unsafe extern "C" fn() -> c_int,
    open: unsafe extern "C" fn(*const Setup) -> *mut Side,
    close: unsafe extern "C" fn(*mut Side),
    why: unsafe extern "C" fn() -> *const c_char,
    dial: unsafe extern "C" fn(*mut Side, u32, u32, u32, u32),
    play: unsafe extern "C" fn(*mut Side, u64, u64, u32, c_int) -> f64,
    packet: unsafe extern "C" fn(*const Side, *mut u8) -> u32,
    counts: unsafe extern "C" fn(*const Side, *mut Counts) -> c_int,
    /// Keeps the functions loaded.
    _library: Library,
}

/// Katran in the kernel, with its driver.
pub struct Katran {
    functions: Functions,
    /// Invariant: returned by `open`, valid until `close` on drop.
    side: *mut Side,
    settings: Settings,
}

/// Checks that this process may load BPF programs.
///
/// # Errors
/// The process may not, or the library can't be loaded.
pub fn probe(library: &Path) -> Result<(), String> {
    let functions = Functions::load(library)?;
    // SAFETY: 1. `side_probe` takes nothing.
    match unsafe { (functions.probe)() } {
        0 => Ok(()),
        _ => Err(functions.why()),
    }
}

impl Functions {
    fn load(library: &Path) -> Result<Self, String> {
        let failed = |error| format!("{}: {error}", library.display());
        // SAFETY: 1. side.c, and libbpf which it needs, have no code that runs when they are loaded.
        let library = unsafe { Library::new(library) }.map_err(failed)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: 1. `side.h` declares a function of that name and of the field's type.
                *unsafe { library.get($name) }.map_err(failed)?
            };
        }
        Ok(Self {
            probe: function!(b"side_probe"),
            open: function!(b"side_open"),
            close: function!(b"side_close"),
            why: function!(b"side_why"),
            dial: function!(b"side_dial"),
            play: function!(b"side_play"),
            packet: function!(b"side_packet"),
            counts: function!(b"side_counts"),
            _library: library,
        })
    }

    /// The error of the last call.
    fn why(&self) -> String {
        // SAFETY: 1. `side_why` takes nothing.
        let text = unsafe { (self.why)() };
        // SAFETY: 1. It returns a text that ends with a zero. 2. No other call changes it
        // meanwhile.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl Katran {
    /// Loads Katran and its driver, and compares the driver's frames with our source's, and
    /// Katran's packets with these.
    ///
    /// # Errors
    /// The kernel refuses, or a frame or packet differs.
    pub fn open(files: &Files, settings: Settings) -> Result<Self, String> {
        let functions = Functions::load(&files.library)?;
        let [katran, driver] = [&files.katran, &files.driver].map(|file| {
            CString::new(file.as_os_str().as_bytes()).expect("the path of a file has no zero")
        });
        let setup = Setup {
            katran: katran.as_ptr(),
            driver: driver.as_ptr(),
            services: settings.service_count,
            backends: settings.backend_count,
            connections: settings.connections_max,
            head: frame(settings.service_count, 0),
        };
        // SAFETY: 1. `setup` and its two texts live until the call returns, which does not keep them.
        let side = unsafe { (functions.open)(&raw const setup) };
        if side.is_null() {
            return Err(functions.why());
        }
        let katran = Self { functions, side, settings };
        katran.compare()?;
        Ok(katran)
    }

    /// Compares the driver's frames with our source's, and Katran's packets with these.
    fn compare(&self) -> Result<(), String> {
        let Settings { service_count, backend_count, connections_max } = self.settings;
        let drawn = Random::seeded(SEED).below(connections_max);
        self.dial_random(connections_max, ACK);
        self.compare_driven(drawn, &frame(service_count, drawn))?;
        for flow in [1, 511, 65_535, 65_536, 1_000_000] {
            let frame = frame(service_count, flow);
            self.dial_each(flow, ACK);
            self.compare_driven(flow, &frame)?;
            // Flows other than the measured ones would take their places.
            if flow < connections_max / 2 {
                self.send_each(flow, 1)?;
                let wrapped = check_wrapped(&frame, &self.packet(), backend_count);
                wrapped.map_err(|error| format!("Katran's packet of flow {flow}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Makes the driver write one frame, and compares it.
    fn compare_driven(&self, flow: u32, frame: &[u8]) -> Result<(), String> {
        self.play(0, 0, 0, false)?;
        let driven = self.packet();
        if driven != frame {
            return Err(format!(
                "the driver's frame of flow {flow} is {driven:02x?}, and not {frame:02x?}"
            ));
        }
        Ok(())
    }

    /// Plays a packet of each flow below `flow_count`, which Katran enters. If `is_limited`,
    /// packets don't exceed the number that it may enter per second.
    ///
    /// # Errors
    /// The kernel refuses, or Katran does not send a packet.
    pub fn fill(&self, flow_count: u32, is_limited: bool) -> Result<(), String> {
        for first in (0..flow_count).step_by(FILL_COUNT as usize) {
            if is_limited {
                std::thread::sleep(FILL_PAUSE);
            }
            self.send_each(first, (flow_count - first).min(FILL_COUNT))?;
        }
        Ok(())
    }

    /// Plays an ACK of each of `count` flows, starting with `first`.
    ///
    /// # Errors
    /// The kernel refuses, or Katran does not send a packet.
    ///
    /// # Panics
    /// `count` is 0.
    pub fn send_each(&self, first: u32, count: u32) -> Result<(), String> {
        assert!(count > 0, "no flow");
        self.dial_each(first, ACK);
        self.play(u64::from(count) - 1, 0, 0, true).map(drop)
    }

    /// Selects random flows below `end`, and these flags, for the following packets.
    pub fn dial_random(&self, end: u32, flags: u8) {
        // SAFETY: 1. `side` comes from `open`.
        unsafe { (self.functions.dial)(self.side, 0, end, 1, u32::from(flags)) }
    }

    /// Selects one flow after the other, starting with `first`, and these flags, for the following
    /// packets.
    pub fn dial_each(&self, first: u32, flags: u8) {
        // SAFETY: 1. `side` comes from `open`.
        unsafe { (self.functions.dial)(self.side, first, 0, 0, u32::from(flags)) }
    }

    /// Number of packets in a run of [`time`](Self::time).
    #[must_use]
    pub const fn packets_of(warm_count: u64, count: u64) -> u64 {
        warm_count + count * SEGMENT_COUNT as u64 + 1
    }

    /// Times `count` packets, driver included, after `warm_count` for warming up: with Katran, or
    /// with a program that only sends them.
    ///
    /// # Errors
    /// The kernel refuses, or the last packet is not sent.
    pub fn time(&self, warm_count: u64, count: u64, with_katran: bool) -> Result<Duration, String> {
        self.play(warm_count, count, SEGMENT_COUNT, with_katran)
    }

    fn play(
        &self,
        warm: u64,
        count: u64,
        segments: u32,
        with_katran: bool,
    ) -> Result<Duration, String> {
        let with_katran = c_int::from(with_katran);
        // SAFETY: 1. `side` comes from `open`.
        let ns = unsafe { (self.functions.play)(self.side, warm, count, segments, with_katran) };
        if ns < 0.0 { Err(self.functions.why()) } else { Ok(Duration::from_secs_f64(ns / 1e9)) }
    }

    /// The last packet sent.
    fn packet(&self) -> Vec<u8> {
        let mut bytes = vec![0; OUT_BYTES_MAX];
        // SAFETY: 1. `side` comes from `open`. 2. The call writes at most `OUT_BYTES_MAX` bytes.
        let len = unsafe { (self.functions.packet)(self.side, bytes.as_mut_ptr()) };
        bytes.truncate(len as usize);
        bytes
    }

    /// Reads Katran's counters.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counts(&self) -> Result<Counts, String> {
        let mut counts = Counts::default();
        // SAFETY: 1. `side` comes from `open`. 2. `Counts` is `struct counts` of `side.h`.
        let status = unsafe { (self.functions.counts)(self.side, &raw mut counts) };
        if status == 0 { Ok(counts) } else { Err(self.functions.why()) }
    }
}

impl Drop for Katran {
    fn drop(&mut self) {
        // SAFETY: 1. `side` comes from `open`, and is not used any more.
        unsafe { (self.functions.close)(self.side) }
    }
}

impl Counts {
    /// Checks the packets since `before`: no packet was lost or without a connection table, and Katran
    /// did not know the connections of `miss_count`.
    ///
    /// # Errors
    /// The counters differ.
    pub fn check_since(&self, before: &Self, miss_count: u64) -> Result<(), String> {
        let misses = self.misses - before.misses;
        if misses != miss_count || self.fallbacks != 0 || self.sent != self.packets {
            return Err(format!(
                "Katran counted {self}: {misses} misses since it was filled, and not {miss_count}"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, misses, fallbacks, sent } = self;
        write!(f, "{packets} packets, {misses} misses, {fallbacks} fallbacks, {sent} sent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_fallbacks_and_lost_packets_are_seen() {
        let filled = Counts { packets: 100, misses: 100, fallbacks: 0, sent: 100 };
        let hits = Counts { packets: 900, sent: 900, ..filled };
        assert_eq!(hits.check_since(&filled, 0), Ok(()));
        assert!(hits.check_since(&filled, 800).is_err());
        for changed in [
            Counts { misses: 101, ..hits },
            Counts { fallbacks: 1, ..hits },
            Counts { sent: 899, ..hits },
        ] {
            assert!(changed.check_since(&filled, 0).is_err(), "{changed}");
        }
    }
}
