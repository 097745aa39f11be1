//! `cudele find`.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};

use crate::context::Context;

/// Find names below a directory.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Context, _: &Args) -> Result<()> {
    Err(Error::of(Errno::NotSupported, "find"))
}
