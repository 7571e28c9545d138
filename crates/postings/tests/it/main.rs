//! Sets and dictionaries against slow models, and on changed bytes.

#![forbid(unsafe_code)]

mod dictionaries;
mod hostile;
mod sets;
