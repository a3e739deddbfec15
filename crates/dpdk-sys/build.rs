//! Finds libdpdk and libpcap, and compiles the shim over their functions that `hotloop-dpdk` calls.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest DPDK version that the shim and the bindings were checked against.
const VERSION_MIN: &str = "22.11";

/// The first libpcap version whose compiler several threads may call at a time: pcap_compile(3).
const PCAP_MIN: &str = "1.8.0";

/// Constants that differ between builds of DPDK: the constant's name, the preprocessor's, and the
/// value in Debian's DPDK 22.11, which is documented if there is no DPDK.
const CONFIGURED: &[(&str, &str, u32)] = &[
    ("SH_LCORE_MAX", "RTE_MAX_LCORE", 128),
    ("SH_PKTMBUF_HEADROOM", "RTE_PKTMBUF_HEADROOM", 128),
    ("SH_MEMPOOL_CACHE_MAX", "RTE_MEMPOOL_CACHE_MAX_SIZE", 512),
    ("SH_QUEUES_PER_PORT_MAX", "RTE_MAX_QUEUES_PER_PORT", 1024),
    ("SH_DEVICE_STRING_BYTES_MAX", "DEVICE_STRING_BYTES_MAX", u32::MAX),
    ("SH_EAL_FORMATS_LOG", "EAL_FORMATS_LOG", 0),
    ("SH_MEMPOOL_REFILLS_HALF", "MEMPOOL_REFILLS_HALF", 0),
];

fn main() {
    for file in ["build.rs", "src/shim.h", "src/shim.c", "src/version.h"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    #[cfg(feature = "bindgen")]
    bind();
    // docs.rs has neither DPDK nor a network to fetch it, and links nothing.
    if env::var_os("DOCS_RS").is_some() {
        return write_configured(|_, documented| documented.to_string());
    }
    let library = match pkg_config::Config::new().atleast_version(VERSION_MIN).probe("libdpdk") {
        Ok(library) => library,
        Err(error) => stop(&format!(
            "DPDK {VERSION_MIN} or later is needed to build hotloop-dpdk-sys.\n\
             Run `cargo xtask setup`, which installs what is missing, or set PKG_CONFIG_PATH to \
             the folder of libdpdk.pc.\npkg-config says: {error}"
        )),
    };
    if let Err(error) = pkg_config::Config::new().atleast_version(PCAP_MIN).probe("libpcap") {
        stop(&format!(
            "libpcap {PCAP_MIN} or later is needed to build hotloop-dpdk-sys, as for DPDK itself.\n\
             Run `cargo xtask setup`, which installs what is missing.\npkg-config says: {error}"
        ));
    }
    println!("cargo:version={}", library.version);
    let cflags = raw_cflags();
    compile_shim(&cflags);
    let values = configured(&cflags);
    write_configured(|macro_name, _| values[macro_name].clone());
}

/// The flags as pkg-config prints them: its parsed form loses `-include rte_config.h` and `-march`,
/// without which the inline functions are other functions.
fn raw_cflags() -> Vec<String> {
    let pkg_config = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(&pkg_config).args(["--cflags", "libdpdk"]).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
        }
        other => stop(&format!("`{pkg_config} --cflags libdpdk` failed: {other:?}")),
    }
}

/// The shim is on the packet path, so it is optimised in debug builds, too.
fn compile_shim(cflags: &[String]) {
    let mut build = cc::Build::new();
    build.file("src/shim.c").opt_level(3).flag_if_supported("-Wno-deprecated-declarations");
    for flag in cflags {
        build.flag(flag);
    }
    if let Err(error) = build.try_compile("hotloop_dpdk_shim") {
        stop(&format!(
            "the C shim over DPDK's inline functions does not compile.\n\
             `cargo xtask setup` installs a C compiler where it is missing.\n{error}"
        ));
    }
}

/// The values of [`CONFIGURED`], as expanded by the preprocessor.
fn configured(cflags: &[String]) -> HashMap<String, String> {
    let question = |(_, name, _): &(&str, &str, u32)| format!("configured \"{name}\" {name}\n");
    let text = "#include \"version.h\"\n".to_owned()
        + &CONFIGURED.iter().map(question).collect::<String>();
    let file = out("configured.c");
    write(&file, &text);
    let mut build = cc::Build::new();
    build.file(&file).include("src");
    for flag in cflags {
        build.flag(flag);
    }
    let expanded = match build.try_expand() {
        Ok(expanded) => String::from_utf8_lossy(&expanded).into_owned(),
        Err(error) => stop(&format!("DPDK's headers cannot be preprocessed.\n{error}")),
    };
    let answers = expanded.lines().filter_map(|line| line.strip_prefix("configured \""));
    let answers = answers.filter_map(|line| line.split_once("\" "));
    answers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn write_configured(value: impl Fn(&str, u32) -> String) {
    let constant = |&(name, macro_name, documented): &(&str, &str, u32)| {
        let value = value(macro_name, documented);
        format!("/// `{macro_name}`.\npub const {name}: u32 = {value};\n")
    };
    write(&out("configured.rs"), &CONFIGURED.iter().map(constant).collect::<String>());
}

/// Regenerates the bindings, for the test that compares them with the committed ones. Writes
/// nothing if bindgen finds no libclang and panics.
#[cfg(feature = "bindgen")]
fn bind() {
    let builder = bindgen::builder()
        .header("src/shim.h")
        .allowlist_file("src/shim.h")
        // The mbuf is a struct of our own: see `src/mbuf.rs`.
        .blocklist_type("rte_mbuf")
        .raw_line("use crate::mbuf::RawMbuf as rte_mbuf;")
        .use_core()
        .derive_debug(false)
        .layout_tests(false)
        .merge_extern_blocks(true)
        .generate_comments(false);
    let generate = std::panic::AssertUnwindSafe(|| builder.generate());
    match std::panic::catch_unwind(generate) {
        Ok(Ok(bindings)) => write(&out("bindings.rs"), &bindings.to_string()),
        Ok(Err(error)) => stop(&format!("bindgen cannot read shim.h: {error}")),
        Err(_) => write(&out("bindings.rs"), ""),
    }
}

fn out(file: &str) -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(file)
}

fn write(file: &Path, text: &str) {
    if let Err(error) = fs::write(file, text) {
        stop(&format!("cannot write {}: {error}", file.display()));
    }
}

/// Ends the build with a message and without a backtrace.
#[expect(clippy::print_stderr, reason = "cargo shows what a build script that fails says")]
fn stop(message: &str) -> ! {
    eprintln!("\n{message}\n");
    std::process::exit(1)
}
