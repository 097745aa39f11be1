//! Volatile Apply (M-04), seen from the client: the journal is transferred to the metadata server,
//! which applies it to its memory. The transfer is part of the cost (J-15).

use std::sync::atomic::Ordering;

use policy::Mechanism;
use types::Result;
use wire::{Answer, MergeReport, Op, UnusedNumbers};

use super::{Material, MergedBy};
use crate::Stage;
use crate::fs::unexpected;

pub(crate) fn volatile_apply(material: &Material<'_>) -> Result<(MergeReport, MergedBy)> {
    let merged_by = match material.by_reference(material.merge)? {
        Ok(merged) => {
            material.fs.observed().note(Mechanism::VolatileApply, Stage::Applied);
            return Ok(merged);
        }
        Err(by_value) => by_value,
    };
    let header = material.header.encode();
    let mut chunks: Vec<&[u8]> = vec![&header];
    chunks.extend(material.blocks.iter().map(Vec::as_slice));
    let op = Op::Merge {
        subtree: material.subtree,
        bytes: material.bytes(),
        object: material.object.as_deref().unwrap_or_default().as_bytes(),
        flags: material.merge,
        unused: UnusedNumbers::new(&material.unused),
    };
    material.asked.store(!material.merge.dry_run, Ordering::Release);
    let answer = material.fs.call_with_chunks(op, &chunks)?;
    let Answer::Merged(report) = answer else { return Err(unexpected(&answer)) };
    material.fs.observed().note(Mechanism::VolatileApply, Stage::Applied);
    Ok((*report, merged_by))
}
