//! DPDK's environment: memory, drivers and threads of the process.

mod arguments;
mod options;
mod threads;

use crate::errno::{errno, errno_text};
use crate::lock::{Control, lock};
use crate::{Error, log, timestamp};
use arguments::Arguments;
use hotloop_dpdk_sys as sys;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, OnceLock};

pub use arguments::EMBEDDED_ARGUMENTS;

/// The arguments EAL was started with.
static STARTED: OnceLock<String> = OnceLock::new();

/// The arguments with which EAL first failed to start.
static FAILED: OnceLock<String> = OnceLock::new();

/// Proof that EAL is initialised in this process. It stays initialised.
///
/// EAL can be initialised once in a process and is never cleaned up: touching an mbuf after that
/// would be a segmentation fault, and mbufs may be anywhere. When the process ends, no file and no
/// hugepage is left behind; only an empty folder in `/var/run/dpdk`, or in a user's own.
///
/// The calling thread is neither pinned nor registered: initialisation runs on a thread of its own.
///
/// ```
/// use hotloop_dpdk::Eal;
///
/// let eal = Eal::embedded()?;
/// assert!(Eal::embedded().is_err()); // once in a process
/// assert!(Eal::current().is_some());
/// # let _ = eal;
/// # Ok::<(), hotloop_dpdk::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    _private: (),
}

impl Eal {
    /// Starts EAL in a way that works anywhere: without privilege, hugepages, PCI devices or files,
    /// and with at most 1 GiB of memory, which becomes resident only as it is used.
    ///
    /// # Errors
    /// As for [`with_args`](Self::with_args).
    pub fn embedded() -> Result<Self, Error> {
        Self::with_args(EMBEDDED_ARGUMENTS)
    }

    /// Starts EAL with the arguments that follow `--` on the program's command line, or as
    /// [`embedded`](Self::embedded) if there are none.
    ///
    /// # Errors
    /// As for [`with_args`](Self::with_args).
    pub fn from_args() -> Result<Self, Error> {
        let words = std::env::args().skip_while(|word| word != "--").skip(1).collect::<Vec<_>>();
        if words.is_empty() { Self::embedded() } else { Self::with_args(&words) }
    }

