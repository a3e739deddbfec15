//! Runs `hotloop-top` in a terminal of tmux, beside programs that run.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

#[path = "../../ops/tests/numbers/mod.rs"]
mod numbers;

use hotloop_engine::{Chain, Control, Deployment, Engine, source};
use hotloop_ops::{Operation, Request, Socket, ask};
use hotloop_stage::{
    Burst, Cx, Device, DeviceCounters, LinkState, Source, Stage, Verdict, drop_reasons,
};
use hotloop_test_tools::tool;
use numbers::{Nothing, Number};
use serde_json::Value;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait, for a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Packets per second from the source. One in four is dropped.
const RATE: f64 = 20_000.0;

/// A device whose counter its source increments.
#[derive(Default)]
struct Counted(AtomicU64);

impl Device for Counted {
    fn name(&self) -> String {
        "made0".to_owned()
    }

    fn counters(&self) -> DeviceCounters {
        let received = self.0.load(Ordering::Relaxed);
        let received_bytes = Some(received * 1000);
        DeviceCounters { received, received_bytes, ..DeviceCounters::default() }
    }

    fn link_state(&self) -> Option<LinkState> {
        Some(LinkState::Up)
    }
}

/// Makes [`RATE`] packets a second until `is_over` is set.
struct Timed<'a> {
    start: Instant,
    made: u64,
    device: Arc<Counted>,
    is_over: &'a AtomicBool,
}

