//! One capture: the packets of its cores become the file that its client writes.

use crate::args::Wanted;
use crate::client::{Client, END_WAIT};
use crate::piece::PIECE_BYTES;
use crate::summary::Summary;
use hotloop_capture::{Direction, PcapNgPacket, PcapNgWriter};
use hotloop_stage::tap::TapPoint;
use hotloop_watch::{Capture, Interface, Record, Taps};
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the program's own comment on a captured packet, such as its destination, if any. At most
/// 65,535 bytes of it are written.
pub type Annotate = Arc<dyn Fn(&Record<'_>) -> Option<String> + Send + Sync>;

/// How long the thread of a capture sleeps if no packet has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Serves a client to its end.
pub fn serve(
    mut client: Client<'_>,
    taps: &Taps,
    wanted: &Wanted,
    annotate: Option<Annotate>,
) -> io::Result<()> {
    // A client's departure or the program's end must not wait for the filter's compilation.
    let mut waits = || !client.is_ending() && !client.has_ended(Duration::ZERO);
    let begun = wanted.config(&mut waits).and_then(|config| {
        let capture = taps.capture(&config).map_err(|error| error.to_string())?;
        Ok((capture, config.snap_bytes))
    });
    let (capture, snap_bytes) = match begun {
        Ok(begun) => begun,
        Err(error) => return client.answer(Err(error)),
    };
    client.answer(Ok(json!({"snaplen": snap_bytes})))?;
    let mut session = Session::new(client, capture, snap_bytes, wanted, annotate)?;
    session.run()?;
    session.finish()
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
            && !file.client.is_ending()
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
        file.client.end_file()?;
        file.client.answer(Ok(json!(summary)))
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
