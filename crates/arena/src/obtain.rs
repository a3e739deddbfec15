//! From a request to memory: tries one kind of pages, populates them, and inspects the result.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::{ArenaError, Refusal};
use crate::mapping::Mapping;
use crate::obtained::{Obtained, Progress};
use crate::request::{GIGANTIC_BYTES, HUGE_BYTES, Pages, Request};
use crate::{limits, proc};

/// Bytes that are populated between two calls of the progress closure, unless a page is larger: a
/// fraction of a second on the slowest memory.
const STEP_BYTES: usize = 64 << 20;

/// Checks whether a region of `bytes` on `node` makes sense at all.
pub(crate) fn check(bytes: usize, node: Option<u32>) -> Result<(), ArenaError> {
    if bytes == 0 {
        return Err(ArenaError::Empty);
    }
    if bytes > isize::MAX as usize - 2 * GIGANTIC_BYTES {
        return Err(ArenaError::TooLarge { bytes });
    }
    let online = proc::nodes_online();
    match node {
        Some(node) if !proc::is_listed(node, &online) => {
            Err(ArenaError::NoSuchNode { node, online })
        }
        _ => Ok(()),
    }
}

/// Maps memory on `pages`, populates it, and inspects it.
pub(crate) fn obtain(
    request: &Request,
    pages: Pages,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Mapping, Obtained), Refusal> {
    let bytes = request.bytes.next_multiple_of(pages.unit_bytes());
    let mapping = Mapping::new(bytes, pages).map_err(|errno| unmapped(errno, bytes, pages))?;
    prefer(&mapping, request.node);
    let must_lock = request.lock && !pages.are_reserved();
    if must_lock {
        mapping.lock().map_err(unlocked)?;
    }
    if request.takes_all(pages) {
        take_all(&mapping, pages, progress)?;
    } else {
        // One huge page shows whether the kernel provides any.
        mapping.populate(0, HUGE_BYTES).map_err(Refusal::Undelivered)?;
    }
    let obtained = inspect(&mapping, pages)?;
    if let Some(locked_bytes) = obtained.locked_bytes.filter(|&locked| must_lock && locked < bytes)
    {
        return Err(Refusal::PartlyLocked { locked_bytes });
    }
    match request.node {
        Some(node) if request.node_only => judge_node(node, &obtained)?,
        _ => {}
    }
    Ok((mapping, obtained))
}

/// Asks for memory on `node`.
pub(crate) fn prefer(mapping: &Mapping, node: Option<u32>) {
    if let Some(node) = node {
        // If the kernel refuses this (in containers it is often forbidden), pages lie on the node
        // that first touches them: usually the node of the core that sets up its memory, which is
        // the one wanted. `Obtained::node` has the result, and `Request::node_only` checks it.
        let _ = mapping.prefer_node(node);
    }
}

/// Why `bytes` on `pages` could not be mapped.
fn unmapped(errno: Errno, bytes: usize, pages: Pages) -> Refusal {
    let needed_count = bytes / pages.unit_bytes();
    match limits::pool(pages.unit_bytes()).filter(|_| pages.are_reserved()) {
        Some(pool) if errno == Errno::NOMEM && pool.free_count < needed_count => {
            let limits::Pool { free_count, reserved_count } = pool;
            Refusal::TooFewReserved { needed_count, free_count, reserved_count }
        }
        _ => Refusal::Kernel(errno),
    }
}

/// Why memory could not be locked.
fn unlocked(errno: Errno) -> Refusal {
    match (errno, getrlimit(Resource::Memlock).current) {
        (Errno::NOMEM | Errno::PERM | Errno::AGAIN, Some(limit_bytes)) => {
            Refusal::OverMemlock { limit_bytes }
        }
        _ => Refusal::Kernel(errno),
    }
}

