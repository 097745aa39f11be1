//! The rows of an experiment by name, in the order in which they were first measured.

use super::row::Row;

/// See the module documentation.
pub(crate) struct Sheet {
    bench: &'static str,
    pub(crate) rows: Vec<Row>,
}

impl Sheet {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new() }
    }

    /// The row of this name; a new one has this number of files.
    pub(crate) fn row(&mut self, name: &str, files: u64) -> &mut Row {
        let known = self.rows.iter().position(|row| row.name == name);
        let index = known.unwrap_or_else(|| {
            self.rows.push(Row::new(self.bench, name, files));
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}
