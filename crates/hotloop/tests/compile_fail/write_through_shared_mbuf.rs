use hotloop::dpdk::{Error, SharedMbuf};
use hotloop::prelude::*;

pub fn write(mut shared: SharedMbuf) -> Result<(), Error> {
    shared.data_mut()[0] = 0;
    shared.to_mut()?.data_mut()[1] = 0;
    Ok(())
}

pub fn main() {}
