//! The columns of `system.loads` and `system.audit`.

use super::columns::{Column, Values};
use crate::audit::Note;
use crate::loads::Load;

use Values::{Day, Number, Real, Text, Time};

/// A row with its process and its number there.
pub(super) struct Numbered<R> {
    pub row: R,
    pub node: String,
    pub number: u64,
}

pub(super) fn loads() -> Vec<Column<Numbered<Load>>> {
    vec![
        ("statement", Number(|load: &Numbered<Load>| Some(load.row.statement))),
        ("finished", Time(|load: &Numbered<Load>| load.row.at)),
        ("role", Text(|load: &Numbered<Load>| Some(load.row.role.clone()))),
        ("table", Text(|load: &Numbered<Load>| Some(load.row.table.clone()))),
        ("label", Text(|load: &Numbered<Load>| load.row.label.clone())),
        ("version", Number(|load: &Numbered<Load>| load.row.version)),
        ("rows", Number(|load: &Numbered<Load>| Some(load.row.rows))),
        ("bad_rows", Number(|load: &Numbered<Load>| Some(load.row.bad_rows))),
        ("replaced_rows", Number(|load: &Numbered<Load>| Some(load.row.replaced_rows))),
        ("files", Number(|load: &Numbered<Load>| Some(load.row.files))),
        ("bytes", Number(|load: &Numbered<Load>| Some(load.row.bytes))),
        ("seconds", Real(|load: &Numbered<Load>| Some(load.row.seconds))),
        ("dt", Day(|load: &Numbered<Load>| load.row.at)),
        ("node", Text(|load: &Numbered<Load>| Some(load.node.clone()))),
        ("number", Number(|load: &Numbered<Load>| Some(load.number))),
    ]
}

pub(super) fn audit() -> Vec<Column<Numbered<Note>>> {
    vec![
        ("at", Time(|note: &Numbered<Note>| note.row.at)),
        ("action", Text(|note: &Numbered<Note>| Some(note.row.action.name().to_owned()))),
        ("role", Text(|note: &Numbered<Note>| Some(note.row.role.clone()))),
        ("address", Text(|note: &Numbered<Note>| Some(note.row.address.clone()))),
        ("protocol", Text(|note: &Numbered<Note>| Some(note.row.protocol.clone()))),
        ("what", Text(|note: &Numbered<Note>| Some(note.row.what.clone()))),
        ("sqlstate", Text(|note: &Numbered<Note>| note.row.sqlstate.clone())),
        ("dt", Day(|note: &Numbered<Note>| note.row.at)),
        ("node", Text(|note: &Numbered<Note>| Some(note.node.clone()))),
        ("number", Number(|note: &Numbered<Note>| Some(note.number))),
    ]
}
