//! A domain from outside: what its users see, its local folder, its limits, several writers.

#![forbid(unsafe_code)]

mod domain;
mod limited;
mod local;
mod writers;
