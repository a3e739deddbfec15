//! The program's side of a capture: a thread for each, which writes to the client and waits for it.

use super::{Annotate, PIECE_BYTES, Summary, Wanted};
use crate::request::{Reply, Request, Stream, answer_line};
use hotloop_capture::{Direction, PcapNgPacket, PcapNgWriter};
use hotloop_engine::{
    Capture, CaptureConfig, Drops, Interface, Points, Record, SNAP_BYTES_MAX, Taps,
};
use hotloop_privileges::{Capabilities, keep};
use hotloop_stage::tap::{Filter, TapPoint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum number of capture requests served at a time, including those that will be refused.
const SESSION_COUNT_MAX: usize = 16;

/// How long the thread of a capture sleeps if no packet has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How often a waiting write checks whether the program ends.
const WRITE_WAIT: Duration = Duration::from_millis(100);

/// How long a client may take nothing while the program ends.
const STALL_WAIT: Duration = Duration::from_millis(300);

/// How long the end of a capture may take: cores give it back within microseconds, and clients take
/// the rest as they can.
const END_WAIT: Duration = Duration::from_secs(2);

/// The captures of a program, which end with it.
#[derive(Default)]
pub struct Sessions {
    is_ending: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
    annotate: Option<Annotate>,
}

impl Sessions {
    /// Sets the function that comments on packets, for captures that begin from now on.
    pub fn annotate(&mut self, annotate: Annotate) {
        self.annotate = Some(annotate);
    }

    /// Starts a requested capture, on a thread of its own: nothing waits here.
    pub fn begin(&mut self, taps: Taps, request: &Request) -> Reply {
        self.threads.retain(|thread| !thread.is_finished());
        if self.count.load(Relaxed) >= SESSION_COUNT_MAX {
            return Reply::Now(Err("too many capture requests at a time: end one first".into()));
        }
        let arguments = match request.arguments.is_null() {
            true => json!({}),
            false => request.arguments.clone(),
        };
        let wanted: Wanted = match serde_json::from_value(arguments) {
            Ok(wanted) => wanted,
            Err(error) => {
                return Reply::Now(Err(format!("capture: {error}; see ctl capture --help")));
            }
        };
        let (is_ending, count) = (Arc::clone(&self.is_ending), Arc::clone(&self.count));
        let annotate = self.annotate.clone();
        let (hand_over, stream) = std::sync::mpsc::sync_channel::<UnixStream>(1);
        let session = move || {
            keep(Capabilities::empty());
            if let Ok(stream) = stream.recv() {
                // If the client is gone, there is no one left to answer.
                let _ = serve(stream, &taps, &wanted, annotate, &is_ending);
            }
            count.fetch_sub(1, Relaxed);
        };
        self.count.fetch_add(1, Relaxed);
        match std::thread::Builder::new().name("capture".into()).spawn(session) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.count.fetch_sub(1, Relaxed);
                return Reply::Now(Err(format!("no thread for a capture: {error}; try again")));
            }
        }
        Reply::Stream(Stream::new(move |stream| {
            let _ = hand_over.send(stream);
        }))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Drop for Sessions {
    /// Ends the captures, and waits until clients have received the rest, or little longer than
    /// [`END_WAIT`].
    fn drop(&mut self) {
        self.is_ending.store(true, Relaxed);
        let deadline = Instant::now() + 2 * END_WAIT;
        while Instant::now() < deadline && self.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Serves a client to its end.
fn serve(
    stream: UnixStream,
    taps: &Taps,
    wanted: &Wanted,
    annotate: Option<Annotate>,
    is_ending: &AtomicBool,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_WAIT))?;
    let mut client = Client { stream, is_ending, gives_up: None };
    // A client's departure or the program's end must not wait for the filter's compilation.
    let mut waits = || !is_ending.load(Relaxed) && !client.has_ended(Duration::ZERO);
    let begun = config(wanted, &mut waits).and_then(|config| {
        let capture = taps.capture(&config).map_err(|error| error.to_string())?;
        Ok((capture, config.snap_bytes))
    });
    let (capture, snap_bytes) = match begun {
        Ok(begun) => begun,
        Err(error) => return client.send(&answer_line(Err(error))),
    };
    client.send(&answer_line(Ok(json!({"snaplen": snap_bytes}))))?;
    let mut session = Session::new(client, capture, snap_bytes, wanted, annotate)?;
    session.run()?;
    session.finish()
}

/// Converts the request for the engine.
fn config(wanted: &Wanted, waits: &mut dyn FnMut() -> bool) -> Result<CaptureConfig, String> {
    let default = CaptureConfig::default();
    Ok(CaptureConfig {
        points: if wanted.at.is_empty() { default.points.clone() } else { points(&wanted.at)? },
        core: wanted.worker,
        filter: filter(&wanted.expression, waits)?,
        snap_bytes: wanted.snaplen.unwrap_or(SNAP_BYTES_MAX),
        sample: wanted.sample.unwrap_or(1),
        ..default
    })
}

/// Parses the places of `--at`.
pub(super) fn points(at: &[String]) -> Result<Points, String> {
    let mut points = Points { receive: false, send: false, drops: Drops::None };
    for place in at {
        match place.as_str() {
            "rx" => points.receive = true,
            "tx" => points.send = true,
            "drop" => points.drops = Drops::All,
            "all" => points = Points::ALL,
            place => {
                let reason = place.strip_prefix("drop=").filter(|reason| !reason.is_empty());
                let Some(reason) = reason else {
                    return Err(format!(
                        "there is no place {place:?}: write rx, tx, drop, drop=REASON or all"
                    ));
                };
                match &mut points.drops {
                    Drops::All => {}
                    Drops::For(reasons) => reasons.push(reason.to_owned()),
                    Drops::None => points.drops = Drops::For(vec![reason.to_owned()]),
                }
            }
        }
    }
    Ok(points)
}

#[cfg(feature = "dpdk")]
fn filter(
    expression: &str,
    waits: &mut dyn FnMut() -> bool,
) -> Result<Option<Arc<dyn Filter>>, String> {
    if expression.trim().is_empty() {
        return Ok(None);
    }
    let eal = hotloop_dpdk::Eal::current().ok_or("DPDK has not started yet: try again")?;
    let filter = hotloop_dpdk::Filter::compile_while(eal, expression, waits);
    Ok(Some(Arc::new(filter.map_err(|error| error.to_string())?)))
}

/// Without DPDK, expressions can't be run.
#[cfg(not(feature = "dpdk"))]
fn filter(
    expression: &str,
    _: &mut dyn FnMut() -> bool,
) -> Result<Option<Arc<dyn Filter>>, String> {
    if expression.trim().is_empty() {
        return Ok(None);
    }
    Err("this program was built without DPDK, which filters: leave the expression out, and filter the \
         file"
        .into())
}

/// A client, and how long to wait for it.
struct Client<'a> {
    stream: UnixStream,
    is_ending: &'a AtomicBool,
    /// The time to give up on it, once the program ends.
    gives_up: Option<Instant>,
}

