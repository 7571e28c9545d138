//! The tree from outside: against a model, under many threads, on disks that fail, on forged files.

mod concurrent;
mod crash;
mod disk;
mod durable;
mod hostile;
mod long;
mod model;
mod random;
