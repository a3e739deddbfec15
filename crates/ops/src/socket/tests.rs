//! The socket on one thread: bytes that a client has written are there in the next round.

use super::*;
use crate::ask::{AskError, ask_within};
use crate::request::Answerer;
use nix::unistd::{Gid, Uid, getegid, geteuid, setfsgid, setfsuid};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

/// A wait for an answer that doesn't come.
const SHORT: Duration = Duration::from_millis(50);

thread_local! {
    /// The requests that were noted, with their answers.
    static NOTED: RefCell<Vec<(String, Result<Value, String>)>> = const { RefCell::new(Vec::new()) };
}

fn note(request: &Request, answer: &dyn Fn() -> Result<Value, String>) -> Option<String> {
    NOTED.with_borrow_mut(|noted| noted.push((request.command.clone(), answer())));
    None
}

struct Served {
    socket: Socket,
    now: Instant,
    asked_count: usize,
    promised: Vec<Answerer>,
    // Dropped last: the socket removes its file first.
    _folder: TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&folder.path().join("nf.sock")).unwrap().noting(note);
        let (now, promised) = (Instant::now(), Vec::new());
        Self { socket, now, asked_count: 0, promised, _folder: folder }
    }

    fn client(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket.path()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// A round: `echo` answers with its arguments, `long` with that number of bytes, `later` with
    /// the value sent to the last of `promised`, others with an error.
    fn round(&mut self) {
        let Self { socket, now, asked_count, promised, .. } = self;
        socket.serve_at(*now, &mut |request| {
            *asked_count += 1;
            Reply::Now(match request.command.as_str() {
                "echo" => Ok(request.arguments.clone()),
                "long" => Ok(Value::from("x".repeat(request.arguments.as_u64().unwrap() as usize))),
                "later" => {
                    let (answerer, reply) = Reply::later();
                    promised.push(answerer);
                    return reply;
                }
                _ => return request.unknown().unwrap_or_else(|error| Reply::Now(Err(error))),
            })
        });
    }
}

fn echo(value: &Value) -> Vec<u8> {
    Request::with("echo", value.clone()).line()
}

