//! The kernel's reports on an arena, read without the arena's help.

use std::alloc::Layout;
use std::collections::HashMap;
use std::fs;

use hotloop_arena::{Allocator, Arena, Obtained, Pages};

/// The address of an arena without any allocations yet.
pub fn addr_of(arena: &Arena) -> usize {
    assert_eq!(arena.used_bytes(), 0);
    let layout = Layout::new::<u8>();
    let block = arena.allocate(layout).unwrap();
    // SAFETY: 1. `block` was just allocated with this layout.
    unsafe { arena.deallocate(block.cast(), layout) };
    block.addr().get()
}

/// The lines with a size in `smaps` about the mapping at `addr`, in bytes.
pub fn smaps(addr: usize) -> HashMap<String, usize> {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{addr:x}-");
    text.lines()
        .skip_while(|line| !line.starts_with(&start))
        .skip(1)
        .take_while(|line| !line.starts_with("VmFlags"))
        .filter_map(|line| {
            let (name, size) = line.split_once(':')?;
            let kib: usize = size.trim().strip_suffix(" kB")?.parse().ok()?;
            Some((name.to_owned(), kib << 10))
        })
        .collect()
}

/// The node of the page at `addr`, if the kernel reports it.
fn node_at(addr: usize) -> Option<u32> {
    const NODE_OF_ADDRESS: usize = 3;
    let mut node: libc::c_int = -1;
    // SAFETY: get_mempolicy(2): 1. With these flags it writes one `int` to its first argument.
    let result = unsafe {
        let (none, no_bits) = (0_usize, 0_usize);
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, none, no_bits, addr, NODE_OF_ADDRESS)
    };
    (result == 0).then(|| node.try_into().unwrap())
}

/// Compares every claim about a new arena.
pub fn compare(arena: &Arena, obtained: &Obtained) {
    let addr = addr_of(arena);
    let map = smaps(addr);
    let page_bytes = match obtained.pages {
        Pages::Gigantic => 1 << 30,
        Pages::Huge => 2 << 20,
        Pages::Transparent | Pages::Small => 4 << 10,
    };
    let is_reserved = page_bytes > 4 << 10;
    // Some kernels count a page that only this process has as shared.
    let reserved_bytes = map["Private_Hugetlb"] + map["Shared_Hugetlb"];
    let huge_bytes = map["AnonHugePages"] + reserved_bytes;
    assert_eq!(map["KernelPageSize"], page_bytes);
    assert_eq!((map["Size"], arena.bytes()), (obtained.bytes, obtained.bytes));
    assert_eq!(obtained.resident_bytes, Some(map["Rss"] + reserved_bytes));
    assert_eq!(obtained.huge_bytes, Some(huge_bytes));
    assert_eq!(obtained.locked_bytes, Some(map["Locked"] + reserved_bytes));
    match obtained.pages {
        Pages::Gigantic | Pages::Huge => assert_eq!(huge_bytes, obtained.bytes),
        Pages::Transparent => assert!(huge_bytes > 0),
        Pages::Small => assert_eq!(huge_bytes, 0),
    }
    assert_eq!(is_reserved, reserved_bytes > 0);
    if obtained.off_node_bytes.is_none_or(|bytes| bytes == 0) {
        assert!(node_at(addr).is_none_or(|node| obtained.node == Some(node)));
    }
}
