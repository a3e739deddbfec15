//! Pools of reserved pages, filled and restored by these tests if the machine allows it.

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hotloop_arena::{Arena, Obtained, Pages, Refusal, Request};

use crate::refusals::refused;
use crate::smaps::compare;

/// The pool of pages of one size, as it was before; no other test changes it meanwhile.
struct Pool {
    folder: PathBuf,
    count_before: usize,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Pool {
    /// Takes the lock. Returns the reason if this machine has no such pool.
    fn of(kib: usize) -> Result<Self, String> {
        let path = env::temp_dir().join("hotloop-hugepages.lock");
        let lock = File::options().create(true).append(true).open(&path);
        // Another user's file can be locked all the same.
        let lock = lock.or_else(|_| File::open(&path)).map_err(|error| error.to_string())?;
        lock.lock().map_err(|error| error.to_string())?;
        let folder = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB"));
        if !folder.exists() {
            return Err(format!("no pages of {kib} KiB here"));
        }
        let [count_before, free_count, promised_count] =
            ["nr_hugepages", "free_hugepages", "resv_hugepages"].map(|name| count(&folder, name));
        if count_before != free_count || promised_count > 0 {
            return Err("somebody uses the pool".into());
        }
        Ok(Self { folder, count_before, _lock: lock })
    }

    fn count(&self, name: &str) -> usize {
        count(&self.folder, name)
    }

    /// Fills the pool to `count` pages. Returns the reason if that fails.
    fn fill(&self, count: usize) -> Result<(), String> {
        if self.count("nr_hugepages") == count {
            return Ok(());
        }
        match fs::write(self.folder.join("nr_hugepages"), count.to_string()) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err("only root may reserve pages".into());
            }
            Err(error) => return Err(format!("the kernel reserves none: {error}")),
            Ok(()) => {}
        }
        match self.count("nr_hugepages") {
            found if found == count => Ok(()),
            found => Err(format!("the kernel reserved {found} pages of {count}")),
        }
    }
}

fn count(folder: &Path, name: &str) -> usize {
    fs::read_to_string(folder.join(name)).unwrap().trim().parse().unwrap()
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Pages that are in use by now disappear when they are given back.
        let written = fs::write(self.folder.join("nr_hugepages"), self.count_before.to_string());
        assert!(written.is_ok() || self.count("nr_hugepages") == self.count_before);
    }
}

/// Runs `work` with `count` pages of `kib` in the pool, if that is possible.
fn with_reserved(kib: usize, count: usize, work: impl FnOnce(&Pool)) {
    let done = Pool::of(kib).and_then(|pool| {
        pool.fill(count)?;
        work(&pool);
        Ok(())
    });
    if let Err(why) = done {
        println!("skipped: {why}");
    }
}

/// With `count` pages of `bytes` each in the pool, a request for one more fails, and one for all of
/// them succeeds.
///
/// Programs that don't use the lock may take some of them meanwhile.
fn gives_what_there_is(pages: Pages, bytes: usize, count: usize) {
    let request = |count| Request { pages: vec![pages], ..Request::new(count * bytes) };
    with_reserved(bytes >> 10, count, |pool| {
        let (tried, message) = refused(request(count + 1));
        match tried[..] {
            [(tried, Refusal::TooFewReserved { needed_count, free_count, reserved_count })] => {
                assert_eq!((tried, needed_count, reserved_count), (pages, count + 1, count));
                assert!(free_count <= count, "{message}");
                let total_count = count + needed_count - free_count;
                let remedy = format!("echo {total_count} > {}", pool.folder.display());
                assert!(message.contains(&remedy), "{message}");
            }
            ref tried => panic!("{tried:?}"),
        }

        let mut next = request(count + 1);
        next.pages.push(Pages::Small);
        next.prefault = false;
        let (arena, obtained) = Arena::new(next).unwrap();
        compare(&arena, &obtained);
        assert_eq!(obtained.pages, Pages::Small);

        // Reserved pages are populated at once, and locked without a right to lock.
        let mut steps = Vec::new();
        let wanted = Request { lock: true, prefault: false, ..request(count) };
        match Arena::with_progress(wanted, |step| steps.push(step.done_bytes)) {
            Ok((arena, obtained)) => is_all_there(&arena, &obtained, pages, count * bytes),
            Err(error) if error.to_string().contains("are needed") => {
                println!("skipped: somebody took pages meanwhile: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(steps.last(), Some(&(count * bytes)));
    });
}

fn is_all_there(arena: &Arena, obtained: &Obtained, pages: Pages, bytes: usize) {
    println!("{obtained}");
    compare(arena, obtained);
    assert_eq!((obtained.pages, obtained.huge_bytes), (pages, Some(bytes)));
    assert_eq!((obtained.resident_bytes, obtained.locked_bytes), (Some(bytes), Some(bytes)));
    let mut table = arena.boxed_zeroed::<u64>(1_000).unwrap();
    table[999] = 1;
    assert_eq!(table.iter().sum::<u64>(), 1);
}

#[test]
fn two_mib_pages_are_given_as_far_as_they_go() {
    gives_what_there_is(Pages::Huge, 2 << 20, 40);
}

#[test]
fn one_gib_pages_are_given_as_far_as_they_go() {
    gives_what_there_is(Pages::Gigantic, 1 << 30, 1);
}

#[test]
fn an_empty_pool_says_so_and_is_passed_over() {
    for (pages, kib) in [(Pages::Huge, 2 << 10), (Pages::Gigantic, 1 << 20)] {
        with_reserved(kib, 0, |_| {
            let (tried, message) = refused(Request { pages: vec![pages], ..Request::new(100) });
            let refusal =
                Refusal::TooFewReserved { needed_count: 1, free_count: 0, reserved_count: 0 };
            assert_eq!(tried, [(pages, refusal)]);
            assert!(message.contains("none are reserved. To get it, reserve 1 pages in all"));

            let both = vec![pages, Pages::Small];
            let (arena, obtained) =
                Arena::new(Request { pages: both, ..Request::new(100) }).unwrap();
            compare(&arena, &obtained);
            assert_eq!(obtained.pages, Pages::Small);
        });
    }
}
