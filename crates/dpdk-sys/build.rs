//! Finds libdpdk and libpcap, compiles the shim over its inline functions, and binds what `hotloop-dpdk` calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The oldest DPDK whose headers and ABI the shim and the bindings were checked against.
const VERSION_MIN: &str = "22.11";

/// The first libpcap with a compiler that several threads may call at a time: pcap_compile(3).
const PCAP_MIN: &str = "1.8.0";

/// What bindgen makes of the oldest version's headers, on x86-64: what is documented where there is no
/// DPDK. To write it anew, copy `bindings.rs` from `OUT_DIR` of a build with that version.
const KEPT_BINDINGS: &str = "bindings-22.11.txt";

/// Functions of DPDK's that are called as they are; all else goes through the shim.
const FUNCTIONS: &[&str] = &[
    "pcap_(close|compile|freecode|geterr|open_dead)",
    "rte_eal_(alarm_set|init|hotplug_add|hotplug_remove|mp_remote_launch|mp_wait_lcore)",
    "rte_eth_dev_(get_port_by_name|info_get|configure|adjust_nb_rx_tx_desc|start|stop|close)",
    "rte_eth_dev_(default_mac_addr_set|get_mtu|set_mtu|socket_id)",
    "rte_eth_(rx|tx)_queue_setup",
    "rte_eth_(promiscuous_enable|macaddr_get|stats_get|xstats_get|xstats_get_names)",
    "rte_kvargs_(parse|free)",
    "rte_log_cur_msg_loglevel",
    "rte_mbuf_dyn_rx_timestamp_register",
    "rte_mempool_(create_empty|set_ops_byname|populate_default|obj_iter|free|avail_count)",
    "rte_pktmbuf_(copy|init|pool_init|pool_create_by_ops)",
    "rte_ring_(lookup|free)",
    "rte_strerror",
    "rte_thread_(register|unregister)",
    "sh_.*",
];

fn main() {
    for file in ["build.rs", "src/shim.h", "src/shim.c", "src/version.h", KEPT_BINDINGS] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    // docs.rs has neither DPDK nor a network to fetch it, and links nothing.
    if env::var_os("DOCS_RS").is_some() {
        return write_bindings(&match fs::read_to_string(KEPT_BINDINGS) {
            Ok(bindings) => bindings,
            Err(error) => stop(&format!("cannot read {KEPT_BINDINGS}: {error}")),
        });
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
    bind(&cflags);
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

/// The shim is on the packet path, so it is optimised in debug builds too.
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

fn bind(cflags: &[String]) {
    let mut builder = bindgen::builder()
        .header("src/shim.h")
        .clang_args(cflags)
        .allowlist_var("SH_.*")
        .allowlist_type("rte_pktmbuf_pool_private")
        // The mbuf is a struct of our own, the same for every version: see `src/mbuf.rs`.
        .blocklist_type("rte_mbuf")
        .raw_line("use crate::mbuf::RawMbuf as rte_mbuf;")
        // Never looked into; their fields move between versions.
        .opaque_type("pcap|rte_mempool|rte_ring|rte_device|rte_arp_(ipv4|hdr)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(true)
        .generate_comments(false);
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    // bindgen panics where it finds no libclang.
    let generated =
        catch_unwind(AssertUnwindSafe(|| builder.generate().map_err(|error| error.to_string())));
    let bindings = match generated.unwrap_or_else(|_| Err("see the panic above".into())) {
        Ok(bindings) => bindings,
        Err(error) => stop(&format!(
            "bindgen could not read DPDK's headers.\n\
             `cargo xtask setup` installs libclang and its headers where they are missing.\n{error}"
        )),
    };
    write_bindings(&bindings.to_string());
}

fn write_bindings(bindings: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Err(error) = fs::write(out.join("bindings.rs"), bindings) {
        stop(&format!("cannot write the bindings to {}: {error}", out.display()));
    }
}

/// Ends the build with a message and without a backtrace.
#[expect(clippy::print_stderr, reason = "cargo shows what a build script that fails says")]
fn stop(message: &str) -> ! {
    eprintln!("\n{message}\n");
    std::process::exit(1)
}
