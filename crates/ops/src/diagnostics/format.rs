//! Formats a message as one line, for people, for programs, or for journald.

use super::time::Time;
use clap::ValueEnum;
use std::fmt;
use std::os::linux::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format of messages on standard error.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// For people: time, level, program and message.
    Text,
    /// For programs: an object per line, with `timestamp` (RFC 3339), `level`, `message` and
    /// `target`.
    Json,
    /// For journald: the level as syslog's priority, `<3>`, and the message (sd-daemon(3));
    /// journald adds the time and the program.
    Journald,
}

/// The format of a command that answers and ends: `PROGRAM: message`.
const COMMAND: u8 = u8::MAX;

/// Formats messages in the format that is set at the time.
#[derive(Debug)]
pub(super) struct Lines {
    program: &'static str,
    format: AtomicU8,
    json: Format<Json, Time>,
}

impl Lines {
    /// The first format is journald's if standard error is connected to journald, otherwise that of
    /// a command.
    pub(super) fn new(program: &'static str) -> Self {
        let format = if is_journald() { LogFormat::Journald as u8 } else { COMMAND };
        let json = Format::default().with_timer(Time).json().flatten_event(true);
        Self { program, format: AtomicU8::new(format), json }
    }

    /// Switches to the format of a running program, with time and level.
    pub(super) fn log(&self, asked: Option<LogFormat>) {
        let automatic = if is_journald() { LogFormat::Journald } else { LogFormat::Text };
        self.format.store(asked.unwrap_or(automatic) as u8, Ordering::Relaxed);
    }
}

/// Whether systemd has connected standard error to journald: systemd.exec(5), `$JOURNAL_STREAM`.
fn is_journald() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|file| stream == format!("{}:{}", file.st_dev(), file.st_ino()))
}

impl<S, N> FormatEvent<S, N> for &'static Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let format = self.format.load(Ordering::Relaxed);
        if format == LogFormat::Json as u8 {
            return self.json.format_event(context, writer, event);
        }
        let level = *event.metadata().level();
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        if format == LogFormat::Journald as u8 {
            write!(writer, "<{}>", priority(level))?;
        } else {
            if format == LogFormat::Text as u8 {
                Time.format_time(&mut writer)?;
                write!(writer, " {level:>5} ")?;
            }
            write!(writer, "{}: ", self.program)?;
        }
        printable(&mut writer, &message)?;
        writer.write_char('\n')
    }
}

/// Writes text on one line, with control characters escaped so that it can't steer a terminal.
fn printable(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|character| match character.is_control() {
        true => write!(writer, "{}", character.escape_default()),
        false => writer.write_char(character),
    })
}

/// Syslog's severity: RFC 5424, section 6.2.1.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
