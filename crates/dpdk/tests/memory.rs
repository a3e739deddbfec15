//! A mempool's report on its memory, compared with the kernel's on the pages of its mbufs.

use hotloop_dpdk::{
    Eal, Mempool, MempoolConfig, MempoolLevel, MempoolMemory, mempool_levels, mempools,
};
use hotloop_packet::PacketBuf;
use std::process::Command;

/// EAL's arguments, in a child of this process: EAL starts once.
const ARGUMENTS: &str = "HOTLOOP_TEST_MEMORY_ARGUMENTS";

/// The size of the kernel's pages at an address, in bytes.
fn mapped_page_bytes(addr: usize) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_there = false;
    for line in smaps.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let Some((first, end)) = words[0].split_once('-') {
            let [first, end] = [first, end].map(|it| usize::from_str_radix(it, 16).unwrap());
            is_there = (first..end).contains(&addr);
        } else if is_there && words[0] == "KernelPageSize:" {
            return words[1].parse::<u64>().unwrap() << 10;
        }
    }
    panic!("{addr:x} is not mapped: {smaps}")
}

/// The memory of a new pool, after checking that its mbufs are where it reports.
fn checked(eal: Eal, contiguous: bool) -> MempoolMemory {
    let config = MempoolConfig { mbuf_count: 4095, contiguous, ..Default::default() };
    let pool = Mempool::new(eal, &config).unwrap();
    let memory = pool.memory();
    let least = u64::from(config.mbuf_count) * u64::from(config.data_room_bytes);
    assert!((least..2 * least).contains(&memory.bytes), "{memory}, contiguous: {contiguous}");
    let mut mbufs = Vec::new();
    while let Some(mbuf) = pool.alloc() {
        mbufs.push(mbuf);
    }
    for mbuf in [&mbufs[0], &mbufs[2000], &mbufs[4094]] {
        let addr = mbuf.data().as_ptr().addr();
        assert_eq!(memory.page_bytes, Some(mapped_page_bytes(addr)), "{memory}");
    }
    let nodes = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let names: Vec<_> = nodes.map(|node| node.file_name().into_string().unwrap()).collect();
    let is_node = |node: u32| names.contains(&format!("node{node}"));
    assert!(memory.node.is_none_or(is_node), "{memory}: {names:?}");
    assert!(mempools().contains(&(config, memory)), "{:?}", mempools());
    memory
}

#[test]
fn without_hugepages_a_pool_says_so() {
    let eal = Eal::embedded_or_current().unwrap();
    for contiguous in [false, true] {
        assert!(!checked(eal, contiguous).is_on_hugepages());
    }
}

/// Runs in a child of the next test.
#[test]
fn child() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    match Eal::with_args(&arguments.split_whitespace().collect::<Vec<_>>()) {
        Ok(eal) => {
            let memories = [false, true].map(|contiguous| checked(eal, contiguous));
            assert!(memories.iter().all(MempoolMemory::is_on_hugepages), "{memories:?}");
            println!("huge: {memories:?}");
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn on_hugepages_a_pool_says_which() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(ARGUMENTS, "-l 0 --no-pci -m 32");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    if let Some(refused) = said.lines().find(|line| line.starts_with("refused: ")) {
        return println!("skipped: EAL has no hugepages here: {refused}");
    }
    assert!(said.contains("huge: "), "{said}");
}

#[test]
fn a_pool_says_how_full_it_is() {
    let eal = Eal::embedded_or_current().unwrap();
    let config = MempoolConfig { mbuf_count: 61, cache_count: 0, ..MempoolConfig::default() };
    let pool = Mempool::new(eal, &config).unwrap();
    let level = || {
        let levels = mempool_levels();
        levels.into_iter().find(|level| level.mbuf_count == config.mbuf_count).unwrap()
    };
    let fresh = MempoolLevel { mbuf_count: 61, free_count: 61, failed_count: 0 };
    assert_eq!(level(), fresh);
    let mut mbufs: Vec<_> = (0..61).map_while(|_| pool.alloc()).collect();
    assert_eq!(level(), MempoolLevel { free_count: 0, ..fresh });
    assert!(pool.alloc().is_none() && !pool.alloc_burst(&mut hotloop_stage::Burst::new(), 2));
    mbufs.truncate(40);
    assert_eq!(level(), MempoolLevel { free_count: 21, failed_count: 2, ..fresh });
}
