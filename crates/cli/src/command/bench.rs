//! `cudele bench`.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};

use crate::context::Context;

/// Run an experiment and print its rows.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Context, _: &Args) -> Result<()> {
    Err(Error::of(Errno::NotSupported, "bench"))
}