impl Client<'_> {
    /// Sends bytes, however long that takes while the program runs.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut stalls_since = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => (bytes, stalls_since) = (&bytes[count..], Instant::now()),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                        if self.is_waited_for(stalls_since) => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Whether to keep waiting for a client that has taken nothing since `stalls_since`.
    fn is_waited_for(&mut self, stalls_since: Instant) -> bool {
        if !self.is_ending.load(Relaxed) {
            return true;
        }
        let now = Instant::now();
        now < stalls_since + STALL_WAIT && now < *self.gives_up.get_or_insert(now + END_WAIT)
    }

    /// Sends a piece of the file.
    fn send_piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        self.send(&(piece.len() as u32).to_le_bytes())?;
        self.send(piece)
    }

    /// Waits at most `wait`, and returns whether the client has closed its side, or is gone.
    fn has_ended(&mut self, wait: Duration) -> bool {
        let mut events = [PollFd::new(&self.stream, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut events, Some(&wait)) {
            Ok(1..) => !matches!(self.stream.read(&mut [0; 64]), Ok(1..)),
            _ => false,
        }
    }
}

/// A capture, and the file that is made of it.
struct Session<'a> {
    capture: Capture,
    file: CaptureFile<'a>,
}

/// The file that the client writes.
struct CaptureFile<'a> {
    client: Client<'a>,
    /// The blocks to send.
    writer: PcapNgWriter<Vec<u8>>,
    interfaces: Vec<Interface>,
    /// The numbers of the interfaces in the file.
    numbers: Vec<Option<u32>>,
    annotate: Option<Annotate>,
    summary: Summary,
    count_max: u64,
    bytes_max: u64,
    is_full: bool,
}

impl<'a> Session<'a> {
    fn new(
        client: Client<'a>,
        capture: Capture,
        snap_bytes: usize,
        wanted: &Wanted,
        annotate: Option<Annotate>,
    ) -> io::Result<Self> {
        let writer = PcapNgWriter::new(Vec::new(), "hotloop", snap_bytes as u32)?;
        let interfaces = capture.interfaces().to_vec();
        let mut file = CaptureFile {
            client,
            writer,
            numbers: vec![None; interfaces.len()],
            interfaces,
            annotate,
            summary: Summary::default(),
            count_max: wanted.count.unwrap_or(u64::MAX),
            bytes_max: wanted.max_bytes.unwrap_or(u64::MAX),
            is_full: false,
        };
        // A reader requires at least one interface, even without packets.
        for index in 0..file.interfaces.len() {
            if index == 0 || !file.interfaces[index].devices.is_empty() {
                file.number(index)?;
            }
        }
        file.send()?;
        Ok(Self { capture, file })
    }

    /// Captures until the capture is ended.
    fn run(&mut self) -> io::Result<()> {
        let Self { capture, file } = self;
        let mut wait = Duration::ZERO;
        while !file.is_full
            && !file.client.is_ending.load(Relaxed)
            && !file.client.has_ended(wait)
            && !capture.is_over()
        {
            let has_come = file.drain(capture)?;
            wait = if has_come { Duration::ZERO } else { LOOK_INTERVAL };
        }
        Ok(())
    }