/// Populates the whole region.
///
/// A reserved page that isn't available after all (because of a cgroup's limit) would kill the
/// process when the packet path touches it, and so is detected here.
fn take_all(
    mapping: &Mapping,
    pages: Pages,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Refusal> {
    let total_bytes = mapping.bytes();
    // Except for reserved pages, the kernel promises more than there is, and then kills processes.
    let available_bytes = limits::available_bytes().filter(|_| !pages.are_reserved());
    if let Some(available_bytes) = available_bytes.filter(|&available| available < total_bytes) {
        return Err(Refusal::TooLittleMemory { available_bytes });
    }
    let step_bytes = STEP_BYTES.max(pages.unit_bytes());
    for offset in (0..total_bytes).step_by(step_bytes) {
        let done_bytes = total_bytes.min(offset + step_bytes);
        mapping.populate(offset, done_bytes - offset).map_err(Refusal::Undelivered)?;
        progress(Progress { pages, done_bytes, total_bytes });
    }
    Ok(())
}

/// The kernel's report on the region.
fn inspect(mapping: &Mapping, pages: Pages) -> Result<Obtained, Refusal> {
    let addr = mapping.addr().get();
    let map = proc::smap(addr);
    if let Some(map) = map {
        let is_other = match pages {
            Pages::Gigantic | Pages::Huge => map.page_bytes != pages.unit_bytes(),
            Pages::Transparent => map.huge_bytes == 0,
            Pages::Small => false,
        };
        if is_other {
            return Err(Refusal::OnOtherPages { page_bytes: map.page_bytes });
        }
    }
    let nodes = proc::nodes(addr);
    Ok(Obtained {
        pages,
        bytes: mapping.bytes(),
        resident_bytes: map.map(|map| map.resident_bytes),
        huge_bytes: map.map(|map| map.huge_bytes),
        locked_bytes: map.map(|map| map.locked_bytes),
        node: nodes.map(|nodes| nodes.node).or_else(|| mapping.first_node().ok()),
        off_node_bytes: nodes.map(|nodes| nodes.off_node_bytes),
    })
}

/// Refuses memory if any part lies on a node other than `node`, or may do so.
fn judge_node(node: u32, obtained: &Obtained) -> Result<(), Refusal> {
    match (obtained.node, obtained.off_node_bytes) {
        (Some(given_node), Some(0)) if given_node == node => Ok(()),
        (Some(given_node), off) if given_node != node || off.is_some() => {
            Err(Refusal::OnOtherNode { node, given_node })
        }
        _ => Err(Refusal::NodeUnknown { node }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_is_all_on_the_node_is_on_it() {
        let obtained = |given_node, off_node_bytes| Obtained {
            pages: Pages::Small,
            bytes: 8_192,
            resident_bytes: Some(8_192),
            huge_bytes: Some(0),
            locked_bytes: Some(0),
            node: given_node,
            off_node_bytes,
        };
        let judged = |node, off_bytes| judge_node(1, &obtained(node, off_bytes));
        let elsewhere = |given_node| Err(Refusal::OnOtherNode { node: 1, given_node });
        assert_eq!(judged(Some(1), Some(0)), Ok(()));
        assert_eq!(judged(Some(1), Some(4_096)), elsewhere(1));
        assert_eq!(judged(Some(0), Some(0)), elsewhere(0));
        assert_eq!(judged(Some(0), None), elsewhere(0));
        assert_eq!(judged(Some(1), None), Err(Refusal::NodeUnknown { node: 1 }));
        assert_eq!(judged(None, None), Err(Refusal::NodeUnknown { node: 1 }));
    }

    #[test]
    fn reserved_pages_that_are_there_are_not_what_is_missing() {
        assert_eq!(unmapped(Errno::NOMEM, 4_096, Pages::Small), Refusal::Kernel(Errno::NOMEM));
        assert_eq!(unmapped(Errno::INVAL, 1 << 40, Pages::Huge), Refusal::Kernel(Errno::INVAL));
        let none_needed = unmapped(Errno::NOMEM, 0, Pages::Huge);
        assert_eq!(none_needed, Refusal::Kernel(Errno::NOMEM));
    }
}
