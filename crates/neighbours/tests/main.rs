//! The neighbours, and the stages that learn and resolve them, in memory.

mod forged;
mod neighbours;
