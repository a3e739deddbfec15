use hotloop::prelude::*;
use std::rc::Rc;
use std::sync::Arc;

pub struct Noted(Packet, Rc<str>);

impl Carries for Noted {
    fn bytes(&self) -> &[u8] {
        self.0.data()
    }
}

pub fn notes(_: Rc<str>, _: Arc<str>) {}

pub fn main() {}