impl Source for Timed<'_> {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        if self.finished() {
            return 0;
        }
        // The thread shares two CPUs with the terminal under test.
        std::thread::sleep(Duration::from_micros(200));
        let due = (self.start.elapsed().as_secs_f64() * RATE) as u64;
        let count = (due - self.made).min(burst.room() as u64);
        burst.extend((self.made..self.made + count).map(Number));
        self.made += count;
        self.device.0.fetch_add(count, Ordering::Relaxed);
        count as usize
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.device) as _]
    }

    fn finished(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

drop_reasons! { enum Fourth { Fourth = "fourth" } }

struct Three;

impl Stage<Number> for Three {
    type Out = Number;
    type Drop = Fourth;

    fn packet(&mut self, cx: &mut Cx<'_, Fourth>, number: Number) -> Verdict<Number> {
        if number.0 % 4 == 3 { cx.drop(number, Fourth::Fourth) } else { Ok(number) }
    }
}

/// A program that runs until `is_over` is set, with its socket at `path`.
fn run(path: &Path, is_over: &AtomicBool) {
    let mut socket = Socket::bind(path).unwrap();
    let device = Arc::new(Counted::default());
    let graph = source(|_| {
        let device = Arc::clone(&device);
        Ok::<_, Infallible>(Timed { start: Instant::now(), made: 0, device, is_over })
    })
    .stage(|_| Three)
    .sink(|_| Ok::<_, Infallible>(Nothing));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let operation = Operation { socket: Some(&mut socket), ..Operation::default() };
    plan.run(|control: &Control<'_>| operation.run(control, &mut ())).unwrap();
}

/// A tmux terminal of 80 by 24, ended with the test.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = tool("tmux").unwrap();
        tmux.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(arguments);
        tmux.output().expect("tmux is there")
    }

    /// Starts a shell in the terminal.
    fn start(folder: &Path) -> Self {
        let terminal = Self { socket: folder.join("tmux") };
        let started = terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "sh"]);
        let errors = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "{errors}");
        terminal
    }

    fn press(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status.success());
    }

    /// The lines on the screen.
    fn lines(&self) -> Vec<String> {
        let screen = self.tmux(&["capture-pane", "-p"]).stdout;
        String::from_utf8(screen).unwrap().lines().map(str::to_owned).collect()
    }

    /// Waits until the lines pass `is_so`, and returns them.
    fn wait(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let lines = self.lines();
            if is_so(&lines) {
                return lines;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {lines:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn format(&self, format: &str) -> String {
        let output = self.tmux(&["display-message", "-p", format]).stdout;
        String::from_utf8(output).unwrap().trim().to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The words of the row that begins with `begin`, below the heading that begins with `head`.
fn row<'a>(lines: &'a [String], head: &str, begin: &str) -> Option<Vec<&'a str>> {
    let below = lines.iter().skip_while(|line| !line.starts_with(head)).skip(1);
    let row = below.take_while(|line| !line.is_empty()).find(|line| line.starts_with(begin))?;
    Some(row[begin.len()..].split_whitespace().collect())
}

/// The number of received packets in `ctl counters`, and the time of the query.
fn received(path: &Path) -> (f64, Instant) {
    let counters: Value = ask(path, &Request::new("counters")).unwrap();
    (counters["received"].as_u64().unwrap() as f64, Instant::now())
}

fn is_near(shown: &str, expected: f64) -> bool {
    // Both are averages over slightly different seconds, on a machine that may stall for tenths of
    // a second.
    let shown: f64 = shown.parse().unwrap_or(f64::NAN);
    (expected * 0.5..expected * 2.0).contains(&shown)
}

#[test]
fn rates_on_the_screen_are_those_of_ctl_counters() {
    if let Err(why) = tool("tmux") {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("hotloop");
    std::fs::create_dir(&sockets).unwrap();
    let paths = ["one", "two"].map(|name| sockets.join(format!("{name}.sock")));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| run(path, &is_over));
        }
        let ended = std::panic::catch_unwind(|| watch(folder.path(), &paths));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

/// Looks at two programs, in an order that a person might choose.
fn watch(folder: &Path, [one, two]: &[PathBuf; 2]) {
    let terminal = Terminal::start(folder);
    let top = format!(
        "XDG_RUNTIME_DIR={} {} --interval 2; echo \"ended with $?\"",
        folder.display(),
        env!("CARGO_BIN_EXE_hotloop-top")
    );
    terminal.press(&[&top, "Enter"]);
    // Other programs may run on this machine, in the system's folder.
    let is_shown = |lines: &[String], name: &str| lines[0].contains(&format!("[{name}]"));
    let choose = |name: &str| {
        for _ in 0..100 {
            let lines = terminal.wait("programs are listed", |lines| lines[0].contains('['));
            if is_shown(&lines, name) {
                return;
            }
            terminal.press(&["Right"]);
            std::thread::sleep(Duration::from_millis(300));
        }
        panic!("{name} was not found: {:#?}", terminal.lines());
    };
    choose("one");
    let (before, start) = received(one);
    let is_rated = |lines: &[String]| {
        row(lines, "core", "core 0").is_some_and(|row| row[1].parse::<f64>().is_ok())
    };
    std::thread::sleep(Duration::from_secs(3));
    let lines = terminal.wait("rates of cores", is_rated);
    let (after, end) = received(one);
    let rate = (after - before) / (end - start).as_secs_f64();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(lines[23].contains("space q"), "keys are shown: {lines:#?}");

    let near = |lines: &[String], head: &str, begin: &str, column: usize, expected: f64| {
        let cells = row(lines, head, begin).unwrap_or_default();
        let is_near = cells.get(column).is_some_and(|cell| is_near(cell, expected));
        assert!(is_near, "{head}, {begin}, {column}: not {expected}: {lines:#?}");
    };
    // The CPU, then packets received, handed over, sent and dropped.
    near(&lines, "core    cpu", "core 0", 1, rate);
    near(&lines, "core    cpu", "core 0", 3, rate * 0.75);
    near(&lines, "core    cpu", "core 0", 4, rate * 0.25);
    near(&lines, "core    stage", "core 0  Three", 0, rate);
    near(&lines, "core    stage", "core 0  sink", 0, rate * 0.75);
    near(&lines, "port", "made0", 1, rate);
    near(&lines, "port", "made0", 2, rate * 8000.0 / 1e6);
    near(&lines, "stage", "Three  fourth", 0, rate * 0.25);
    assert_eq!(row(&lines, "port", "made0").unwrap()[0], "up");

    terminal.press(&["d"]);
    let lines =
        terminal.wait("drops alone", |lines| !lines.iter().any(|line| line.contains("made0")));
    near(&lines, "stage", "Three  fourth", 0, rate * 0.25);
    terminal.press(&["a"]);
    choose("two");
    terminal.wait("the other program's rates", is_rated);
    let status = ask(two, &Request::new("status")).unwrap();
    assert!(terminal.lines()[1].contains(&format!("process {}", status["process"])));
    quit(&terminal);
}

/// Quits, and checks what the program leaves on the terminal.
fn quit(terminal: &Terminal) {
    assert_eq!(terminal.format("#{alternate_on}"), "1");
    terminal.press(&["q"]);
    let lines =
        terminal.wait("its end", |lines| lines.iter().any(|line| line.ends_with("ended with 0")));
    // The earlier content of the screen is back, and the terminal echoes input.
    assert!(lines.iter().any(|line| line.contains("XDG_RUNTIME_DIR=")), "{lines:#?}");
    assert_eq!(
        (terminal.format("#{alternate_on}"), terminal.format("#{cursor_flag}")),
        ("0".into(), "1".into())
    );
    terminal.press(&["stty", "Space", "-a", "Enter"]);
    terminal.wait("a terminal that echoes", |lines| {
        let has = |word: &str| {
            lines.iter().flat_map(|line| line.split_whitespace()).any(|found| found == word)
        };
        has("echo") && has("icanon")
    });
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let top = Command::new(env!("CARGO_BIN_EXE_hotloop-top")).output().unwrap();
    let errors = String::from_utf8_lossy(&top.stderr);
    assert_eq!((top.status.code(), top.stdout.len()), (Some(2), 0), "{errors}");
    assert!(errors.contains("no terminal") && errors.contains("ctl counters --json"), "{errors}");
}
