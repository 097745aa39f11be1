//! `predict`: predictions of `cudele policy predict` for jobs beside their measured times (F-11).
//! In each repetition the mechanisms are measured, each alone, and then three jobs under each of
//! the nine cells of Table II, end to end: a machine that is faster or slower by the hour is so for
//! both.

use advise::{Job, predict};
use cudele::{Errno, Error, Result};
use policy::Cell;
use serde_json::Value;
use terminal::costs;

use super::mechanisms::Sizes;
use crate::harness::lab::{Lab, Size, create, decoupled, policy};
use crate::harness::row::Row;
use crate::harness::stats::{median, real};

const BENCH: &str = "predict";
/// The largest relative error of a prediction.
const GOAL: f64 = 0.2;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let named = |cell: Cell, size| (cell, Row::new(BENCH, format!("{cell}_{}", Size(size)), size));
    let mut jobs: Vec<(u64, Vec<(Cell, Row)>)> = lab
        .sizes(&[20_000, 50_000, 100_000], 2_000)
        .into_iter()
        .map(|size| (size, Cell::all().map(|cell| named(cell, size)).collect()))
        .collect();
    let mut mechanisms = Sizes::of(lab);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        mechanisms.repetition(lab, repetition)?;
        for (size, rows) in &mut jobs {
            let cluster = lab.cluster(&[])?;
            for (cell, row) in rows {
                let name = cell.to_string();
                lab.progress(BENCH, repetition, &format!("{name}, {size} files"));
                row.push(if policy(&name, *size)?.is_decoupled() {
                    decoupled(&cluster, &name, *size)?.seconds()
                } else {
                    create(&cluster, &name, *size)?.seconds()
                });
            }
            cluster.store().clone_into(&mut store);
        }
    }
    let before = lab.rows.len();
    mechanisms.report(lab);
    let measured: Vec<Value> = lab.rows[before..].iter().map(Row::to_json).collect();
    let costs = costs::of_rows(&Value::Array(measured))
        .ok_or_else(|| Error::new(Errno::Invalid, "mechanisms", "one of them was not measured"))?;
    for (size, mut rows) in jobs {
        let predicted = predict(&costs, Job { changes: real(size) });
        for (cell, row) in &mut rows {
            let Some(prediction) = predicted.iter().find(|it| it.cell == *cell) else { continue };
            row.note("predicted_seconds", prediction.seconds);
            row.note("off_by", (prediction.seconds / median(&row.seconds) - 1.0).abs());
            row.limit("off_by", GOAL);
        }
        lab.report(&store, rows.into_iter().map(|(_, row)| row));
    }
    Ok(())
}
