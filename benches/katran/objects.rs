//! The files that the benchmark compiles when it runs: Katran and its driver for BPF, and the
//! shared object that loads them.

use hotloop_benches::peers::katran::{Files, probe};
use hotloop_measure::table;
use rustix::process::geteuid;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names a checkout or a bare repository of Katran's source.
const SOURCE_VARIABLE: &str = "KATRAN";

/// The public location of Katran's source.
const SOURCE: &str = "https://github.com/facebookincubator/katran";

/// The program, with everything that it includes, relative to the root of the source.
const PROGRAM: &str = "katran/lib/bpf/balancer.bpf.c";
const FOLDERS: [&str; 2] = ["katran/lib/bpf", "katran/lib/linux_includes"];

/// Beside the C compiler that the project needs anyway.
const COMPILERS: [&str; 2] = ["clang", "llc"];

const INSTALL: &str = "install it by `cargo xtask setup --bench`";

/// Whether the kernel compiles BPF programs for the CPU: 1, or 2 if it also prints the result.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// The folder of our own files.
const CSRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/katran/csrc");

/// The flags in Katran's Makefile-bpf.
const KATRAN_FLAGS: [&str; 8] = [
    "-D__KERNEL__",
    "-Wno-unused-value",
    "-Wno-pointer-sign",
    "-Wno-compare-distinct-pointer-types",
    "-O2",
    "-emit-llvm",
    "-c",
    "-g",
];

/// Katran's limit of new connections per second and core, as high as possible: the benchmark of new
/// connections needs all of them entered.
const ANY_RATE: &str = "-DMAX_CONN_RATE=4000000000u";

/// The compiled files.
pub struct Objects {
    /// Katran, unmodified.
    pub katran: Files,
    /// Katran without its limit of new connections.
    pub unlimited: Files,
    /// Katran's version.
    pub version: String,
}

/// Why nothing is measured.
pub enum Missing {
    /// Something that this machine lacks, and the remedy.
    Part(String),
    /// A part exists but does not work.
    Broken(String),
}

impl Objects {
    /// Finds everything needed. The first process of a run also compiles it.
    pub fn make(is_first: bool) -> Result<Self, Missing> {
        let source = Source::find().map_err(Missing::Part)?;
        check_machine().map_err(Missing::Part)?;
        let folder = table::folder().join("katran");
        let objects = Self::of(&folder, source.version().map_err(Missing::Part)?);
        if is_first {
            compile(&source, &folder).map_err(Missing::Broken)?;
        }
        probe(&objects.katran.library).map_err(|error| {
            Missing::Part(format!("{error}; run it as root where BPF programs may be loaded"))
        })?;
        Ok(objects)
    }

    fn of(folder: &Path, version: String) -> Self {
        let files = |katran: &str| Files {
            library: folder.join("side.so"),
            katran: folder.join(katran),
            driver: folder.join("driver.o"),
        };
        Self { katran: files("katran.o"), unlimited: files("katran-unlimited.o"), version }
    }
}

/// The repository of Katran's source, by the folder of git's data.
struct Source(PathBuf);

impl Source {
    fn find() -> Result<Self, String> {
        let get = format!("clone {SOURCE} and set {SOURCE_VARIABLE} to the clone");
        let Some(path) = env::var_os(SOURCE_VARIABLE).map(PathBuf::from) else {
            return Err(format!("{SOURCE_VARIABLE} names no source of Katran; {get}"));
        };
        // cargo runs a benchmark in the folder of its package.
        let path = fs::canonicalize(&path)
            .map_err(|error| format!("{SOURCE_VARIABLE}={}: {error}; {get}", path.display()))?;
        let of_checkout = path.join(".git");
        let source = Self(if of_checkout.exists() { of_checkout } else { path });
        let found = output(source.git().args(["cat-file", "-e", &format!("HEAD:{PROGRAM}")]));
        let path = source.0.display();
        found.map_err(|error| {
            format!("{SOURCE_VARIABLE}: {path} has no {PROGRAM} ({error}); {get}")
        })?;
        Ok(source)
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(&self.0);
        git
    }

    /// The commit.
    fn version(&self) -> Result<String, String> {
        output(self.git().args(["rev-parse", "--short=12", "HEAD"]))
    }

    /// Extracts the commit's files into `folder`, and returns their root.
    fn files(&self, folder: &Path) -> Result<PathBuf, String> {
        let (files, archive) = (folder.join("source"), folder.join("source.tar"));
        fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
        output(self.git().arg("archive").arg("-o").arg(&archive).arg("HEAD").args(FOLDERS))?;
        output(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&files))?;
        Ok(files)
    }
}

/// Checks that this machine can compile and run it.
fn check_machine() -> Result<(), String> {
    for compiler in COMPILERS {
        output(Command::new(compiler).arg("--version"))
            .map_err(|error| format!("no {compiler} ({error}); {INSTALL}"))?;
    }
    let headers = ["bpf/bpf.h", "bpf/libbpf.h", "bpf/bpf_helpers.h", "linux/bpf.h"];
    for header in headers {
        let mut preprocessor = cc();
        preprocessor.args(["-E", "-x", "c", "-include", header, "/dev/null", "-o", "/dev/null"]);
        output(&mut preprocessor)
            .map_err(|_| format!("no header {header} of libbpf; {INSTALL}"))?;
    }
    if !geteuid().is_root() {
        return Err("loading BPF programs needs root; run it as root".to_owned());
    }
    let jit = fs::read_to_string(JIT).unwrap_or_else(|error| error.to_string());
    match jit.trim() {
        "1" | "2" => Ok(()),
        jit => Err(format!(
            "the kernel's JIT of BPF is off ({JIT}: {jit}), without which Katran is interpreted; \
             switch it on by `sysctl net.core.bpf_jit_enable=1`"
        )),
    }
}

fn compile(source: &Source, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let source = source.files(folder)?;
    katran(&source, &[], &folder.join("katran.o"))?;
    katran(&source, &[ANY_RATE], &folder.join("katran-unlimited.o"))?;
    let csrc = Path::new(CSRC);
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"]);
    // Debian has each architecture's headers in a folder of its own, where this target does not
    // look.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH));
    output(clang.arg(csrc.join("driver.bpf.c")).arg("-o").arg(folder.join("driver.o")))?;
    let mut cc = cc();
    cc.args(["-O2", "-shared", "-fPIC"]).arg(csrc.join("side.c")).arg("-o");
    output(cc.arg(folder.join("side.so")).arg("-lbpf")).map(drop)
}

/// Compiles Katran as its own Makefile-bpf does.
fn katran(source: &Path, flags: &[&str], object: &Path) -> Result<(), String> {
    let bitcode = object.with_extension("bc");
    let mut clang = Command::new("clang");
    clang.arg("-I").arg(source).args(KATRAN_FLAGS).args(flags);
    output(clang.arg(source.join(PROGRAM)).arg("-o").arg(&bitcode))?;
    let mut llc = Command::new("llc");
    llc.args(["-march=bpf", "-filetype=obj"]).arg(&bitcode).arg("-o").arg(object);
    output(&mut llc).map(drop)
}

fn cc() -> Command {
    Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Runs a command. Returns its output, or its standard error.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{program} has failed: {error}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
