//! The allocation guard in a program that did not install it.

use hotloop_testing::AllocGuard;

#[test]
#[should_panic = "not installed"]
fn arming_a_guard_that_is_not_installed_panics() {
    let _ = AllocGuard::arm();
}
