//! `cudele demo`.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};

use crate::context::Context;

/// Run the main job on real input: ingest, merge, verify, and print the table.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Context, _: &Args) -> Result<()> {
    Err(Error::of(Errno::NotSupported, "demo"))
}
