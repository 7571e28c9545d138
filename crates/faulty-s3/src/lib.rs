//! A seeded, fault-injecting S3 server on loopback, for tests and benchmarks.
#![forbid(unsafe_code)]
