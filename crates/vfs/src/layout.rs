//! The place of file content: the directory's policy for new files, and the layout of an existing
//! one. The values of `cudele.dir.layout` and `cudele.file.layout`.

use cudele::{Attr, Errno, Error, FileType, INLINE_BYTES_MAX, Ino, Policy, Pool, Result};
use posix::Caller;

use crate::caller::OnBehalf;
use crate::file::Body;
use crate::tree::Tree;
use crate::virtual_xattr::VirtualXattrsCx;

impl VirtualXattrsCx<'_> {
    pub(crate) fn layout_text(&self, dir: Ino) -> Result<String> {
        let policy = self.policy_of(dir)?;
        let (inline, stripe) = (policy.inline_bytes, policy.stripe.bytes());
        let pool = policy.data_pool.map(|pool| format!(" data_pool={pool}")).unwrap_or_default();
        Ok(format!("inline_bytes={inline} stripe_bytes={stripe}{pool}"))
    }

    /// The policy in force where a directory is.
    fn policy_of(&self, dir: Ino) -> Result<Policy> {
        match self.trees.tree(dir) {
            Tree::Server => Ok(self.trees.walked(dir, || self.fs.policy_at(dir))?.0),
            Tree::Owned(owned) => {
                owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.policy().clone()))
            }
        }
    }

    /// Changes the content part of a directory's policy, and nothing else. A directory without a
    /// policy of its own gets one: a changed copy of its inherited policy.
    pub(crate) fn set_layout(&self, dir: Ino, text: &str) -> Result<()> {
        if let Tree::Owned(owned) = self.trees.tree(dir)
            && owned.root() != dir
        {
            return Err(Error::new(
                Errno::NotSupported,
                "cudele.dir.layout",
                "the policy of a decoupled subtree holds for everything in it",
            )
            .remedy("set it on the root of the subtree"));
        }
        let mut policy = self.policy_of(dir)?;
        read_layout(&mut policy, text)?;
        self.set_policy(dir, Some(&policy))
    }

    /// How the content of a file is kept, as it is here.
    pub(crate) fn file_layout_text(&self, ino: Ino, attr: &Attr) -> Result<String> {
        if attr.file_type() != FileType::Regular {
            return Err(Error::of(Errno::NoData, "extended attribute"));
        }
        let file = self.trees.nodes().file(ino).cloned();
        let (size, held) = match file {
            Some(file) => {
                let content = file.held();
                let size = if content.shared { attr.size } else { content.size };
                (size, Some(content.body.clone()))
            }
            None => (attr.size, None),
        };
        let inline = match held {
            Some(Body::Inline(_)) => true,
            Some(Body::Striped) => false,
            Some(Body::Unread) | None => {
                size <= INLINE_BYTES_MAX as u64 && !self.trees.data(ino)?.is_empty()
            }
        };
        let kept = match (size, inline) {
            (0, _) => "nothing",
            (_, true) => "inline",
            (_, false) => "striped",
        };
        let pool = match attr.stripe.pool() {
            Pool::USUAL => String::new(),
            Pool(number) => format!(" data_pool=#{number}"),
        };
        Ok(format!("kept={kept} stripe_bytes={}{pool}", attr.stripe.bytes()))
    }
}

/// Reads `inline_bytes=N stripe_bytes=N`, or one of the two, into a policy.
fn read_layout(policy: &mut Policy, text: &str) -> Result<()> {
    let refused = |cause: String| {
        Error::new(Errno::Invalid, "cudele.dir.layout", cause)
            .remedy("write inline_bytes=4096 stripe_bytes=4194304, or one of the two")
    };
    let mut lines = String::new();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some((key @ ("inline_bytes" | "stripe_bytes"), value)) => {
                lines.push_str(&format!("{key}: {value}\n"));
            }
            Some(_) | None => return Err(refused(format!("`{word}` says nothing about content"))),
        }
    }
    if lines.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    // The reader of policy files checks the values.
    let read = Policy::parse(&lines)?.policy;
    if lines.contains("inline_bytes") {
        policy.inline_bytes = read.inline_bytes;
    }
    if lines.contains("stripe_bytes") {
        policy.stripe = read.stripe.in_pool(policy.stripe.pool());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cudele::Stripe;

    use super::*;

    #[test]
    fn a_layout_changes_what_it_names_and_nothing_else() {
        let mut policy = Policy { allocated_inodes: 7, ..Policy::default() };
        read_layout(&mut policy, "stripe_bytes=65536").unwrap();
        assert_eq!((policy.inline_bytes, policy.stripe), (cudele::INLINE_BYTES, Stripe::MIN));
        read_layout(&mut policy, " inline_bytes=0\n").unwrap();
        assert_eq!((policy.inline_bytes, policy.stripe), (0, Stripe::MIN));
        read_layout(&mut policy, "inline_bytes=65536 stripe_bytes=67108864").unwrap();
        assert_eq!((policy.inline_bytes, policy.stripe), (65_536, Stripe::MAX));
        assert_eq!(policy.allocated_inodes, 7);
    }

    #[test]
    fn an_invalid_layout_is_refused_and_changes_nothing() {
        for text in [
            "",
            "4096",
            "inline_bytes",
            "inline_bytes=65537",
            "inline_bytes=-1",
            "stripe_bytes=65537",
            "stripe_bytes=32768",
            "stripe_bytes=134217728",
            "inline_bytes=1 inline_bytes=2",
            "limit=hard",
        ] {
            let mut policy = Policy::default();
            let error = read_layout(&mut policy, text).expect_err(text);
            assert_eq!(error.errno, Errno::Invalid, "{text}");
            assert_eq!(policy, Policy::default(), "{text}");
        }
    }
}