    /// Starts EAL with arguments as its documentation lists them, without a program's name.
    ///
    /// These are added, unless the arguments override them: `--lcores` with one lcore, on the first
    /// CPU that the process may use; `--no-telemetry`; and `--in-memory`, or `--no-shconf` with
    /// `--no-huge`. A virtual device given by `--vdev` or `-a` is plugged in when a port opens it
    /// by its name, since EAL itself does not report when that fails. DPDK's log is kept for the
    /// messages of errors; with `--log-level`, each line is also an event of `tracing` with target
    /// `dpdk`. A subscriber may panic, which is caught, but must not block: DPDK waits for it.
    /// Inside an event, calls that need a lock of this crate or of DPDK, such as those that open,
    /// start, stop and read ports, panic, and [`lcore::register`](crate::lcore::register) returns
    /// an error. A thread that is ending sends no events.
    ///
    /// EAL gets only options that are known to be harmless, whatever their values: not `-d`, which
    /// loads code, nor `--mbuf-pool-ops-name`, which could select pools for a single thread.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialised`] the second time, [`Error::EalArgument`] for an argument that
    /// is unknown, lacks its value or cannot be allowed, and [`Error::EalInit`] if EAL does not
    /// start: no hugepages, no permission. After some of these failures EAL can't start with any
    /// arguments until the process ends; the error of the next attempt reports that.
    pub fn with_args<S: AsRef<str>>(arguments: &[S]) -> Result<Self, Error> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let words = arguments.iter().map(|word| word.as_ref().to_owned()).collect::<Vec<_>>();
        let _guard = lock(&ONE_AT_A_TIME);
        if let Some(running) = STARTED.get() {
            return Err(Error::AlreadyInitialised {
                wanted: words.join(" "),
                running: running.clone(),
            });
        }
        let arguments = Arguments::parse(&words)?;
        // EAL pins the thread that initialises it, and makes it its main lcore: use a thread that
        // ends.
        let started = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("eal-init".into())
                .spawn_scoped(scope, || start(&arguments))
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
        });
        started
            .unwrap_or_else(|error| Err(arguments.failed(&error.to_string(), "nothing", None)))?;
        let _ = STARTED.set(arguments.to_string());
        Ok(Self { _private: () })
    }

    /// Sets a function that each of EAL's own threads calls once after its start: the one that
    /// handles interrupts, and those of lcores beyond the first. State that belongs to a thread,
    /// such as its capabilities, can only be changed by that thread. `work` must not wait for other
    /// threads.
    ///
    /// Returns whether this was the first call; only the first one counts, and it must come before
    /// the start.
    ///
    /// ```
    /// use hotloop_dpdk::Eal;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// static COUNT: AtomicUsize = AtomicUsize::new(0);
    /// assert!(Eal::visit_threads(|| drop(COUNT.fetch_add(1, Ordering::Relaxed))));
    /// Eal::embedded()?;
    /// assert_eq!(COUNT.load(Ordering::Relaxed), 1);
    /// # Ok::<(), hotloop_dpdk::Error>(())
    /// ```
    pub fn visit_threads(work: fn()) -> bool {
        threads::set(work)
    }

    /// The proof, if EAL is initialised.
    #[must_use]
    pub fn current() -> Option<Self> {
        STARTED.get().map(|_| Self { _private: () })
    }

    /// [`embedded`](Self::embedded), or the proof if EAL already runs with any arguments: for tests
    /// that share a process.
    ///
    /// # Errors
    /// As for [`with_args`](Self::with_args), except that a running EAL is no error.
    pub fn embedded_or_current() -> Result<Self, Error> {
        match Self::embedded() {
            Err(Error::AlreadyInitialised { .. }) => Ok(Self { _private: () }),
            result => result,
        }
    }

    /// EAL's arguments in one line.
    #[must_use]
    pub fn arguments(self) -> &'static str {
        STARTED.get().map_or("", String::as_str)
    }
}

/// Initialises EAL on the calling thread.
fn start(arguments: &Arguments) -> Result<(), Error> {
    log::open(arguments.log_level_given());
    // EAL keeps pointers into its arguments, and writes to the array.
    let mut argv = Vec::new();
    for word in arguments.words() {
        let word = CString::new(word).map_err(|_| Error::EalArgument {
            argument: arguments.to_string(),
            problem: "it holds a zero byte".into(),
        })?;
        argv.push(word.into_raw());
    }
    let count = argv.len() as c_int;
    argv.push(std::ptr::null_mut::<c_char>());
    let argv = argv.leak().as_mut_ptr();
    let mut control = Control::lock()?;
    // SAFETY: 1. `argv` holds `count` C strings and a null pointer, which live as long as the
    // process. 2. rte_eal.h: to be called once; a failed call has not got as far, or returns
    // EALREADY the next time.
    let (result, said) = log::capture(|| unsafe { sys::sh_eal_init(count, argv) });
    if result < 0 {
        return Err(failed(arguments, errno(), &said));
    }
    if said.contains("not respected") {
        tracing::warn!("EAL's memory is not where --base-virtaddr asks for it; EAL said: {said}");
    }
    control.announced.extend(arguments.announced().iter().cloned());
    timestamp::register();
    threads::visit().map_err(|code| failed(arguments, code, &said))
}

fn failed(arguments: &Arguments, code: c_int, said: &str) -> Error {
    let earlier = FAILED.get().map(String::as_str);
    let error = arguments.failed(&errno_text(code), said, earlier);
    let _ = FAILED.set(arguments.to_string());
    error
}