    /// Takes and sends the rest, and the summary.
    fn finish(mut self) -> io::Result<()> {
        let Self { capture, file } = &mut self;
        capture.stop();
        let deadline = Instant::now() + END_WAIT;
        while !capture.is_over() && Instant::now() < deadline {
            if !file.drain(capture)? {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        let totals = capture.totals();
        let summary = Summary {
            filtered: totals.filtered,
            left_out: totals.left_out,
            lost: totals.lost,
            ..file.summary
        };
        file.client.send(&0_u32.to_le_bytes())?;
        file.client.send(&answer_line(Ok(json!(summary))))
    }
}

impl CaptureFile<'_> {
    /// Writes and sends the packets that have come. Returns whether there were any.
    fn drain(&mut self, capture: &mut Capture) -> io::Result<bool> {
        let offset_ns = capture.epoch_offset_ns();
        let has_come = capture.drain(&mut |record| self.write(record, offset_ns))?;
        self.send()?;
        Ok(has_come)
    }

    fn write(&mut self, record: &Record<'_>, offset_ns: i128) -> io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        let interface = self.number(record.interface)?;
        let timestamp_ns = u64::try_from(i128::from(record.at.as_ns()) + offset_ns).unwrap_or(0);
        let comment = self.comment(record);
        let direction = match record.point {
            TapPoint::Receive => Direction::Inbound,
            TapPoint::Send => Direction::Outbound,
            TapPoint::Drop(_) => Direction::Unknown,
        };
        let before = self.writer.file_mut().len();
        self.writer.write(&PcapNgPacket {
            interface,
            timestamp_ns,
            data: record.data,
            original_bytes: record.total_bytes,
            direction,
            comment: comment.as_deref(),
        })?;
        let pending = self.writer.file_mut();
        if self.summary.bytes + pending.len() as u64 > self.bytes_max {
            pending.truncate(before);
            self.is_full = true;
            return Ok(());
        }
        self.summary.captured += 1;
        self.is_full = self.summary.captured >= self.count_max;
        if self.writer.file_mut().len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    /// The drop reason of a packet, and the program's comment.
    fn comment(&self, record: &Record<'_>) -> Option<String> {
        let dropped = match record.point {
            TapPoint::Drop(reason) => Some(format!("dropped as {reason}")),
            TapPoint::Receive | TapPoint::Send => None,
        };
        let known = self.annotate.as_ref().and_then(|annotate| annotate(record));
        match (dropped, known) {
            (Some(dropped), Some(known)) => Some(format!("{dropped}; {known}")),
            (one, other) => one.or(other),
        }
    }

    /// The number of an interface in the file, which is described at first use.
    fn number(&mut self, index: usize) -> io::Result<u32> {
        if let Some(number) = self.numbers[index] {
            return Ok(number);
        }
        let Interface { core, place, devices } = &self.interfaces[index];
        let what = if devices.is_empty() { place.clone() } else { devices.join(",") };
        let number = self.writer.interface(&format!("{what} on {core}"), place)?;
        self.numbers[index] = Some(number);
        Ok(number)
    }

    /// Sends the waiting blocks.
    fn send(&mut self) -> io::Result<()> {
        let pending = self.writer.file_mut();
        self.summary.bytes += pending.len() as u64;
        let sent = self.client.send_piece(pending);
        pending.clear();
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_nothing_is_not_waited_for_once_the_program_ends() {
        let is_ending = AtomicBool::new(false);
        let (stream, _other) = UnixStream::pair().unwrap();
        stream.set_write_timeout(Some(WRITE_WAIT)).unwrap();
        let mut client = Client { stream, is_ending: &is_ending, gives_up: None };
        let long_ago = Instant::now().checked_sub(STALL_WAIT).unwrap();
        assert!(client.is_waited_for(long_ago));
        is_ending.store(true, Relaxed);
        assert!(!client.is_waited_for(long_ago));
        // One that takes some now and then has until the end of all captures.
        let takes = Instant::now() + END_WAIT;
        assert!(client.is_waited_for(takes));
        client.gives_up = Some(Instant::now());
        assert!(!client.is_waited_for(takes));
        // More than a socket holds.
        assert!(client.send(&vec![7; 16 << 20]).is_err());
    }

    #[test]
    fn places_are_added_up() {
        let read =
            |at: &[&str]| points(&at.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["rx"]), Ok(Points::RECEIVE));
        assert_eq!(read(&["rx", "tx", "drop"]), Ok(Points::ALL));
        assert_eq!(read(&["all"]), Ok(Points::ALL));
        let drops = Drops::For(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(&["drop=a", "tx", "drop=b"]), Ok(Points { drops, ..Points::SEND }));
        assert_eq!(read(&["drop", "drop=b"]), Ok(Points::DROP));
        for wrong in ["", "drop=", "RX", "rx tx"] {
            assert!(read(&[wrong]).unwrap_err().contains("write rx, tx, drop"), "{wrong}");
        }
    }
}
