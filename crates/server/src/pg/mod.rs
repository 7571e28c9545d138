//! The Postgres wire, protocol 3.0 and 3.2.

mod cancel;
mod commands;
mod connection;
mod conversation;
mod copy;
mod copy_binary;
mod copy_lines;
mod copy_options;
mod copy_rows;
mod encode;
mod encoders;
mod extended;
mod frames;
mod listener;
mod login;
mod own;
mod params;
mod parsed;
mod probes;
mod rows;
mod session;
mod simple;
mod startup;
mod tags;
#[cfg(test)]
mod tests;
mod transaction;
mod types;
mod wire;
mod words;

pub(crate) use listener::serve;
pub(crate) use parsed::ParsedTexts;
pub(crate) use probes::Probes;
