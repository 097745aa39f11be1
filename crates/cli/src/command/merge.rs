//! `cudele merge`.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};

use crate::context::Context;

/// Merge a decoupled subtree into the namespace.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Context, _: &Args) -> Result<()> {
    Err(Error::of(Errno::NotSupported, "merge"))
}