/// The bytes that have come, and whether more will follow.
fn received(mut client: &UnixStream) -> (String, bool) {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    loop {
        match client.read(&mut bytes) {
            Ok(0) => return (text, true),
            Ok(count) => text.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (text, false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return (text, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes the bytes that the other side takes.
fn flood(mut client: &UnixStream, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match client.write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(_) => break,
        }
    }
    written
}

#[test]
fn several_requests_on_one_connection_are_answered_in_order() {
    let mut served = Served::new();
    let mut client = served.client();
    for index in 0..3 {
        client.write_all(&echo(&json!(index))).unwrap();
        served.round();
        assert_eq!(received(&client), (format!("{{\"ok\":{index}}}\n"), false));
    }
    let many: Vec<u8> = (0..10).flat_map(|index| echo(&json!([index]))).collect();
    client.write_all(&many).unwrap();
    served.round();
    assert_eq!(served.asked_count, 3 + 4, "a round is bounded");
    (0..3).for_each(|_| served.round());
    let expected: String = (0..10).map(|index| format!("{{\"ok\":[{index}]}}\n")).collect();
    assert_eq!(received(&client), (expected, false));
}

#[test]
fn a_request_in_pieces_waits_for_its_end() {
    let mut served = Served::new();
    let mut client = served.client();
    for byte in echo(&json!("in pieces")) {
        assert_eq!((received(&client), served.asked_count), ((String::new(), false), 0));
        client.write_all(&[byte]).unwrap();
        served.round();
    }
    assert_eq!(received(&client), ("{\"ok\":\"in pieces\"}\n".to_owned(), false));
}

#[test]
fn what_comes_before_the_end_of_input_is_answered_and_then_the_client_let_go() {
    let mut served = Served::new();
    let mut client = served.client();
    let mut lines = echo(&json!(1));
    lines.extend(echo(&json!(2)));
    lines.pop();
    client.write_all(&lines).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    served.round();
    assert_eq!(received(&client), ("{\"ok\":1}\n{\"ok\":2}\n".to_owned(), true));
    assert!(served.socket.clients.is_empty());
}

#[test]
fn garbage_is_answered_and_does_no_harm() {
    let mut served = Served::new();
    let mut client = served.client();
    let garbage: [&[u8]; 5] = [b"status", b"", b"\xff\x00\xfe", b"{\"command\": 1}", b"[[[[["];
    for line in garbage {
        client.write_all(line).unwrap();
        client.write_all(b"\n").unwrap();
        served.round();
        let (text, is_ended) = received(&client);
        assert!(text.starts_with("{\"error\":\"this is no request") && !is_ended, "{text}");
    }
    client.write_all(&Request::new("explode").line()).unwrap();
    served.round();
    assert!(received(&client).0.contains("there is no command \\\"explode\\\""));
    client.write_all(&echo(&json!("well"))).unwrap();
    served.round();
    assert_eq!(received(&client), ("{\"ok\":\"well\"}\n".to_owned(), false));
    assert_eq!(served.asked_count, 2);
}

#[test]
fn a_line_that_is_too_long_ends_the_connection_and_is_never_kept() {
    let mut served = Served::new();
    let client = served.client();
    let longest = echo(&json!("x".repeat(REQUEST_BYTES - echo(&json!("")).len() + 1)));
    assert_eq!(longest.len(), REQUEST_BYTES + 1);
    flood(&client, &longest);
    served.round();
    assert!(received(&client).0.starts_with("{\"ok\":\"xxx"));

    let mut written = 0;
    for _ in 0..100 {
        written += flood(&client, &[b'x'; 1 << 20]);
        served.round();
        let held: usize = served.socket.clients.iter().map(Client::held_bytes).sum();
        assert!(held <= 2 * REQUEST_BYTES, "{held}");
    }
    assert!(written > REQUEST_BYTES);
    assert_eq!(
        received(&client),
        ("{\"error\":\"a request has at most 65536 bytes\"}\n".to_owned(), true)
    );
    assert!(served.socket.clients.is_empty());
}

const REQUEST_BYTES: usize = crate::request::REQUEST_BYTES_MAX;

#[test]
fn a_half_written_request_then_silence_blocks_nobody_and_is_let_go_in_the_end() {
    let mut served = Served::new();
    let (mut silent, mut other) = (served.client(), served.client());
    silent.write_all(b"{\"command\": ").unwrap();
    other.write_all(&echo(&json!(1))).unwrap();
    served.round();
    assert_eq!(received(&other).0, "{\"ok\":1}\n");

    // Bytes that finish no request don't keep the connection open.
    served.now += CLIENT_IDLE_MAX / 2;
    silent.write_all(b"\"st").unwrap();
    other.write_all(&echo(&json!(2))).unwrap();
    served.round();
    served.now += CLIENT_IDLE_MAX / 2;
    served.round();
    assert_eq!(received(&silent), (String::new(), true));
    assert_eq!(received(&other), ("{\"ok\":2}\n".to_owned(), false));
}

#[test]
fn a_client_that_reads_nothing_gets_no_second_answer_and_is_let_go_in_the_end() {
    let mut served = Served::new();
    let (mut deaf, mut other) = (served.client(), served.client());
    for _ in 0..8 {
        deaf.write_all(&Request::with("long", json!(4 << 20)).line()).unwrap();
    }
    for _ in 0..10 {
        served.round();
    }
    assert_eq!(served.asked_count, 1);
    other.write_all(&echo(&json!(1))).unwrap();
    served.now += CLIENT_IDLE_MAX - Duration::from_nanos(1);
    served.round();
    assert_eq!(received(&other).0, "{\"ok\":1}\n");
    assert_eq!(served.socket.clients.len(), 2);
    served.now += Duration::from_nanos(1);
    served.round();
    assert_eq!(served.socket.clients.len(), 1);
}

#[test]
fn a_long_answer_goes_out_in_rounds_whole() {
    let mut served = Served::new();
    let mut client = served.client();
    client.write_all(&Request::with("long", json!(8 << 20)).line()).unwrap();
    client.write_all(&echo(&json!("next"))).unwrap();
    let (mut text, mut round_count) = (String::new(), 0);
    while !text.ends_with("{\"ok\":\"next\"}\n") {
        served.round();
        text.push_str(&received(&client).0);
        round_count += 1;
        assert!(round_count < 10_000, "{} bytes", text.len());
    }
    assert!(round_count > 1);
    assert_eq!(text.len(), "{\"ok\":\"\"}\n{\"ok\":\"next\"}\n".len() + (8 << 20));
}

#[test]
fn more_clients_than_there_may_be_displace_the_idlest() {
    let mut served = Served::new();
    let mut clients = Vec::new();
    for index in 0..CLIENT_COUNT_MAX {
        clients.push(served.client());
        served.now += Duration::from_millis(1);
        served.round();
        assert_eq!(served.socket.clients.len(), index + 1);
    }
    // The first made progress again, so the second is the idlest.
    served.now += Duration::from_millis(1);
    clients[0].write_all(&echo(&json!(0))).unwrap();
    served.round();
    let mut new = served.client();
    new.write_all(&echo(&json!("new"))).unwrap();
    served.now += Duration::from_millis(1);
    served.round();
    assert_eq!(received(&new).0, "{\"ok\":\"new\"}\n");
    assert_eq!(received(&clients[0]), ("{\"ok\":0}\n".to_owned(), false));
    assert_eq!(received(&clients[1]), (String::new(), true));
    assert_eq!(received(&clients[2]), (String::new(), false));
    assert_eq!(served.socket.clients.len(), CLIENT_COUNT_MAX);
}

#[test]
fn hundreds_of_silent_clients_keep_nobody_from_an_answer() {
    let mut served = Served::new();
    for _ in 0..50 {
        let _silent: Vec<_> = (0..10).map(|_| served.client()).collect();
        let mut client = served.client();
        client.write_all(&echo(&json!("here"))).unwrap();
        served.round();
        assert_eq!(received(&client).0, "{\"ok\":\"here\"}\n");
        assert!(served.socket.clients.len() <= CLIENT_COUNT_MAX);
    }
}

#[test]
fn a_client_that_goes_away_unanswered_is_forgotten() {
    let mut served = Served::new();
    let mut client = served.client();
    client.write_all(&Request::with("long", json!(4 << 20)).line()).unwrap();
    drop(client);
    drop(served.client());
    served.round();
    served.round();
    assert!(served.socket.clients.is_empty());
}

#[test]
fn the_file_goes_with_the_socket_and_only_its_own() {
    let served = Served::new();
    let path = served.socket.path().to_owned();
    assert!(fs::symlink_metadata(&path).is_ok());
    drop(served.socket);
    assert!(fs::symlink_metadata(&path).is_err());

    let served = Served::new();
    let path = served.socket.path().to_owned();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another's").unwrap();
    drop(served.socket);
    assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
}

#[test]
fn an_answer_that_comes_later_holds_up_nobody_else() {
    let mut served = Served::new();
    let (mut first, mut second) = (served.client(), served.client());
    let later = Request::new("later").line();
    first.write_all(&[later.clone(), echo(&json!("first"))].concat()).unwrap();
    second.write_all(&later).unwrap();
    let mut third = served.client();
    for index in 0..3 {
        third.write_all(&echo(&json!(index))).unwrap();
        // Longer than a client may be idle: here, clients wait for the program.
        served.now += CLIENT_IDLE_MAX;
        served.round();
        assert_eq!(received(&third), (format!("{{\"ok\":{index}}}\n"), false));
    }
    assert_eq!(
        (received(&first), received(&second)),
        ((String::new(), false), (String::new(), false))
    );
    // One is answered, and then its next request; the other's promise is broken.
    let last = served.promised.remove(0);
    last.send(Ok(json!("done")));
    served.promised.clear();
    served.round();
    let (text, is_ended) = received(&first);
    assert_eq!((text.as_str(), is_ended), ("{\"ok\":\"done\"}\n{\"ok\":\"first\"}\n", false));
    let (text, is_ended) = received(&second);
    assert!(text.starts_with("{\"error\":\"the program gave this up") && !is_ended, "{text}");
}

#[test]
fn a_client_that_goes_away_no_longer_awaits_its_answer() {
    let mut served = Served::new();
    let (mut gone, mut half) = (served.client(), served.client());
    for client in [&mut gone, &mut half] {
        client.write_all(&Request::new("later").line()).unwrap();
        served.round();
    }
    // One will send nothing more, and reads.
    half.shutdown(Shutdown::Write).unwrap();
    drop(gone);
    served.round();
    let awaited: Vec<_> = served.promised.iter().map(Answerer::is_awaited).collect();
    assert_eq!(awaited, [false, true]);
    served.promised.remove(1).send(Ok(json!("here")));
    served.round();
    assert_eq!(received(&half).0, "{\"ok\":\"here\"}\n");
}

#[test]
fn each_request_is_noted_with_its_answer_also_of_a_client_that_goes_away() {
    let mut served = Served::new();
    let (mut stays, mut goes) = (served.client(), served.client());
    for request in [Request::new("echo"), Request::new("nothing"), Request::new("later")] {
        stays.write_all(&request.line()).unwrap();
        served.round();
    }
    goes.write_all(&Request::new("later").line()).unwrap();
    served.round();
    served.promised.remove(0).send(Ok(json!({ "done": 1 })));
    drop(goes);
    served.round();
    let noted: Vec<_> = NOTED.with_borrow(Clone::clone);
    let commands: Vec<_> = noted.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(commands, ["echo", "nothing", "later", "later"]);
    assert_eq!((&noted[0].1, &noted[2].1), (&Ok(Value::Null), &Ok(json!({ "done": 1 }))));
    let unknown = noted[1].1.as_ref().unwrap_err();
    assert!(unknown.contains("there is no command"), "{unknown}");
    assert_eq!(noted[3].1, Err("its client went away before the answer".to_owned()));
}

/// Runs `look` with another user's access to files, as root can.
fn as_other<R>(group: u32, look: impl FnOnce() -> R) -> R {
    setfsgid(Gid::from_raw(group));
    setfsuid(Uid::from_raw(65_534));
    let seen = look();
    setfsuid(Uid::from_raw(0));
    setfsgid(Gid::from_raw(0));
    seen
}

#[test]
fn one_group_may_do_all_and_another_only_query() {
    let is_root = geteuid().is_root();
    // Without root, a file can only be given to a group of one's own.
    let [all, only] = if is_root { [40_001, 40_002] } else { [getegid().as_raw(); 2] };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let args = ControlArgs {
        control: Some(path.clone()),
        control_group: Some(all.to_string()),
        query_group: Some(only.to_string()),
    };
    let socket = args.bind("nf").unwrap().unwrap().noting(note);
    let socket = socket.querying(|request| request.command == "list");
    for (file, group) in [(&path, all), (&query_path(&path), only)] {
        let file = fs::metadata(file).unwrap();
        assert_eq!((file.mode() & 0o777, file.gid()), (0o660, group));
    }
    let mut served = Served { socket, _folder: folder, ..Served::new() };
    let mut client = UnixStream::connect(query_path(&path)).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut answer_to = |command: &str| {
        client.write_all(&Request::new(command).line()).unwrap();
        served.round();
        received(&client).0
    };
    for query in ["list", "status", "counters", "load", "xstats"] {
        let answer = answer_to(query);
        assert!(answer.contains("error") && !answer.contains("only query"), "{query}: {answer}");
    }
    for other in ["echo", "capture", "reload"] {
        assert!(answer_to(other).contains("you may only query this program"), "{other}");
    }
    assert_eq!(served.asked_count, 5);
    let refused = NOTED.take().split_off(5);
    assert!(refused.iter().all(|(_, answer)| answer.is_err()) && refused.len() == 3);

    if is_root {
        fs::set_permissions(served._folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let connects = |group| {
            as_other(group, || {
                [&path, &query_path(&path)].map(|path| UnixStream::connect(path).is_ok())
            })
        };
        assert_eq!([all, only, 40_003].map(connects), [[true, false], [false, true], [false; 2]]);
        // A client finds the socket that it may use.
        let ask = |group| as_other(group, || ask_within(&path, &Request::new("list"), SHORT));
        assert!(matches!(ask(only), Err(AskError::Silent { .. })), "nothing serves here");
        assert!(matches!(ask(40_003), Err(AskError::System { .. })));
    }
    let Served { socket, _folder: folder, .. } = served;
    drop(socket);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "both are removed");
}

#[test]
fn a_group_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let control = Some(folder.path().join("nf.sock"));
    let group = Some("no-such-group".to_owned());
    for args in [
        ControlArgs { control: control.clone(), control_group: group.clone(), query_group: None },
        ControlArgs { control, control_group: None, query_group: group },
    ] {
        let error = args.bind("nf").unwrap_err().to_string();
        assert!(error.contains("there is no group no-such-group; create it"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }
}
