//! A store from outside: ranged reads, the cache, and the whole stack over HTTP.

#![forbid(unsafe_code)]

mod cache;
mod ranges;
mod s3;
mod support;
