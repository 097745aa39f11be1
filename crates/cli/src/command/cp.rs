//! `cudele cp`.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};

use crate::context::Context;

/// Copy files in, out or within the namespace.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Context, _: &Args) -> Result<()> {
    Err(Error::of(Errno::NotSupported, "cp"))
}
