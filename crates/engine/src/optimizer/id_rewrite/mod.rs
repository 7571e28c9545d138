//! Ids in place of keys, where that changes nothing but the speed.

pub(crate) mod count_ids;
pub(crate) mod filter_ids;
pub(crate) mod id_keys;
pub(crate) mod join_ids;
pub(crate) mod key_ids;
pub(crate) mod window_ids;
