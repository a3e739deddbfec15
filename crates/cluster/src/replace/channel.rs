//! Messages over a Unix stream that doesn't block, some with files.
//!
//! A message is a kind (1 byte), the length of the rest (4, big-endian), and the rest.

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

const HEADER_BYTES: usize = 5;

/// Maximum length of a message, in bytes, without its header: the blocks and weights of a large
/// configuration fit.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Maximum number of files of a message: a port has at most one, and the VIPs have one.
pub const FILES_MAX: usize = 64;

/// Number of bytes that may wait before the channel refuses more.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Number of bytes to read at once.
const READ_BYTES: usize = 64 << 10;

/// A message between the two programs.
#[derive(Debug)]
pub enum Message {
    /// Received bytes in the cluster's frame format; may end mid-frame.
    Frames(Vec<u8>),
    /// The successor knows all, and is ready.
    Take,
    /// The predecessor continues as before, for this reason.
    Refusal(String),
    /// The predecessor has released everything: the rest of its state, as JSON, and its files.
    Yours(Vec<u8>, Vec<OwnedFd>),
    /// The successor has received that.
    Taken,
}

/// One end of the stream.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    input: Vec<u8>,
    files: VecDeque<OwnedFd>,
    output: Vec<u8>,
    /// The files to send with the output's first byte.
    output_files: Vec<OwnedFd>,
}

impl Channel {
    /// Makes a channel over this stream.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Self { stream, input, files: VecDeque::new(), output, output_files: Vec::new() })
    }

    /// Whether another message should be sent now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX
    }

    /// Queues a message, and sends as much as possible without waiting.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn say(&mut self, message: Message) -> io::Result<()> {
        let (kind, body, files) = match message {
            Message::Frames(bytes) => (0, bytes, Vec::new()),
            Message::Take => (1, Vec::new(), Vec::new()),
            Message::Refusal(why) => (2, why.into_bytes(), Vec::new()),
            Message::Yours(known, files) => (3, known, files),
            Message::Taken => (4, Vec::new(), Vec::new()),
        };
        if !files.is_empty() {
            // The files are sent with the first byte of the next message.
            self.flush()?;
            self.output_files.extend(files);
        }
        self.output.push(kind);
        self.output.extend((body.len() as u32).to_be_bytes());
        self.output.extend(body);
        self.flush()
    }

    /// Sends queued bytes, as far as possible without waiting.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let done = loop {
            if sent == self.output.len() {
                break Ok(());
            }
            match self.send(sent) {
                Ok(count) => {
                    sent += count;
                    self.output_files.clear();
                }
                Err(Errno::AGAIN) => break Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => break Err(error.into()),
            }
        };
        self.output.drain(..sent);
        done
    }

    fn send(&self, sent: usize) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = self.output_files.iter().map(AsFd::as_fd).collect();
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(Errno::TOOBIG);
        }
        let bytes = IoSlice::new(&self.output[sent..]);
        sendmsg(&self.stream, &[bytes], &mut ancillary, SendFlags::NOSIGNAL)
    }

    /// The next message, if it has arrived.
    ///
    /// # Errors
    /// If the other end is gone, or sends an invalid message.
    pub fn hear(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.message()? {
                return Ok(Some(message));
            }
            match self.receive() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let mut bytes = [IoSliceMut::new(&mut self.input[before..])];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut bytes, &mut ancillary, flags);
        let count = received.as_ref().map_or(0, |message| message.bytes);
        self.input.truncate(before + count);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        received.map(|message| message.bytes)
    }

    fn message(&mut self) -> io::Result<Option<Message>> {
        let Some((&[kind, a, b, c, d], rest)) = self.input.split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(wrong("a message that is too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let body = body.to_vec();
        self.input.drain(..HEADER_BYTES + length);
        Ok(Some(match kind {
            0 => Message::Frames(body),
            1 => Message::Take,
            2 => Message::Refusal(String::from_utf8_lossy(&body).into_owned()),
            3 => Message::Yours(body, self.files.drain(..).collect()),
            4 => Message::Taken,
            _ => return Err(wrong("a message of an unknown kind")),
        }))
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(other).unwrap())
    }

    #[test]
    fn messages_arrive_whole_and_in_order_whatever_the_socket_takes() {
        let (mut one, mut other) = pair();
        let long: Vec<u8> = (0..3 << 20).map(|number: u32| number as u8).collect();
        one.say(Message::Frames(long.clone())).unwrap();
        one.say(Message::Take).unwrap();
        assert!(!one.output.is_empty() && !one.has_room());
        let mut heard = Vec::new();
        while heard.len() < 2 {
            heard.extend(other.hear().unwrap());
            one.flush().unwrap();
        }
        assert!(matches!(&heard[..], [Message::Frames(bytes), Message::Take] if *bytes == long));
        assert!(other.hear().unwrap().is_none());
        drop(one);
        assert_eq!(other.hear().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn files_come_with_their_message() {
        let (mut one, mut other) = pair();
        let (file, mut far) = UnixStream::pair().unwrap();
        one.say(Message::Frames(vec![1; 9])).unwrap();
        one.say(Message::Yours(b"{}".to_vec(), vec![file.into()])).unwrap();
        assert!(matches!(other.hear().unwrap(), Some(Message::Frames(_))));
        let Some(Message::Yours(known, mut files)) = other.hear().unwrap() else { panic!() };
        assert_eq!((&known[..], files.len()), (&b"{}"[..], 1));
        // The first end's file is closed: only this end holds it.
        let mut file = UnixStream::from(files.remove(0));
        file.write_all(b"!").unwrap();
        drop(file);
        let mut read = Vec::new();
        far.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"!");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[9_u8, 0, 0, 0, 0][..], &[0, 255, 255, 255, 255]] {
            let (one, mut other) = pair();
            (&one.stream).write_all(bytes).unwrap();
            assert_eq!(other.hear().unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}
