//! A destination that keeps nothing: for `--dry-run`, which still reads and checks everything.

use std::io::Read;

use cudele::{AttrChange, Ino, NewFile, Result, Stripe, StripedFile};

use super::Target;
use crate::source::tree;

#[derive(Debug, Default)]
pub(super) struct DryRunTarget {
    last: u64,
}

impl Target for DryRunTarget {
    fn root(&self) -> Ino {
        Ino::ROOT
    }

    fn create(&mut self, _: Ino, _: &[u8], _: &NewFile<'_>) -> Result<StripedFile> {
        self.last += 1;
        Ok(StripedFile { ino: Ino(Ino::FIRST_FREE + self.last), stripe: Stripe::default() })
    }

    fn link(&mut self, _: Ino, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn unlink(&mut self, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn set_attr(&mut self, _: Ino, _: Ino, _: &AttrChange) -> Result<()> {
        Ok(())
    }

    fn set_xattr(&mut self, _: Ino, _: Ino, _: &[u8], _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn inline_bytes(&mut self, _: Ino) -> Result<u32> {
        Ok(cudele::INLINE_BYTES)
    }

    fn write(&mut self, _: StripedFile, head: &[u8], rest: &mut dyn Read) -> Result<u64> {
        let read = std::io::copy(rest, &mut std::io::sink());
        Ok(head.len() as u64 + read.map_err(|error| tree::failed(b"", &error))?)
    }

    fn size_comes_last(&self) -> bool {
        false
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
