//! The command against a simulated bucket: killed loads, and the requests that statements make.

mod killed_loads;
mod round_trips;
