//! HTTP: statements, loads, health and metrics.
